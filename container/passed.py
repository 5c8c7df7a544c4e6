"""What deferred services passed while messages were missing in the log of their master.

Delayed and half messages are worked off in the order of their queues. A master that serves although its log has a hole
passes those that are missing. When they come back, only what it passed itself may be looked after once more: what was
worked off before it was lost, or by a slave that acted meanwhile, is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from understudy.broker.broker import Broker
from understudy.format import names
from understudy.runtime.log import get_logger
from understudy.store.holes import Passed

log = get_logger("container.holes")

LEVEL, HALVES = 0, 1
"""Kinds of queues: a delay level, by its number, and the half topic's queue."""
GOES_ON = 0

Positions = Mapping[tuple[int, int], int]
"""Kind and number of a queue to the queue offset that is next there."""


def positions(broker: Broker) -> Positions:
    """Return how far each deferred queue of *broker* has come."""
    levels = range(1, len(broker.delay_levels_ms) + 1)
    halves = broker.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0)
    return {
        **{(LEVEL, level): broker.schedule_progress.offsets.get(level, 0) for level in levels},
        (HALVES, 0): max(halves, 0),
    }


def reached(broker: Broker) -> Positions:
    """Return up to where each deferred queue of *broker* was read; what is under way has not come so far yet.

    What was missing there stays unread, although it comes back before the progress passes it.
    """
    return {
        key: max(position, broker.schedule.reached(key[1]) if key[0] == LEVEL else broker.transactions.lost.reached(0))
        for key, position in positions(broker).items()
    }


def comes(broker: Broker, kind: int, queue: int, offset: int) -> bool:
    """Return whether what is back at this queue offset is worked off in its turn, though it may have been passed.

    Args:
        broker: a master.
        kind, queue: of the queue.
        offset: of a message in it.
    """
    return (broker.schedule if kind == LEVEL else broker.transactions.lost).comes(queue, offset)


def ended(passed: Passed, now: Positions) -> Passed:
    """Return *passed* when nothing more is passed from *now* on; what is empty is left out."""
    found = []
    for kind, queue, first, after in passed:
        after = now.get((kind, queue), 0) if after == GOES_ON else after
        if after > first:
            found.append((kind, queue, first, after))
    return tuple(found)


def begun(passed: Passed, now: Positions) -> Passed:
    """Return *passed* when each queue passes from *now* on what is missing, unless it does already."""
    going = {(kind, queue) for kind, queue, _, after in passed if after == GOES_ON}
    news = [(*key, first, GOES_ON) for key, first in sorted(now.items()) if key not in going]
    return (*passed, *news)


def was_passed(passed: Passed, kind: int, queue: int, offset: int) -> bool:
    """Return whether this queue offset was passed.

    Args:
        passed: what was, which has :func:`ended`.
        kind, queue: of the queue.
        offset: of a message in it.
    """
    return any((kind, queue) == each[:2] and each[2] <= offset < each[3] for each in passed)


def skipped(broker: Broker, level: int, first: int, after: int) -> None:
    """Know that *broker* passed queue offsets of a delay *level* that it could not read; a slave has a master.

    Args:
        broker: it delivers.
        level: of delay.
        first, after: the queue offsets, the first one and the one behind the last.
    """
    row = LEVEL, level, first, after
    if not broker.role.is_slave and row not in broker.store.holes.passed:
        broker.store.holes.pass_over(*row)


async def begin_passing(broker: Broker) -> None:
    """Note durably what *broker* may pass from now on, if its log has a hole; to be called before it does."""
    if broker.store.hole is not None:
        now = positions(broker)
        await _note(broker, lambda passed: begun(passed, now))


async def end_passing(broker: Broker) -> None:
    """Note durably that *broker* passes nothing until it begins again: others tell it how far they have come."""
    await _note(broker, lambda passed: ended(passed, reached(broker)))


async def _note(broker: Broker, change: Callable[[Passed], Passed]) -> None:
    try:
        await broker.store.holes.note_passed(change)
    except OSError as error:
        log.error("what is passed while messages are missing is not on the disk", why=error)
