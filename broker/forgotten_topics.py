"""What ends with topics whose rows are gone: queues, mappings, offsets, pops, statistics; who waits there is told.

A topic that is deleted here is forgotten in one turn of the event loop, for the next request may make it again. A
replica may learn of thousands at once: others have their turns meanwhile, and it does not look at its source before the
end.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from typing import TYPE_CHECKING

from understudy.broker.lost_topics import young
from understudy.runtime.pace import run_steps

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.store.deletions import Deletion


def forget_topic(broker: Broker, topic: str) -> None:
    """Delete at once what belongs to a topic whose row was deleted here."""
    run_steps(_forget(broker, {topic}))
    broker.store.delete_topic(topic)
    broker.wake_topics({topic})


def forget_topics(broker: Broker, gone: Mapping[str, Deletion | None]) -> Generator[None, None, None]:
    """Delete what belongs to topics that another replica has no rows of, step by step; their rows are gone here, too.

    Each step goes through a whole table, for all topics together.

    Args:
        broker: whose topics they were.
        gone: where each was deleted in the log of our master, which the store is told with all others; ``None`` where
            that is unknown: then all that is before this moment is deleted.
    """
    if not gone:
        return
    broker.store.delete_beside([topic for topic, deletion in gone.items() if deletion is None])
    yield
    yield from _forget(broker, gone.keys())
    broker.wake_topics(gone.keys())


def _forget(broker: Broker, topics: Set[str]) -> Generator[None, None, None]:
    for topic in [topic for topic in topics if topic in broker.queue_mappings.table]:
        broker.queue_mappings.remove(topic)
        yield
    yield from broker.offsets.remove_topics(topics)
    broker.pops.forget_topics(topics)
    yield
    broker.stats.topics_deleted(topics)
    yield


def young_topics(broker: Broker, topics: Set[str]) -> Generator[None, None, Set[str]]:
    """Return which of *topics* may be so new that another replica has not heard of them, in short steps."""
    if not topics:
        return topics
    store = broker.store

    def span_ms(topic: str, queue_id: int) -> tuple[int, int]:
        first, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        return store.store_time_of(topic, queue_id, first), store.store_time_of(topic, queue_id, end - 1)

    return (yield from young(store.queues(), topics, span_ms))
