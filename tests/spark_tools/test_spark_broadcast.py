"""Places of broadcasting members are no orphans: they belong to the group before the `@`."""

from __future__ import annotations

import pytest

from understudy.spark_tools.jobs.judging import Known


@pytest.mark.parametrize(
    ("group", "known"), [("g", True), ("g@broadcast", True), ("gone", False), ("gone@broadcast", False)]
)
def test_a_group_is_known_with_its_broadcasting_members(group: str, known: bool) -> None:
    assert Known((), (), (), frozenset({"T"}), frozenset({"g"}), {}).group_known(group) is known
