"""What the broker counts: messages and bytes per topic, group and queue, with windows of a minute, an hour and a day.

Counting costs a few integer additions. Rates are derived when somebody asks, from snapshots that :meth:`run` takes
every ten seconds, ten minutes and hour, and only of counters that moved.

Source: BrokerStatsManager.java, StatsItem.java, StoreStatsService.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from understudy.broker.names import is_system_topic
from understudy.runtime.clock import Clock

SAMPLE_SECONDS = 10
_MINUTE, _HOUR, _DAY = 0, 1, 2
_PERIOD_SAMPLES = (1, 60, 360)
_PERIOD_MS = (10_000, 600_000, 3_600_000)
_KEPT = (7, 7, 25)
_PUT_STEPS_MS = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)

PUT_SETS = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE")
GET_SETS = ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "QUEUE_GET_NUMS", "QUEUE_GET_SIZE")
EVENT_SETS = ("SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS")
BROKER_SETS = (
    "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC",
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC",
)


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
            grow = [0] * (queue_id + 1 - len(self.messages))
            self.messages += grow
            self.sizes += grow
            self.times += grow
            self.add(queue_id, messages, size_bytes)

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


class BrokerStatistics:
    """Every counter of one broker.

    Args:
        clock: for windows and uptime.
        cluster: key of broker-wide sets.

    Attributes:
        get_found, get_missed: pulls that brought messages, and that did not.
        transferred: messages handed to consumers.
        put_failed: sends that the store refused.
    """

    def __init__(self, clock: Clock, cluster: str) -> None:
        self._clock = clock
        self._cluster = cluster
        self.started_ms = clock.wall_ms()
        self.get_found = 0
        self.get_missed = 0
        self.transferred = 0
        self.put_failed = 0
        self.put_slowest_ms = 0
        self.get_slowest_ms = 0
        self._put_times = [0] * (len(_PUT_STEPS_MS) + 1)
        self._last_put_times = list(self._put_times)
        self._puts: dict[str, Counters] = {}
        self._gets: dict[tuple[str, str], Counters] = {}
        self._events: dict[tuple[str, str], Counters] = {}
        self._retired = {"put": [0, 0], "get": [0, 0]}
        self._samples: tuple[deque[int], ...] = tuple(deque(maxlen=kept) for kept in _KEPT)
        self._number = [0, 0, 0]
        self._rates: deque[tuple[int, int, int, int, int]] = deque(maxlen=61)
        self._today = self._day_of(self.started_ms)
        self._mornings = {"put": [0, 0], "get": [0, 0]}
        self._broker = {name: Counters() for name in BROKER_SETS}

    # --- counting ----------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> Counters:
        """Return the put counters of *topic*; keep the object while sending to it."""
        counters = self._puts.get(topic)
        if counters is None:
            counters = self._puts[topic] = Counters()
        return counters

    def group(self, group: str, topic: str) -> Counters:
        """Return the get counters of *group* in *topic*."""
        counters = self._gets.get((topic, group))
        if counters is None:
            counters = self._gets[(topic, group)] = Counters()
        return counters

    def put_took(self, elapsed_ms: int, requests: int = 1) -> None:
        """Count how long *requests* appends took."""
        if elapsed_ms > self.put_slowest_ms:
            self.put_slowest_ms = elapsed_ms
        bucket = 0
        while bucket < len(_PUT_STEPS_MS) and elapsed_ms > _PUT_STEPS_MS[bucket]:
            bucket += 1
        self._put_times[bucket] += requests

    def get_took(self, elapsed_ms: int) -> None:
        """Count how long one read of the store took."""
        if elapsed_ms > self.get_slowest_ms:
            self.get_slowest_ms = elapsed_ms

    def sent_back(self, group: str, topic: str) -> None:
        """Count one message that *group* wants again."""
        self._event("SNDBCK_PUT_NUMS", f"{topic}@{group}")

    def given_up(self, group: str, topic: str) -> None:
        """Count one message that went to the dead letters of *group*."""
        self._event("DLQ_PUT_NUMS", f"{topic}@{group}")

    def topic_deleted(self, topic: str) -> None:
        """Forget *topic*; the broker's totals stay."""
        self._retire("put", topic, self._puts.pop(topic, None))
        for key in [key for key in self._gets if key[0] == topic]:
            self._retire("get", topic, self._gets.pop(key))
        for event in [event for event in self._events if event[1].partition("@")[0] == topic]:
            del self._events[event]

    def group_deleted(self, group: str) -> None:
        """Forget *group*; the broker's totals stay."""
        for key in [key for key in self._gets if key[1] == group]:
            self._retire("get", key[0], self._gets.pop(key))
        for event in [event for event in self._events if event[1].rpartition("@")[2] == group]:
            del self._events[event]

    # --- sampling ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take snapshots until cancelled."""
        self.sample()
        while True:
            await self._clock.sleep(SAMPLE_SECONDS)
            self.sample()

    def sample(self) -> None:
        """Take the snapshots that are due now; called every :data:`SAMPLE_SECONDS`."""
        now_ms = self._clock.wall_ms()
        self._turn_day(now_ms)
        tick = self._number[_MINUTE]
        for name in BROKER_SETS:
            self._sum_broker(name)
        for window in (_MINUTE, _HOUR, _DAY):
            if tick % _PERIOD_SAMPLES[window]:
                continue
            self._samples[window].append(now_ms)
            for counters in self._every():
                counters.sample(window, self._number[window])
            self._number[window] += 1
        self._rates.append((now_ms, self.put_total, self.get_found, self.get_missed, self.transferred))
        if tick % 6 == 0:
            self._last_put_times = self._put_times
            self._put_times = [0] * len(self._put_times)

    # --- asking ------------------------------------------------------------------------------------------------

    @property
    def put_total(self) -> int:
        """Messages stored since the start."""
        return self._retired["put"][0] + sum(sum(counters.messages) for counters in self._puts.values())

    @property
    def put_bytes(self) -> int:
        """Bytes of the messages of topics that still exist."""
        return sum(sum(counters.sizes) for counters in self._puts.values())

    def topic_put_rate(self, topic: str) -> float:
        """Return messages per second sent to *topic* in the last minute."""
        counters = self._puts.get(topic)
        return self._rate(counters, _MINUTE, _messages).per_second if counters else 0.0

    def group_get_rate(self, group: str, topic: str) -> float:
        """Return messages per second that *group* got from *topic* in the last minute."""
        counters = self._gets.get((topic, group))
        return self._rate(counters, _MINUTE, _messages).per_second if counters else 0.0

    def windows(self, stats_name: str, key: str) -> tuple[Rate, Rate, Rate] | None:
        """Return minute, hour and day of one item, or ``None`` when nothing was ever counted under it."""
        found = self._find(stats_name, key)
        if found is None:
            return None
        counters, pick = found
        minute, hour, day = (self._rate(counters, window, pick) for window in (_MINUTE, _HOUR, _DAY))
        return minute, hour, day

    def puts(self) -> Iterator[tuple[str, int, int]]:
        """Return topic, messages and bytes stored since the start, of every topic that was sent to."""
        for topic, counters in self._puts.items():
            yield topic, sum(counters.messages), sum(counters.sizes)

    def gets(self) -> Iterator[tuple[str, str, int, int]]:
        """Return topic, group, messages and bytes given out since the start."""
        for (topic, group), counters in self._gets.items():
            yield topic, group, sum(counters.messages), sum(counters.sizes)

    def events(self, name: str) -> Iterator[tuple[str, str, int]]:
        """Return topic, group and number of the events *name* of :data:`EVENT_SETS` since the start."""
        for (event, key), counters in self._events.items():
            if event == name:
                topic, _, group = key.partition("@")
                yield topic, group, sum(counters.messages)

    def today(self) -> dict[str, int]:
        """Return put and get totals at yesterday's and today's midnight (UTC) and now, by runtime info key."""
        self._turn_day(self._clock.wall_ms())
        info = {}
        for kind, label in (("put", "Put"), ("get", "Get")):
            yesterday, morning = self._mornings[kind]
            info[f"msg{label}TotalYesterdayMorning"] = yesterday
            info[f"msg{label}TotalTodayMorning"] = morning
            info[f"msg{label}TotalTodayNow"] = self._total(kind, system=False)
        return info

    def rates(self) -> dict[str, tuple[float | None, ...]]:
        """Return rates over 10, 60 and 600 s by runtime info key; ``None`` until a window is full."""
        put, found, missed, moved = 1, 2, 3, 4
        windows = (1, 6, 60)
        return {
            "putTps": tuple(self._per_second(samples, put) for samples in windows),
            "getFoundTps": tuple(self._per_second(samples, found) for samples in windows),
            "getMissTps": tuple(self._per_second(samples, missed) for samples in windows),
            "getTotalTps": tuple(self._per_second(samples, found, missed) for samples in windows),
            "getTransferredTps": tuple(self._per_second(samples, moved) for samples in windows),
        }

    def put_time_buckets(self) -> tuple[int, ...]:
        """Return how many appends of the last full minute fell into each of 13 spans of time."""
        return tuple(self._last_put_times)

    # --- inside ------------------------------------------------------------------------------------------------

    def _event(self, name: str, key: str) -> None:
        counters = self._events.get((name, key))
        if counters is None:
            counters = self._events[(name, key)] = Counters()
        counters.add(0, 1, 0)

    def _every(self) -> Iterator[Counters]:
        for table in (self._puts, self._gets, self._events, self._broker):
            yield from table.values()

    def _find(self, stats_name: str, key: str) -> tuple[Counters, Callable[[Snapshot], Counted]] | None:
        if stats_name in PUT_SETS:
            topic, queue = _split_queue(key) if stats_name.startswith("QUEUE") else (key, None)
            counters = self._puts.get(topic)
            return _pick(counters, queue, stats_name)
        if stats_name in GET_SETS:
            rest, _, group = key.rpartition("@")
            topic, queue = _split_queue(rest) if stats_name.startswith("QUEUE") else (rest, None)
            counters = self._gets.get((topic, group))
            return _pick(counters, queue, stats_name)
        if stats_name in EVENT_SETS:
            return _pick(self._events.get((stats_name, key)), None, stats_name)
        if stats_name in BROKER_SETS and key == self._cluster:
            counters = self._broker[stats_name]
            return _pick(counters if counters.times else None, None, stats_name)
        return None

    def _rate(self, counters: Counters, window: int, pick: Callable[[Snapshot], Counted]) -> Rate:
        times = self._samples[window]
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
            begin = pick(counters.at(window, oldest_number))
        end = pick(counters.at(window, last_number))
        total, requests = end.value - begin.value, end.times - begin.times
        elapsed_ms = times[-1] - begin_ms
        return Rate(
            total,
            total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
            total / requests if requests > 0 else 0.0,
        )

    def _per_second(self, samples: int, *columns: int) -> float | None:
        if len(self._rates) <= samples:
            return None
        before, last = self._rates[-1 - samples], self._rates[-1]
        moved = sum(last[column] - before[column] for column in columns)
        elapsed_ms = last[0] - before[0]
        return moved * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0

    def _sum_broker(self, name: str) -> None:
        kind = "put" if name.startswith("BROKER_PUT") else "get"
        total = self._total(kind, system=not name.endswith("_WITHOUT_SYSTEM_TOPIC"))
        counters = self._broker[name]
        known = counters.messages[0] if counters.messages else 0
        if total != known:
            counters.add(0, total - known, 0)
            counters.times[0] = self._times(kind)

    def _total(self, kind: str, *, system: bool) -> int:
        retired = self._retired[kind]
        return (
            retired[0]
            - (0 if system else retired[1])
            + sum(sum(counters.messages) for topic, counters in self._of(kind) if system or not is_system_topic(topic))
        )

    def _times(self, kind: str) -> int:
        return sum(sum(counters.times) for _, counters in self._of(kind))

    def _of(self, kind: str) -> Iterable[tuple[str, Counters]]:
        if kind == "put":
            return self._puts.items()
        return ((topic, counters) for (topic, _), counters in self._gets.items())

    def _retire(self, kind: str, topic: str, counters: Counters | None) -> None:
        if counters is not None:
            total = sum(counters.messages)
            self._retired[kind][0] += total
            if is_system_topic(topic):
                self._retired[kind][1] += total

    def _turn_day(self, now_ms: int) -> None:
        today = self._day_of(now_ms)
        if today != self._today:
            self._today = today
            for kind, mornings in self._mornings.items():
                mornings[:] = [mornings[1], self._total(kind, system=False)]

    @staticmethod
    def _day_of(now_ms: int) -> int:
        return now_ms // 86_400_000


def _messages(snapshot: Snapshot) -> Counted:
    return Counted(sum(snapshot.messages), sum(snapshot.times))


def _sizes(snapshot: Snapshot) -> Counted:
    return Counted(sum(snapshot.sizes), sum(snapshot.times))


def _pick(
    counters: Counters | None, queue: int | None, stats_name: str
) -> tuple[Counters, Callable[[Snapshot], Counted]] | None:
    if counters is None:
        return None
    if queue is None:
        return counters, _sizes if stats_name.endswith("SIZE") else _messages
    if not 0 <= queue < len(counters.times) or not counters.times[queue]:
        return None
    column = 1 if stats_name.endswith("SIZE") else 0

    def of_queue(snapshot: Snapshot) -> Counted:
        if queue >= len(snapshot.times):
            return Counted()
        return Counted(snapshot[column][queue], snapshot.times[queue])

    return counters, of_queue


def _split_queue(key: str) -> tuple[str, int]:
    topic, _, queue = key.rpartition("@")
    return topic, int(queue) if queue.isdecimal() else -1
