"""Topics with batch queues: known by their attribute, not only by the folder that the first message makes.

A real broker does not start on a folder where a topic of that kind has simple queues. So queues of such a topic are
batch queues as soon as the attribute is known, and those that were made before are made again from the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.runtime.log import get_logger
from understudy.store.consume_queue import FILLER_SIZE
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.walk import Walk

log = get_logger("store.batch_topics")


def declare_batch_topics(core: StoreCore, dispatcher: Dispatcher, topics: Iterable[str]) -> None:
    """Let *topics* have batch queues from now on.

    What they have in simple queues moves over. That is rare: messages that a slave took in the seconds before it knew
    the topic, or that a version of this store which did not look at the attribute has left.
    """
    for topic in topics:
        if topic in core.batch_queues.topics:
            continue
        core.batch_queues.topics.add(topic)
        simple = [queue for queue in core.consume_queues if queue.topic == topic]
        if not simple:
            continue
        first = core.dispatched
        for queue in simple:
            unit = core.consume_queues.unit(queue, core.consume_queues.correct_min(queue, core.segments.min_offset))
            if unit is not None and 0 < unit[1] < FILLER_SIZE:
                first = min(first, unit[0])
        for queue in simple:
            core.consume_queues.delete(queue)
        moved = 0
        for head in Walk(core.segments, max(first, core.segments.min_offset)):
            if head.physical_offset >= core.dispatched:
                break
            if head.topic == topic.encode():
                dispatcher.dispatch(head, to_index=False)
                moved += 1
        log.warning("the queues of a topic with queue.type=BatchCQ are made anew", topic=topic, messages=moved)
