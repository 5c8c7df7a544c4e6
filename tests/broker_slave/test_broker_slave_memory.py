"""Whom a broker remembers of its group, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.broker.group_memory import FORGET_SECONDS, GroupMemory, observe, read
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


@given(some.dictionaries(some.integers(0, 9), some.text(min_size=1), min_size=1), some.frozensets(some.integers(0, 9)))
def test_what_is_written_is_read_again(members: dict[int, str], declining: frozenset[int]) -> None:
    memory = GroupMemory(members, declining)
    assert read(loads(dumps(memory.to_json()))) == memory


def test_an_empty_file_is_no_proof_of_being_alone() -> None:
    assert read(GroupMemory().to_json()).members is None


@pytest.mark.parametrize(
    "content",
    [{}, {"members": []}, {"members": {"one": "s:1"}}, {"members": {"1": 1}}, {"members": {}, "declining": 1}],
)
def test_a_file_that_says_something_else_is_told(content: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^(members|declining): expected"):
        read(content)
