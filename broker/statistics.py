"""What the broker counts: messages and bytes per topic, group and queue, with windows of a minute, an hour and a day.

Counting costs a few integer additions. Rates are derived when somebody asks, from snapshots that :meth:`run` takes
every ten seconds, ten minutes and hour, and only of counters that moved.

Source: BrokerStatsManager.java, StoreStatsService.java.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set

from understudy.broker.counters import DAY, HOUR, MINUTE, Counters, Item, Rate, Windows, find_item, messages_of
from understudy.broker.creation_times import CreationTimes
from understudy.broker.topic_counters import TopicCounters, TypeFigures
from understudy.format.light_queues import is_light
from understudy.format.names import LIGHT_PREFIX, is_system_topic
from understudy.runtime.clock import Clock

SAMPLE_SECONDS = 10
_PUT_STEPS_MS = (0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999)

PUT_SETS = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE")
GET_SETS = ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "QUEUE_GET_NUMS", "QUEUE_GET_SIZE")
EVENT_SETS = (
    *("SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS"),
    *("GROUP_CK_NUMS", "GROUP_ACK_NUMS", "BROKER_CK_NUMS", "BROKER_ACK_NUMS"),
)
BROKER_SETS = (
    "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC",
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC",
)


class BrokerStatistics:
    """Every counter of one broker.

    Args:
        clock: for windows and uptime.
        cluster: key of broker-wide sets.

    Attributes:
        get_found, get_missed: pulls that brought messages, and that did not.
        transferred: messages handed to consumers.
        put_failed: sends that the store refused.
        creations: how long changes of topics and groups take.
        light_together: whether what is read of light queues is counted for all of them together, as for one topic (and
            one group) whose name is their prefix.
    """

    def __init__(self, clock: Clock, cluster: str) -> None:
        self._clock = clock
        self._cluster = cluster
        self.started_ms = clock.wall_ms()
        self.get_found = 0
        self.get_missed = 0
        self.transferred = 0
        self.put_failed = 0
        self.creations = CreationTimes(clock)
        self.light_together: Callable[[], bool] = lambda: False
        self.put_slowest_ms = 0
        self.get_slowest_ms = 0
        self._put_times = [0] * (len(_PUT_STEPS_MS) + 1)
        self._last_put_times = list(self._put_times)
        self._puts: dict[str, TopicCounters] = {}
        self._gets: dict[tuple[str, str], Counters] = {}
        self._events: dict[tuple[str, str], Counters] = {}
        self._retired = {"put": [0, 0], "get": [0, 0]}
        self._windows = Windows()
        self._rates: deque[tuple[int, int, int, int, int]] = deque(maxlen=61)
        self._today = self._day_of(self.started_ms)
        self._mornings = {"put": [0, 0], "get": [0, 0]}
        self._broker = {name: Counters() for name in BROKER_SETS}

    # --- counting ----------------------------------------------------------------------------------------------

    def topic(self, topic: str) -> TopicCounters:
        """Return the put counters of *topic*; keep the object while sending to it."""
        counters = self._puts.get(topic)
        if counters is None:
            counters = self._puts[topic] = TopicCounters()
        return counters

    def group(self, group: str, topic: str) -> Counters:
        """Return the get counters of *group* in *topic*."""
        counters = self._gets.get((topic, group))
        if counters is None:
            if self.light_together() and (is_light(topic) or is_light(group)):
                topic, group = (LIGHT_PREFIX if is_light(name) else name for name in (topic, group))
            counters = self._gets.setdefault((topic, group), Counters())
        return counters

    def put_took(self, elapsed_ms: int, requests: int = 1) -> None:
        """Count how long *requests* appends took."""
        if elapsed_ms > self.put_slowest_ms:
            self.put_slowest_ms = elapsed_ms
        self._put_times[bisect_left(_PUT_STEPS_MS, elapsed_ms)] += requests

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

    def check_point(self, group: str, topic: str) -> None:
        """Count one check point of what *group* popped."""
        self._event("GROUP_CK_NUMS", f"{topic}@{group}")
        self._event("BROKER_CK_NUMS", self._cluster)

    def acknowledged(self, group: str, topic: str, count: int) -> None:
        """Count acknowledgements of what *group* popped."""
        self._event("GROUP_ACK_NUMS", f"{topic}@{group}", count)
        self._event("BROKER_ACK_NUMS", self._cluster, count)

    def topics_deleted(self, topics: Set[str]) -> None:
        """Forget *topics*; the broker's totals stay."""
        for topic in topics:
            self._retire("put", topic, self._puts.pop(topic, None))
        for key in [key for key in self._gets if key[0] in topics]:
            self._retire("get", key[0], self._gets.pop(key))
        for event in [event for event in self._events if event[1].partition("@")[0] in topics]:
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
        for name in BROKER_SETS:
            self._sum_broker(name)
        tick = self._windows.take(now_ms, self._every)
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
        return self._windows.rate(counters, MINUTE, messages_of).per_second if counters else 0.0

    def group_get_rate(self, group: str, topic: str) -> float:
        """Return messages per second that *group* got from *topic* in the last minute."""
        counters = self._gets.get((topic, group))
        return self._windows.rate(counters, MINUTE, messages_of).per_second if counters else 0.0

    def windows(self, stats_name: str, key: str) -> tuple[Rate, Rate, Rate] | None:
        """Return minute, hour and day of one item, or ``None`` when nothing was ever counted under it."""
        found = self._find(stats_name, key)
        if found is None:
            return None
        counters, item = found
        minute, hour, day = (self._windows.rate(counters, window, item) for window in (MINUTE, HOUR, DAY))
        return minute, hour, day

    def puts(self) -> Iterator[tuple[str, TypeFigures]]:
        """Return topic and what was stored since the start, for each type of message that was sent to it."""
        for topic, counters in list(self._puts.items()):
            for figures in counters.figures():
                yield topic, figures

    def gets(self) -> Iterator[tuple[str, str, int, int]]:
        """Return topic, group, messages and bytes given out since the start."""
        for (topic, group), counters in list(self._gets.items()):
            yield topic, group, sum(counters.messages), sum(counters.sizes)

    def events(self, name: str) -> Iterator[tuple[str, str, int]]:
        """Return topic, group and number of the events *name* of :data:`EVENT_SETS` since the start."""
        for (event, key), counters in list(self._events.items()):
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

    def _event(self, name: str, key: str, count: int = 1) -> None:
        counters = self._events.get((name, key))
        if counters is None:
            counters = self._events[(name, key)] = Counters()
        counters.add(0, count, 0)

    def _every(self) -> Iterator[Counters]:
        for table in (self._puts, self._gets, self._events, self._broker):
            yield from table.values()

    def _find(self, stats_name: str, key: str) -> tuple[Counters, Item] | None:
        if stats_name in PUT_SETS:
            topic, queue = _split_queue(key) if stats_name.startswith("QUEUE") else (key, None)
            return find_item(self._puts.get(topic), queue, stats_name)
        if stats_name in GET_SETS:
            rest, _, group = key.rpartition("@")
            topic, queue = _split_queue(rest) if stats_name.startswith("QUEUE") else (rest, None)
            counters = self._gets.get((topic, group))
            return find_item(counters, queue, stats_name)
        if stats_name in EVENT_SETS:
            return find_item(self._events.get((stats_name, key)), None, stats_name)
        if stats_name in BROKER_SETS and key == self._cluster:
            counters = self._broker[stats_name]
            return find_item(counters if counters.times else None, None, stats_name)
        return None

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


def _split_queue(key: str) -> tuple[str, int]:
    topic, _, queue = key.rpartition("@")
    return topic, int(queue) if queue.isdecimal() else -1
