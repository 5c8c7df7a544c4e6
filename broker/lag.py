"""How far consumer groups are behind: computed when somebody asks, nothing is kept.

Source: ConsumerLagCalculator.java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Protocol

import attrs

from understudy.broker.clients import ConsumerTable
from understudy.broker.groups import GroupTable
from understudy.broker.offsets import OffsetTable
from understudy.broker.topics import TopicTable
from understudy.remoting.connection import Connection
from understudy.store.message_store import MessageStore

COUNTED_MESSAGES = 10_000
"""A filtered lag is exact up to so many messages of a queue; a longer one is projected from its first messages."""
_READ_MESSAGES, _READ_BYTES = 1024, 1 << 20


class LagSource(Protocol):
    """The tables of a broker that lag is computed from."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    consumers: ConsumerTable[Connection]
    store: MessageStore


@attrs.frozen
class Lag:
    """One group in one topic.

    Args:
        group, topic: whose.
        messages: stored, wanted by the group, and not confirmed.
        in_flight: of all stored ones, given out and not confirmed.
        ready: stored, wanted, and not given out.
        behind_ms: age of the oldest message that is not confirmed; 0 when there is none.
        queueing_ms: age of the oldest message that is not given out; 0 when there is none.
    """

    group: str
    topic: str
    messages: int
    in_flight: int
    ready: int
    behind_ms: int
    queueing_ms: int


def lag_pieces(source: LagSource, now_ms: int, *, estimate: bool = True) -> Iterator[Lag | None]:
    """Compute the lag of every group in every topic it consumes, with ``None`` where others may have their turn.

    Args:
        source: a broker.
        now_ms: wall time.
        estimate: count only messages whose tags the group wants; with False every message counts.
    """
    offline: dict[str, list[str]] = {}
    for key in source.offsets.committed:
        topic, _, group = key.partition("@")
        offline.setdefault(group, []).append(topic)
    for group in list(source.groups.rows):
        members = source.consumers.get(group)
        if members is not None:
            if members.broadcasting:
                continue  # each member keeps its own offset
            topics = list(members.subscriptions)
        else:
            topics = offline.get(group, [])
        for topic in topics:
            row = source.topics.rows.get(topic)  # light queues have none: there may be very many
            if row is None:
                continue
            subscription = None if members is None else members.subscriptions.get(topic)
            codes = subscription.codes if subscription is not None and estimate else None
            yield (yield from _lag(source, group, topic, row.read_queue_nums, codes, now_ms))


def _lag(
    source: LagSource, group: str, topic: str, queues: int, codes: frozenset[int] | None, now_ms: int
) -> Generator[None, None, Lag]:
    store, offsets = source.store, source.offsets
    messages = in_flight = ready = 0
    oldest_ms = oldest_ready_ms = 0
    for queue_id in range(queues):
        yield
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        consumed = offsets.query(group, topic, queue_id)
        if consumed < 0:
            continue  # the group never had this queue: it decides itself where it begins
        consumed = min(max(consumed, low), high)
        pulled = min(max(consumed, offsets.query_pull(group, topic, queue_id)), high)
        waiting = yield from count_in_steps(store, topic, queue_id, pulled, high, codes)
        ready += waiting
        in_flight += pulled - consumed
        messages += waiting + (yield from count_in_steps(store, topic, queue_id, consumed, pulled, codes))
        oldest_ms = _older(oldest_ms, store, topic, queue_id, consumed, high)
        oldest_ready_ms = _older(oldest_ready_ms, store, topic, queue_id, pulled, high)
    return Lag(
        group,
        topic,
        messages,
        in_flight,
        ready,
        max(now_ms - oldest_ms, 0) if oldest_ms else 0,
        max(now_ms - oldest_ready_ms, 0) if oldest_ready_ms else 0,
    )


def count_in_steps(
    store: MessageStore, topic: str, queue_id: int, first: int, end: int, codes: frozenset[int] | None
) -> Generator[None, None, int]:
    """Return how many messages from queue offset *first* to before *end* have one of the tags *codes*; ``None`` is all.

    Exact up to :data:`COUNTED_MESSAGES`; of a longer range the first so many are counted and projected to the whole.
    Between two steps others may have their turn.

    Args:
        store: that has them.
        topic: of the queue.
        queue_id: of the queue.
        first: first queue offset.
        end: queue offset before which they are counted.
        codes: tags codes that are wanted; ``None`` for all.
    """
    if codes is None or first >= end:
        return max(end - first, 0)
    accept: Callable[[int], bool] = codes.__contains__
    found, offset, limit = 0, first, min(end, first + COUNTED_MESSAGES)
    while offset < limit:
        read = store.get(topic, queue_id, offset, min(_READ_MESSAGES, limit - offset), _READ_BYTES, accept)
        yield
        if read.next_begin_offset <= offset:
            break  # retention took the rest away meanwhile
        found += read.count
        offset = read.next_begin_offset
    counted = min(offset, end) - first
    return found if offset >= end or counted <= 0 else round(found * (end - first) / counted)


def _older(known_ms: int, store: MessageStore, topic: str, queue_id: int, offset: int, high: int) -> int:
    stored_ms = store.store_time_of(topic, queue_id, offset) if offset < high else 0
    return stored_ms if stored_ms > 0 and (not known_ms or stored_ms < known_ms) else known_ms
