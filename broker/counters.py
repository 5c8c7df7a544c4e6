"""Numbers with a past: counters by queue, snapshots of them, and what they did in the last minute, hour and day.

Source: StatsItem.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

MINUTE, HOUR, DAY = 0, 1, 2
_PERIOD_SAMPLES = (1, 60, 360)
_PERIOD_MS = (10_000, 600_000, 3_600_000)
_KEPT = (7, 7, 25)


class Counted(NamedTuple):
    """Totals since the broker started.

    Attributes:
        value: messages or bytes.
        times: requests that brought them.
    """

    value: int = 0
    times: int = 0


class Rate(NamedTuple):
    """One window.

    Attributes:
        total: messages or bytes in the window.
        per_second: total by the length of the window.
        per_request: total by the number of requests.
    """

    total: int = 0
    per_second: float = 0.0
    per_request: float = 0.0


class Snapshot(NamedTuple):
    """Totals per queue at one moment."""

    messages: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    times: tuple[int, ...] = ()


class Counters:
    """Counters of one topic, or of one group in one topic, by queue. Hot path: :meth:`add`."""

    __slots__ = ("_history", "messages", "sizes", "times")

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.sizes: list[int] = []
        self.times: list[int] = []
        self._history: tuple[deque[tuple[int, Snapshot]], ...] = (deque(), deque(), deque())

    def add(self, queue_id: int, messages: int, size_bytes: int) -> None:
        """Count one request that moved *messages* messages of *size_bytes* bytes together."""
        try:
            self.messages[queue_id] += messages
            self.sizes[queue_id] += size_bytes
            self.times[queue_id] += 1
        except IndexError:
            self._grow(queue_id)
            Counters.add(self, queue_id, messages, size_bytes)

    def _grow(self, queue_id: int) -> None:
        grow = [0] * (queue_id + 1 - len(self.messages))
        self.messages += grow
        self.sizes += grow
        self.times += grow

    def sample(self, window: int, number: int) -> None:
        """Take snapshot *number* of *window* if something moved since the last one."""
        history = self._history[window]
        last = history[-1][1] if history else None
        if last is None or last.times != tuple(self.times):
            history.append((number, Snapshot(tuple(self.messages), tuple(self.sizes), tuple(self.times))))
        oldest = number - _KEPT[window] + 1
        while len(history) > 1 and history[1][0] <= oldest:
            history.popleft()

    def at(self, window: int, number: int) -> Snapshot:
        """Return what stood at snapshot *number* of *window*; zero before the first one."""
        found = Snapshot()
        for taken, snapshot in self._history[window]:
            if taken > number:
                break
            found = snapshot
        return found

    def first(self, window: int) -> int | None:
        """Return the number of the oldest kept snapshot of *window*."""
        history = self._history[window]
        return history[0][0] if history else None


Item = Callable[[Snapshot], Counted]
"""What of a snapshot is asked for: messages or bytes, of one queue or of all."""


class Windows:
    """When the snapshots of all counters were taken, by which the rate of each is measured."""

    def __init__(self) -> None:
        self._taken_ms: tuple[deque[int], ...] = tuple(deque(maxlen=kept) for kept in _KEPT)
        self._number = [0, 0, 0]

    def take(self, now_ms: int, every: Callable[[], Iterable[Counters]]) -> int:
        """Take the snapshots that are due now; called in the shortest of the periods.

        Args:
            now_ms: wall time.
            every: gives all counters.

        Returns:
            How often it was called before.
        """
        tick = self._number[MINUTE]
        for window in (MINUTE, HOUR, DAY):
            if tick % _PERIOD_SAMPLES[window]:
                continue
            self._taken_ms[window].append(now_ms)
            for counters in every():
                counters.sample(window, self._number[window])
            self._number[window] += 1
        return tick

    def rate(self, counters: Counters, window: int, item: Item) -> Rate:
        """Return what *item* of *counters* did in *window*."""
        times = self._taken_ms[window]
        first = counters.first(window)
        if not times or first is None:
            return Rate()
        last_number = self._number[window] - 1
        oldest_number = last_number - len(times) + 1
        if first > oldest_number:  # younger than the window: it starts at zero, one period before its first snapshot
            begin_ms = times[first - oldest_number] - _PERIOD_MS[window]
            begin = Counted()
        elif len(times) < _KEPT[window] and oldest_number == 0:  # the broker is younger than the window
            begin_ms = times[0] - _PERIOD_MS[window]
            begin = Counted()
        else:
            begin_ms = times[0]
            begin = item(counters.at(window, oldest_number))
        end = item(counters.at(window, last_number))
        total, requests = end.value - begin.value, end.times - begin.times
        elapsed_ms = times[-1] - begin_ms
        return Rate(
            total,
            total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
            total / requests if requests > 0 else 0.0,
        )


def messages_of(snapshot: Snapshot) -> Counted:
    """Messages of all queues together."""
    return Counted(sum(snapshot.messages), sum(snapshot.times))


def _sizes_of(snapshot: Snapshot) -> Counted:
    return Counted(sum(snapshot.sizes), sum(snapshot.times))


def find_item(counters: Counters | None, queue: int | None, stats_name: str) -> tuple[Counters, Item] | None:
    """Return what of *counters* the set *stats_name* means, or ``None`` when nothing was counted under it.

    Args:
        counters: of the topic or group, if there are any.
        queue: of which queue; ``None``: of all together.
        stats_name: sets whose name ends with ``SIZE`` mean bytes, others messages.
    """
    if counters is None:
        return None
    if queue is None:
        return counters, _sizes_of if stats_name.endswith("SIZE") else messages_of
    if not 0 <= queue < len(counters.times) or not counters.times[queue]:
        return None
    column = 1 if stats_name.endswith("SIZE") else 0

    def of_queue(snapshot: Snapshot) -> Counted:
        if queue >= len(snapshot.times):
            return Counted()
        return Counted(snapshot[column][queue], snapshot.times[queue])

    return counters, of_queue
