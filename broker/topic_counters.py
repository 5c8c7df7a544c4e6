"""What is counted of what comes into a topic: beside messages and bytes, of which type they are and how large.

Nearly every send brings one normal message of a kilobyte at most. Only what is otherwise is counted apart, and of those
the rest follows from the totals: the usual send pays for two comparisons.

Source: BrokerMetricsManager.java (getMessageType, message size), SendMessageProcessor.java.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

import attrs

from understudy.broker.counters import Counters
from understudy.broker.delay import DELAY, TIMER_REQUESTS

NORMAL, FIFO, DELAYED, TRANSACTION = range(4)
TYPES = ("normal", "fifo", "delay", "transaction")
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
_SMALL = SIZE_BOUNDS[0]

Count = Callable[[int, int, int], None]
"""Counts a request: queue id, messages, their bytes."""

_DELAYS = frozenset({DELAY, "__STARTDELIVERTIME", *TIMER_REQUESTS})


def type_of(pairs: Mapping[str, str]) -> int:
    """Return of which of :data:`TYPES` a message is whose properties are *pairs*; a priority has none of its own."""
    if pairs.get("TRAN_MSG", "").lower() == "true":
        return TRANSACTION
    if "__SHARDINGKEY" in pairs:
        return FIFO
    return NORMAL if _DELAYS.isdisjoint(pairs) else DELAYED


@attrs.frozen
class TypeFigures:
    """What came in of one type.

    Attributes:
        type: a name of :data:`TYPES`.
        messages, size_bytes: all of them, and their records together.
        buckets: requests by the size of a message in them, those beyond the last of :data:`SIZE_BOUNDS` at the end.
        observed_bytes: these sizes together.
    """

    type: str
    messages: int
    size_bytes: int
    buckets: list[int]
    observed_bytes: int


class TopicCounters(Counters):
    """Counters of what comes into one topic, by queue. Hot path: :meth:`add`, which is for normal messages."""

    __slots__ = ("_apart", "_rows", "_unusual")

    def __init__(self) -> None:
        super().__init__()
        self._unusual = _Sizes()
        self._apart: dict[int, Count] = {}
        self._rows: dict[int, _Row] = {}

    def add(self, queue_id: int, messages: int, size_bytes: int) -> None:
        """Count one request that brought *messages* normal messages of *size_bytes* bytes together."""
        if size_bytes > _SMALL or messages != 1:
            self._unusual.add(messages, size_bytes)
        try:  # as Counters.add does, without the call: every send comes here
            self.messages[queue_id] += messages
            self.sizes[queue_id] += size_bytes
            self.times[queue_id] += 1
        except IndexError:
            self._grow(queue_id)
            Counters.add(self, queue_id, messages, size_bytes)

    def of(self, type_: int) -> Count:
        """Return what counts a request that brought messages of one of :data:`TYPES`."""
        if type_ == NORMAL:
            return self.add
        count = self._apart.get(type_)
        if count is None:
            row = self._rows[type_] = _Row()
            total = super().add

            def count(queue_id: int, messages: int, size_bytes: int) -> None:
                row.add(messages, size_bytes)
                total(queue_id, messages, size_bytes)

            self._apart[type_] = count
        return count

    def figures(self) -> Iterator[TypeFigures]:
        """Return what came in, of each type that did."""
        apart = [row for row in self._rows.values() if row.requests]
        requests = sum(self.times) - sum(row.requests for row in apart)
        if requests:
            messages = sum(self.messages) - sum(row.messages for row in apart)
            size_bytes = sum(self.sizes) - sum(row.size_bytes for row in apart)
            yield self._unusual.figures(NORMAL, requests, messages, size_bytes)
        for type_, row in self._rows.items():
            if row.requests:
                yield row.sizes.figures(type_, row.requests, row.messages, row.size_bytes)


class _Sizes:
    """Requests by size, but those of one message of a kilobyte at most, which only their number tells."""

    __slots__ = ("beyond", "buckets")

    def __init__(self) -> None:
        self.buckets = [0] * (len(SIZE_BOUNDS) + 1)
        self.beyond = 0  # bytes of batches that their average message does not have

    def add(self, messages: int, size_bytes: int) -> None:
        each = size_bytes // messages if messages > 0 else 0
        self.buckets[bisect_left(SIZE_BOUNDS, each)] += 1
        self.beyond += size_bytes - each

    def figures(self, type_: int, requests: int, messages: int, size_bytes: int) -> TypeFigures:
        larger = self.buckets[1:]
        buckets = [requests - sum(larger), *larger]
        return TypeFigures(TYPES[type_], messages, size_bytes, buckets, size_bytes - self.beyond)


class _Row:
    """What came in of one type that is counted apart."""

    __slots__ = ("messages", "requests", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.requests = self.messages = self.size_bytes = 0
        self.sizes = _Sizes()

    def add(self, messages: int, size_bytes: int) -> None:
        self.requests += 1
        self.messages += messages
        self.size_bytes += size_bytes
        self.sizes.add(messages, size_bytes)
