"""``./understudy bench first-reads``: messages are compared once after each start, and not at all after a scrub."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MESSAGES = 5_000


@pytest.fixture(autouse=True)
def project_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_kind_of_read_is_measured(tmp_path: Path) -> None:
    from bench.first_reads import measure

    cost = measure(tmp_path, MESSAGES, 1)  # which of them is dearer takes more messages and a quiet machine
    assert min(cost.first, cost.again, cost.scrubbed) > 1.0


def test_shares_are_of_a_pull_with_nothing_to_compare() -> None:
    from bench.first_reads import Cost

    cost = Cost(first=200.0, again=110.0, scrubbed=100.0)
    assert (1.0, 0.1) == (cost.first_share, pytest.approx(cost.again_share))


@pytest.mark.parametrize(
    ("first", "again", "faults"), [(349.0, 109.0, 0), (351.0, 109.0, 1), (349.0, 111.0, 1), (351.0, 111.0, 2)]
)
def test_first_and_later_reads_have_a_bound(first: float, again: float, faults: int) -> None:
    from bench.first_reads import Cost

    assert faults == len(Cost(first, again, 100.0).faults())
