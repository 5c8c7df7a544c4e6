"""Whom a broker remembers of its group, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.broker.group_memory import (
    FORGET_SECONDS,
    LEFT_OUT_MOST,
    QUEUES_MOST,
    GroupMemory,
    LeftOut,
    answered,
    observe,
    read,
    without,
)
from understudy.broker.merge import StampedOffset, stamped
from understudy.format.json_dialect import dumps, loads

FULL = {0: "m:1", 1: "s:1", 2: "s:2"}


def test_a_member_is_forgotten_when_views_were_without_it_for_long() -> None:
    memory = observe(GroupMemory(), FULL, 0, 0.0)
    # when it is missing for a while, and seen again, the time begins anew
    for now, view in ((10.0, {0: "m:1", 1: "s:1"}), (60.0, FULL), (61.0, {0: "m:1", 1: "s:1"})):
        memory = observe(memory, view, 0, now)
        assert memory.members == FULL
    memory = observe(memory, {0: "m:1", 1: "s:1"}, 0, 61.0 + FORGET_SECONDS)
    assert memory.members == {0: "m:1", 1: "s:1"}


def test_a_view_without_this_broker_lets_nobody_be_forgotten() -> None:
    memory = observe(GroupMemory(), FULL, 0, 0.0)
    for now in range(0, 1_000, 10):  # a name server that has just booted, or has lost this broker
        memory = observe(memory, {2: "s:2"}, 0, float(now))
    assert memory.members == FULL


def test_a_member_that_moved_is_remembered_where_it_is_now() -> None:
    memory = observe(observe(GroupMemory(), FULL, 0, 0.0), {**FULL, 1: "elsewhere:1"}, 0, 1.0)
    assert memory.members == {**FULL, 1: "elsewhere:1"}


_NUMBERS = some.integers(0, 9)
_OFFSETS = some.dictionaries(_NUMBERS, some.builds(StampedOffset, _NUMBERS, some.integers(0, 1 << 62)), max_size=3)
_TABLES = some.dictionaries(some.text(), some.dictionaries(some.text(), _OFFSETS, max_size=3), max_size=3)
_LEFT_OUT = some.lists(some.builds(LeftOut, _NUMBERS, some.text(), _TABLES), max_size=3).map(tuple)


@given(some.dictionaries(_NUMBERS, some.text(min_size=1), min_size=1), some.frozensets(_NUMBERS), _LEFT_OUT)
def test_what_is_written_is_read_again(
    members: dict[int, str], declining: frozenset[int], left_out: tuple[LeftOut, ...]
) -> None:
    memory = GroupMemory(members, declining, left_out=left_out)
    assert read(loads(dumps(memory.to_json()))) == memory


def test_a_file_of_an_older_version_names_nobody_who_was_left_out() -> None:
    assert read({"members": {"0": "m:1"}, "declining": []}).left_out == ()


def test_a_slave_that_was_left_out_is_remembered_until_it_has_answered() -> None:
    then, later = {"offset": stamped({"t@g": {0: 5, 1: 5}})}, {"offset": stamped({"t@g": {0: 7, 1: 5}})}
    memory = without(observe(GroupMemory(), FULL, 0, 0.0), {1: "s:1"}, then)
    # when views have long been without it, and another one is left out at a later return
    for now in (1.0, 1.0 + FORGET_SECONDS):
        memory = observe(memory, {0: "m:1"}, 0, now)
    assert memory.members == {0: "m:1"}
    memory = without(memory, {1: "s:1", 2: "s:2"}, later)
    # then each is kept with the offsets from when it was left out first
    assert memory.left_out == (LeftOut(1, "s:1", then), LeftOut(2, "s:2", later))
    # and what is taken over from one counts as not moved for the other
    memory = answered(memory, 1, {"offset": stamped({"t@g": {1: 9}, "t@new": {0: 3}})})
    assert memory.left_out == (LeftOut(2, "s:2", {"offset": stamped({"t@g": {0: 7, 1: 9}, "t@new": {0: 3}})}),)
    assert without(memory, {}, later).left_out == ()


def test_a_slave_that_was_left_out_is_looked_for_where_it_is_shown_now() -> None:
    memory = without(observe(GroupMemory(), FULL, 0, 0.0), {1: "s:1"}, {})
    memory = observe(memory, {**FULL, 1: "elsewhere:1"}, 0, 1.0)
    assert memory.left_out == (LeftOut(1, "elsewhere:1"),)


def test_what_the_file_keeps_of_those_who_were_left_out_is_bounded() -> None:
    table = {f"t@{number}": {queue: StampedOffset(0, 1) for queue in range(1_000)} for number in range(70)}
    memory = GroupMemory()
    for number in range(1, 2 * LEFT_OUT_MOST):
        left_out = {each.broker_id: each.address for each in memory.left_out}
        memory = without(memory, {**left_out, number: "s:1"}, {"offset": table})
        # nothing is forgotten of it as long as this broker runs
        assert all(each.before == {"offset": table} for each in memory.left_out)
    assert [each.broker_id for each in memory.left_out] == list(range(LEFT_OUT_MOST, 2 * LEFT_OUT_MOST))
    kept = read(memory.to_json()).left_out
    assert [each.broker_id for each in kept] == [each.broker_id for each in memory.left_out]
    queues = [len(row) for each in kept for rows in each.before.values() for row in rows.values()]
    assert sum(queues) == QUEUES_MOST


def test_an_empty_file_is_no_proof_of_being_alone() -> None:
    assert read(GroupMemory().to_json()).members is None


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"members": []},
        {"members": {"one": "s:1"}},
        {"members": {"1": 1}},
        {"members": {}, "declining": 1},
        {"members": {}, "leftOut": 1},
        {"members": {}, "leftOut": [{"brokerId": 1}]},
        {"members": {}, "leftOut": [{"brokerId": 1, "address": "s:1", "before": {"offset": {"t@g": {"0": [1]}}}}]},
    ],
)
def test_a_file_that_says_something_else_is_told(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^(members|declining|leftOut): expected"):
        read(content)
