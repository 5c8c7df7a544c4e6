"""Topics that a log holds messages of although the table has no row of them. Pure.

A row is saved a moment after the send that made its topic, and copied to slaves a moment later; messages are durable
and copied at once. A loss of power, or of the master, can fall in between. The queues in the log say what the topic
was.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping

from understudy.broker.topics import BATCH_QUEUES, QUEUE_TYPE, TopicConfig
from understudy.format import names

YOUNG_MS = 60_000
_STEP = 50


def without_row(queues: Iterable[tuple[str, int]], rows: Mapping[str, TopicConfig]) -> dict[str, int]:
    """Return the topics that have queues but no row, each with the number of queues that its highest id tells."""
    found: dict[str, int] = {}
    for topic, queue_id in queues:
        if topic not in rows and not topic.startswith(names.LIGHT_PREFIX) and not names.is_system_topic(topic):
            found[topic] = max(found.get(topic, 0), queue_id + 1)
    return dict(sorted(found.items()))


def rows_of_log(
    queues: Iterable[tuple[str, int]], rows: Mapping[str, TopicConfig], batch_topics: Container[str] = ()
) -> list[TopicConfig]:
    """Return the rows that a slave which comes to lead had not copied yet, with as many queues as its log tells.

    The other slaves may have them, and would delete the messages of a topic that their new master does not know.

    Args:
        queues: topic and queue id of each queue in the log.
        rows: what the slave has copied.
        batch_topics: those that have batch queues.
    """
    return [row_of_queues(topic, count, batch_topics) for topic, count in without_row(queues, rows).items()]


def row_of_queues(topic: str, count: int, batch_topics: Container[str]) -> TopicConfig:
    """Return what a topic was as far as its queues say: how many they are, and of which kind.

    Args:
        topic: its name.
        count: how many queues it has.
        batch_topics: those that have batch queues.
    """
    return TopicConfig(topic, count, count, attributes={QUEUE_TYPE: BATCH_QUEUES} if topic in batch_topics else {})


def lost_rows(
    queues: Iterable[tuple[str, int]],
    rows: Mapping[str, TopicConfig],
    saved_ms: int,
    first_stored_ms: Callable[[str, int], int],
    batch_topics: Container[str] = (),
) -> list[TopicConfig]:
    """Return the rows that a master's file had not got yet when the power went.

    A topic whose messages are all younger than the last change that was saved was made after it. One that was deleted
    has older ones: its deletion was a change.

    Args:
        queues: topic and queue id of each queue in the log.
        rows: what the file holds.
        saved_ms: wall time of the last change in it, 0 when it does not say.
        first_stored_ms: from topic and queue id to the wall time at which the queue's first message was stored, below 0
            for an empty queue.
        batch_topics: those that have batch queues.
    """
    queues = list(queues)
    found: list[TopicConfig] = []
    if not saved_ms:
        return found
    for topic, count in without_row(queues, rows).items():
        times = [first_stored_ms(*queue) for queue in queues if queue[0] == topic]
        if min((each for each in times if each >= 0), default=-1) > saved_ms:
            found.append(row_of_queues(topic, count, batch_topics))
    return found


def young(
    queues: Iterable[tuple[str, int]], topics: Container[str], span_ms: Callable[[str, int], tuple[int, int]]
) -> Generator[None, None, set[str]]:
    """Return which of *topics* may be so new that a replica which leads since has not heard of them; in short steps.

    A slave of the reference copies the table of topics every ten seconds, so whoever is elected has all that is older.
    How long the messages came can still be told later, and by each replica.

    Args:
        queues: topic and queue id of each queue in the log.
        topics: which are asked for.
        span_ms: from topic and queue id to the wall times at which the first and the last message of the queue were
            stored, below 0 for an empty queue.
    """
    spans: dict[str, tuple[int, int]] = {}
    for number, (topic, queue_id) in enumerate(each for each in list(queues) if each[0] in topics):
        first, last = span_ms(topic, queue_id)
        if min(first, last) >= 0:
            earliest, latest = spans.get(topic, (first, last))
            spans[topic] = min(earliest, first), max(latest, last)
        if number % _STEP == 0:
            yield
    return {topic for topic, (first, last) in spans.items() if last - first < YOUNG_MS}
