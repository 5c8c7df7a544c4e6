"""Offsets of a returning master and its slave: the cases that the reference gets wrong, and the laws of the merge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.merge import Reason, Row, StampedOffset, merge, stamped, table_of

KEY = "orders@readers"


def decide(own: int | None, other: int | None) -> Row:
    mine = {} if own is None else {KEY: {0: own}}
    theirs = {} if other is None else {KEY: {0: other}}
    (row,) = merge(stamped(mine), stamped(theirs))
    return row


@pytest.mark.parametrize(
    ("case", "own", "other", "expected", "reason"),
    [
        # 200 commits on the master after the slave's last sync, none on the slave: the reference rolls the master back.
        ("A", 300, 100, 300, Reason.OWN_AHEAD),
        # 300 commits on the acting slave.
        ("B", 100, 400, 400, Reason.OTHER_AHEAD),
        # 600 on the master after the sync and a version step on the slave: the reference takes the slave's table.
        ("C", 700, 100, 700, Reason.OWN_AHEAD),
        # a version step on the master and 450 commits on the acting slave: the reference keeps the master's table.
        ("D", 100, 550, 550, Reason.OTHER_AHEAD),
        ("one commit", 100, 101, 101, Reason.OTHER_AHEAD),
        ("499 commits", 100, 599, 599, Reason.OTHER_AHEAD),
        ("equal", 100, 100, 100, Reason.EQUAL),
        ("new on the slave", None, 7, 7, Reason.ONLY_OTHER),
        ("unknown to the slave", 7, None, 7, Reason.ONLY_OWN),
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_no_commit_of_either_side_is_lost(
    case: str, own: int | None, other: int | None, expected: int, reason: Reason, both: bool
) -> None:
    row = decide(own, other)
    assert (expected, reason) == (row.merged.offset, row.reason), case
    if both:
        assert row.merged == decide(other, own).merged


def test_the_cases_do_not_disturb_each_other_within_one_table() -> None:
    own = stamped({"t@a": {0: 300, 1: 5}, "t@b": {0: 100}})
    other = stamped({"t@a": {0: 100, 1: 50}, "t@b": {0: 400}, "t@c": {0: 1}})
    merged = {
        key: {queue: each.offset for queue, each in queues.items()}
        for key, queues in table_of(merge(own, other)).items()
    }
    assert {"t@a": {0: 300, 1: 50}, "t@b": {0: 400}, "t@c": {0: 1}} == merged


def test_a_deliberate_reset_wins_over_larger_offsets_of_before() -> None:
    own = {KEY: {0: StampedOffset(0, 900)}}
    other = {KEY: {0: StampedOffset(5_000, 10)}}  # reset to 0 at the acting slave, ten messages consumed since
    (row,) = merge(own, other)
    assert (StampedOffset(5_000, 10), Reason.OTHER_RESET, True) == (row.merged, row.reason, row.changed)
    (back,) = merge(other, own)
    assert (StampedOffset(5_000, 10), Reason.OWN_RESET, False) == (back.merged, back.reason, back.changed)


tables = st.dictionaries(
    st.sampled_from(["t@a", "t@b", "u@a"]),
    st.dictionaries(st.integers(0, 3), st.builds(StampedOffset, st.integers(0, 2), st.integers(0, 9)), max_size=4),
    max_size=3,
)


def merged(one: object, two: object) -> dict[str, dict[int, StampedOffset]]:
    return table_of(merge(one, two))  # type: ignore[arg-type]  # tables, drawn above


@given(tables, tables, tables)
def test_the_order_of_merging_does_not_matter(one: object, two: object, three: object) -> None:
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(merged(one, two), two) == merged(one, two)


@given(tables, tables)
def test_nothing_goes_backwards_and_nothing_is_forgotten(one: dict[str, dict[int, StampedOffset]], two: object) -> None:
    result = merged(one, two)
    for key, queues in one.items():
        for queue, offset in queues.items():
            assert result[key][queue] >= offset
