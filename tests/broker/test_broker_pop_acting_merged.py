"""What two tables of slaves that acted make of each other: what is done at one, and what one has left out only."""

from __future__ import annotations

import itertools
import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_broker_pop_acting import POINT, Clock, add, open_offsets, table

from understudy.broker.pop.revive_log import Ack, CheckPoint


def test_what_two_have_acknowledged_of_the_same_check_point_is_acknowledged() -> None:
    first, second = table(1), table(2)
    for each, offset in ((first, 100), (second, 101)):
        add(each, Ack(POINT.key, (offset,)))
    first.join(second)
    assert first.acks[POINT.key].offsets == {100, 101}
    add(first, POINT)  # it comes out of the timer later
    assert open_offsets(first) == [103]


@pytest.mark.parametrize("how", ["its log lacks them", "its log has them"])
def test_what_was_left_out_of_a_table_is_no_sign_that_it_is_done(how: str) -> None:
    first, second = table(1), table(2)
    add(first, POINT, logged=True)
    second.join(first)
    for number, each in enumerate((first, second)):  # neither has seen what the other did since
        add(each, Ack(("t", "g", 0, number, 7, "a"), (7,)))
    if how == "its log lacks them":
        second.cut(lambda key, queue_id: POINT.start_offset)
    else:
        assert second.leave_logged()
    assert open_offsets(second) == []
    first.join(second)
    assert open_offsets(first) == [100, 101, 103]


def test_a_check_point_that_comes_once_more_is_still_the_one_that_another_is_done_with() -> None:
    first, second = table(1), table(2)
    add(first, POINT)
    second.join(first)
    add(second, Ack(POINT.key, POINT.offsets))
    add(first, POINT, logged=True)  # its own timer has it, too
    first.join(second)
    assert open_offsets(first) == []


def test_what_another_one_is_done_with_does_not_come_back_from_who_died_before_its_last_change_was_copied() -> None:
    first, second = table(1), table(2)
    other = attrs.evolve(POINT, start_offset=200, offsets=(200,))
    worked_off = attrs.evolve(POINT, start_offset=300, offsets=(300,))
    for logged, point in ((False, POINT), (True, worked_off)):
        add(first, point, logged=logged)
    second.join(first)
    add(first, other)  # and it dies
    add(second, Ack(POINT.key, POINT.offsets, True))
    second.settled(worked_off, 300)
    from_file, back = table(1), table(2)
    from_file.load(json.loads(json.dumps(first.to_json())))
    back.load(json.loads(json.dumps(second.to_json())))
    from_file.join(back)
    assert open_offsets(from_file) == [200]
    back.join(from_file)
    assert open_offsets(back) == [200]


def test_what_two_took_out_of_their_timers_and_one_has_worked_off_does_not_come_again() -> None:
    first, second = table(1), table(2)
    for each in (first, second):
        add(each, POINT, logged=True)
    for offset in POINT.offsets:
        second.settled(POINT, offset)
    first.join(second)
    assert open_offsets(first) == []
    assert first.acks[POINT.key].offsets == set(POINT.offsets)


def test_a_table_of_an_older_version_is_put_together_without_loss() -> None:
    first, second = table(1), table(2)
    add(first, POINT)
    old = first.to_json()
    del old["points"][0]["made"]
    first.load(old)
    second.join(first)
    add(first, Ack(("t", "g", 0, 8, 8, "a"), (8,)))
    add(second, Ack(POINT.key, (100,)))
    first.join(second)
    assert open_offsets(first) == [101, 103]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5)), max_size=40))
def test_whoever_copies_from_whom_what_is_open_somewhere_stays_and_what_is_done_does_not_come_back(
    steps: list[tuple[int, int, int]],
) -> None:
    clock = Clock()
    tables = [table(number, clock) for number in range(3)]
    points = [CheckPoint("t", "g", 0, number, 1_000, 500, "a", (number,)) for number in range(6)]
    handed_out, done = set[int](), set[int]()
    for actor, other, number in steps:
        clock.now_ms += 1
        if other != actor:
            tables[actor].join(tables[other])
        elif number not in handed_out:
            add(tables[actor], points[number])
            handed_out.add(number)
        elif number in open_offsets(tables[actor]):
            add(tables[actor], Ack(points[number].key, (number,)))
            done.add(number)
    for first, second in 2 * list(itertools.permutations(tables, 2)):
        first.join(second)
    assert [set(open_offsets(each)) for each in tables] == [handed_out - done] * 3
