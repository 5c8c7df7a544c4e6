"""Which queues one pop reads, and in which order. Pure.

Source: PopMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from understudy.format import names

DICE = 100
"""The random number of a pop is below this."""


MOST_QUEUES = 1_024
"""That one pop looks at; some milliseconds. Others of a topic that has more are looked at by other pops."""


@attrs.frozen
class Queue:
    """One queue to read."""

    topic: str
    queue_id: int


def retry_topic_to_read(group: str, topic: str, draw: int, *, second_form: bool, first_form_too: bool) -> str:
    """Return the retry topic that a pop of *topic* reads.

    Args:
        group, topic: who pops what.
        draw: the pop's random number.
        second_form: ``enableRetryTopicV2``.
        first_form_too: ``retrieveMessageFromPopRetryTopicV1``: half of the pops look into the first form, which has the
            messages of the time before the second one was switched on.
    """
    first_form = not second_form or (first_form_too and draw % 2 == 0)
    return names.pop_retry_topic(group, topic, second_form=not first_form)


def queues_of(topic: str, queues: int, draw: int) -> list[Queue]:
    """Return the queues of *topic* from a random one on; of very many those that one pop has time for.

    Args:
        topic: its name.
        queues: how many it has.
        draw: the pop's random number, below :data:`DICE`: with each of them all queues are reached.
    """
    if queues <= MOST_QUEUES:
        return [Queue(topic, (draw + each) % queues) for each in range(queues)]
    start = draw * queues // DICE
    return [Queue(topic, (start + each) % queues) for each in range(MOST_QUEUES)]


def queues_to_read(
    topic: str,
    queue_id: int,
    read_queues: int,
    retry: Sequence[Queue],
    draw: int,
    *,
    retry_percent: int,
    in_order: bool,
) -> list[Queue]:
    """Return the queues of one pop, in order.

    Args:
        topic: what is popped.
        queue_id: the one queue of it to read, -1 for all of them from a random one on.
        read_queues: how many it has.
        retry: the queues of the retry topic.
        draw: the pop's random number, below :data:`DICE`.
        retry_percent: of the pops read the retry topic first, the others last.
        in_order: pops in order read no retry topic.
    """
    if queue_id >= 0:
        own = [Queue(topic, queue_id)]
    else:
        own = queues_of(topic, read_queues, draw)
    if in_order:
        return own
    return [*retry, *own] if draw < retry_percent else [*own, *retry]


def initial_offset(topic: str, from_min: bool, low: int, high: int, head_in_memory: bool) -> int:
    """Return where a group begins that never popped a queue.

    Args:
        topic: retry topics are always read from their beginning.
        from_min: the client's ``initMode`` says so.
        low, high: the queue holds these offsets, *high* not included.
        head_in_memory: ``initPopOffsetByCheckMsgInMem``: a young queue, all of which is in memory, is read from its
            beginning.
    """
    if from_min or topic.startswith(names.RETRY_PREFIX):
        return low
    return 0 if low <= 0 and head_in_memory else max(high - 1, 0)
