"""What two tables of slaves that acted make of each other: what is done at one, and what one has left out only."""

from __future__ import annotations

import pytest
from test_broker_pop_acting import POINT, add, open_offsets, table

from understudy.broker.pop.revive_log import Ack


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
