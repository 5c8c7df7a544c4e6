"""Topics with batch queues: known by their attribute, not only by the folder that the first message makes.

A real broker does not start on a folder where a topic has queues of the other kind. So the queues of a topic are of its
kind as soon as the attribute is known, and those that were made before are made again from the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.runtime.log import get_logger
from understudy.store.consume_queue import FILLER_SIZE
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.walk import Walk

log = get_logger("store.batch_topics")


def declare_kinds(core: StoreCore, dispatcher: Dispatcher, batch: Iterable[str], simple: Iterable[str]) -> bool:
    """Let topics have batch queues, or simple ones, from now on.

    What they have in queues of the other kind moves over. That is rare: messages that a slave took in the seconds
    before it knew the topic, or another life of it, or that a version which did not look at the attribute has left.

    Args:
        core: the store.
        dispatcher: of the store.
        batch: topics that have batch queues.
        simple: topics that have none; others stay what they are.

    Returns:
        Whether queues moved.
    """
    known, moved = core.batch_queues.topics, False
    batch = sorted(batch)
    if batch:
        known.update(batch)
        for topic in batch:
            if topic in core.consume_queues.by_topic:
                _make_anew(core, dispatcher, topic, "BatchCQ")
                moved = True
    for topic in sorted(known.intersection(simple)) if known else ():
        if topic in core.batch_queues.by_topic:
            _make_anew(core, dispatcher, topic, "SimpleCQ")
            moved = True
        else:
            known.discard(topic)
    return moved


def _make_anew(core: StoreCore, dispatcher: Dispatcher, topic: str, kind: str) -> None:
    """Delete the queues of *topic* that are of the other kind, and enter its messages again."""
    first = min(_oldest_record(core, topic), core.dispatched)
    if kind == "BatchCQ":
        core.consume_queues.delete_topic(topic)
    else:
        core.batch_queues.delete_topic(topic)
    moved, name = 0, topic.encode()
    for head in Walk(core.segments, max(first, core.segments.min_offset)):
        if head.physical_offset >= core.dispatched:
            break
        if head.topic == name:
            dispatcher.dispatch(head, to_index=False)
            moved += 1
    log.warning("the queues of a topic are made anew, as its queue.type says", topic=topic, kind=kind, messages=moved)


def _oldest_record(core: StoreCore, topic: str) -> int:
    """Return where the oldest record of *topic* begins in the log, as far as its queues say (physical offset)."""
    first, log_min = core.dispatched, core.segments.min_offset
    for queue in core.consume_queues.by_topic.get(topic, ()):
        unit = core.consume_queues.unit(queue, core.consume_queues.correct_min(queue, log_min))
        if unit is not None and 0 < unit[1] < FILLER_SIZE:
            first = min(first, unit[0])
    for batch in core.batch_queues.by_topic.get(topic, ()):
        if (oldest := batch.find_from(batch.min_offset(max(log_min, 0)))) is not None:
            first = min(first, oldest.physical)
    return first
