"""The decisions of a deferred queue: what is read and put, how far progress moves, when it rests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.deferred import (
    NEVER,
    RETRY_MS,
    Action,
    Arrived,
    DeferredQueue,
    Due,
    Found,
    Item,
    Move,
    Put,
    Read,
    Settled,
    step,
)
from understudy.broker.inner import InnerMessage

NOW = 1_000.0


def message(number: int) -> InnerMessage:
    return InnerMessage("T", 0, b"%d" % number, b"", 0, b"")


def items(*numbers: int) -> tuple[Item, ...]:
    return tuple(Item(number, message(number)) for number in numbers)


def bodies(action: Action) -> list[int]:
    assert isinstance(action, Put)
    return [int(each.body) for each in action.messages]


def test_what_is_due_is_put_and_progress_moves_behind_it() -> None:
    queue, actions = step(DeferredQueue(), Due(7), NOW)
    assert (queue.rests, actions) == (False, (Read(7),))
    queue, actions = step(queue, Found(items(7, 8), 9, 5_000.0), NOW)
    assert bodies(actions[0]) == [7, 8]
    queue, actions = step(queue, Settled((True, True)), NOW)
    assert actions == (Move(9),)
    assert (queue.rests, queue.due_ms) == (True, 5_000.0)


def test_it_reads_on_while_there_may_be_more_and_rests_at_the_end() -> None:
    queue, _ = step(DeferredQueue(), Due(0), NOW)
    queue, _ = step(queue, Found(items(0), 1, None), NOW)
    queue, actions = step(queue, Settled((True,)), NOW)
    assert actions == (Move(1), Read(1))
    queue, actions = step(queue, Found((), 1, NEVER), NOW)
    assert (queue.rests, queue.due_ms, actions) == (True, NEVER, ())


def test_a_position_without_a_message_is_passed_without_a_put() -> None:
    queue, _ = step(DeferredQueue(), Due(0), NOW)
    _, actions = step(queue, Found((Item(0, None), Item(1, None)), 2, NEVER), NOW)
    assert actions == (Move(2),)


def test_a_failed_put_is_tried_again_alone_and_progress_waits_before_it() -> None:
    # given three messages under way of which the second fails
    queue, _ = step(DeferredQueue(), Due(0), NOW)
    queue, _ = step(queue, Found(items(0, 1, 2), 3, NEVER), NOW)
    queue, actions = step(queue, Settled((True, False, True)), NOW)
    assert actions == (Move(1),)
    assert (queue.rests, queue.due_ms) == (True, NOW + RETRY_MS)
    # when it is time again and another one has fallen due
    queue, _ = step(queue, Due(1), NOW + RETRY_MS)
    queue, actions = step(queue, Found(items(1, 2, 3), 4, NEVER), NOW)
    # then what is stored already is not put again
    assert bodies(actions[0]) == [1, 3]
    queue, actions = step(queue, Settled((True, True)), NOW)
    assert (actions, queue.landed) == ((Move(4),), frozenset())


def test_messages_of_one_position_are_told_apart_by_their_keys() -> None:
    queue, _ = step(DeferredQueue(), Due(5), NOW)
    of_one = tuple(Item(5, message(number), key) for number, key in enumerate("ab"))
    queue, _ = step(queue, Found(of_one, 6, NEVER), NOW)
    queue, actions = step(queue, Settled((False, True)), NOW)
    assert actions == ()
    queue, _ = step(queue, Due(5), NOW)
    queue, actions = step(queue, Found(of_one, 6, NEVER), NOW)
    assert bodies(actions[0]) == [0]


def test_an_arrival_while_the_queue_works_is_not_lost() -> None:
    queue, _ = step(DeferredQueue(), Due(0), NOW)
    queue, _ = step(queue, Found(items(0), 1, NEVER), NOW)
    queue, _ = step(queue, Arrived(2_500.0), NOW)
    queue, _ = step(queue, Settled((True,)), NOW)
    assert (queue.rests, queue.due_ms) == (True, 2_500.0)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=30))
def test_each_message_is_stored_once_and_progress_never_passes_one_that_is_not(outcomes: list[list[bool]]) -> None:
    # given ten messages, four of which are read at a time, and a target that fails at will
    queue, stored, progress = DeferredQueue(), list[int](), 0
    queue, actions = step(queue, Due(0), NOW)
    script = [*outcomes, *[[True] * 4] * 10]
    while progress < 10:
        event = None
        for action in actions:
            match action:
                case Move(position):
                    assert progress < position <= min(n for n in range(11) if n not in stored)
                    progress = position
                case Read(position):
                    assert position == progress
                    end = min(position + 4, 10)
                    event = Found(items(*range(position, end)), end, None if end < 10 else NEVER)
                case Put():
                    results = script.pop(0)[: len(action.messages)]
                    stored += [number for number, good in zip(bodies(action), results, strict=True) if good]
                    event = Settled(tuple(results))
        queue, actions = step(queue, event if event is not None else Due(progress), NOW)
    assert sorted(stored) == list(range(10))
