"""The keys of a proxy's file are the reference's, in its spelling, and count."""

from __future__ import annotations

import pytest

from understudy.proxy.config import config_of


@pytest.mark.parametrize(
    ("keys", "expected"),
    [({}, (10_000, 43_200_000)), ({"minInvisibleTimeMillsForRecv": 5, "maxInvisibleTimeMills": 6}, (5, 6))],
)
def test_what_a_receive_may_ask_for_is_said_by_the_references_keys(
    keys: dict[str, object], expected: tuple[int, int]
) -> None:
    config, warnings = config_of(keys, "rmq-proxy.json")
    assert warnings == []
    rules = config.receive_rules
    assert expected == (rules.shortest_invisible_ms, rules.longest_invisible_ms)
