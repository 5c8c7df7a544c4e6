"""Whether what a broker cannot read may be there in a moment: who waits for it, and how long."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

import pytest

from understudy.broker.broker import Broker
from understudy.container.lost_bytes import PATIENCE_SECONDS, may_come

NOW = 100.0
JUST_NOW, LONG_AGO = NOW - PATIENCE_SECONDS + 0.1, NOW - PATIENCE_SECONDS


def broker(*, slave: bool, missing: bool, behind: bool, hole: int | None, found_s: float) -> Broker:
    """A broker of which nothing is known but this."""
    parts = SimpleNamespace(
        store=SimpleNamespace(holes=SimpleNamespace(behind=behind, first=hole, found_s=found_s)),
        role=SimpleNamespace(is_slave=slave),
        replication=SimpleNamespace(messages_missing=missing),
        world=SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: NOW)),
    )
    return cast(Broker, parts)


@pytest.mark.parametrize(("hole", "found_s"), [(None, -math.inf), (7, LONG_AGO), (7, JUST_NOW)])
@pytest.mark.parametrize("slave", [False, True])
def test_whoever_has_not_noted_yet_what_it_found_waits(slave: bool, hole: int | None, found_s: float) -> None:
    assert may_come(broker(slave=slave, missing=False, behind=True, hole=hole, found_s=found_s))


@pytest.mark.parametrize(
    ("hole", "found_s", "waits"),
    [(None, -math.inf, False), (None, JUST_NOW, False), (7, JUST_NOW, True), (7, LONG_AGO, False), (7, NOW, True)],
)
def test_a_master_waits_for_its_slaves_a_moment(hole: int | None, found_s: float, waits: bool) -> None:
    # that messages are missing it knows for as long as nobody gives them
    assert may_come(broker(slave=False, missing=True, behind=False, hole=hole, found_s=found_s)) == waits


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("found_s", [LONG_AGO, JUST_NOW])
def test_a_slave_leaves_to_its_master_what_its_master_may_have(missing: bool, found_s: float) -> None:
    assert may_come(broker(slave=True, missing=missing, behind=False, hole=7, found_s=found_s)) == missing
