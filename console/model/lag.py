"""How far consumer groups are behind, from what brokers say of all their groups (317) or of one (208).

What is not known is not shown as 0: a broker that does not answer is named beside what the others say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from understudy.format.json_dialect import JsonError, loads

MOST_ROWS = 100_000


@attrs.frozen
class QueueLag:
    """One group in one queue.

    Attributes:
        topic, broker, queue_id: the queue.
        end: offset that its next message will get.
        consumed: offset of the group's next message.
        last_ms: when the newest consumed message was stored; 0 unknown.
    """

    topic: str
    broker: str
    queue_id: int
    end: int
    consumed: int
    last_ms: int

    @property
    def behind(self) -> int:
        """Messages that the group has not consumed."""
        return max(self.end - self.consumed, 0)


@attrs.frozen
class TopicLag:
    """One group in one topic, in all queues of one or more brokers.

    Attributes:
        group, topic: whose, and where.
        queues: how many queues.
        behind: messages not consumed in all of them.
        worst: messages not consumed in the queue that has most.
        per_second: messages consumed per second, as brokers say.
        last_ms: of the queues that are behind, the oldest time at which a consumed message was stored; 0 for none.
    """

    group: str
    topic: str
    queues: int
    behind: int
    worst: int
    per_second: float
    last_ms: int

    def with_more(self, other: TopicLag) -> TopicLag:
        """Return both together: those of another broker."""
        times = [each for each in (self.last_ms, other.last_ms) if each]
        return TopicLag(
            self.group,
            self.topic,
            self.queues + other.queues,
            self.behind + other.behind,
            max(self.worst, other.worst),
            self.per_second + other.per_second,
            min(times, default=0),
        )


@attrs.frozen
class LagLook:
    """What the broker that leads a group of brokers said of all its consumer groups.

    Attributes:
        at_ms: when.
        rows: one for each consumer group and topic.
        cut: there were more than :data:`MOST_ROWS`.
        error: why it did not answer, ``""`` when it did; the rows are then those of its answer before.
    """

    at_ms: int
    rows: tuple[TopicLag, ...] = ()
    cut: bool = False
    error: str = ""


def queues_of(stats: Mapping[str, Any]) -> list[QueueLag]:
    """Return the queues in one ConsumeStats body; what is no queue in it is left out."""
    found = []
    for key, entry in (stats.get("offsetTable") or {}).items():
        try:
            queue = loads(key)
            found.append(
                QueueLag(
                    str(queue["topic"]),
                    str(queue["brokerName"]),
                    int(queue["queueId"]),
                    int(entry.get("brokerOffset") or 0),
                    int(entry.get("consumerOffset") or 0),
                    int(entry.get("lastTimestamp") or 0),
                )
            )
        except (JsonError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def look_of(body: Mapping[str, Any], at_ms: int) -> LagLook:
    """Return what a broker said of all its groups (317); called in a thread when it is much."""
    rows: list[TopicLag] = []
    for entry in body.get("consumeStatsList") or ():
        for group, parts in entry.items():
            for part in parts or ():
                if len(rows) >= MOST_ROWS:
                    return LagLook(at_ms, tuple(rows), True)
                row = _row(str(group), part)
                if row is not None:
                    rows.append(row)
    return LagLook(at_ms, tuple(rows))


def _row(group: str, stats: Mapping[str, Any]) -> TopicLag | None:
    queues = queues_of(stats)
    if not queues:
        return None
    late = [queue.last_ms for queue in queues if queue.behind and queue.last_ms]
    return TopicLag(
        group,
        queues[0].topic,
        len(queues),
        sum(queue.behind for queue in queues),
        max(queue.behind for queue in queues),
        float(stats.get("consumeTps") or 0.0),
        min(late, default=0),
    )


@attrs.frozen
class Ranking:
    """All brokers' rows as one table.

    Attributes:
        topics: one row for each consumer group and topic, the farthest behind first.
        groups: one row for each consumer group, the farthest behind first.
    """

    topics: tuple[TopicLag, ...] = ()
    groups: tuple[Mapping[str, Any], ...] = ()


def ranking(looks: Iterable[LagLook]) -> Ranking:
    """Return the table of all brokers; called in a thread when there are many rows."""
    rows = together(looks)
    return Ranking(tuple(rows), tuple(by_group(rows)))


def together(looks: Iterable[LagLook]) -> list[TopicLag]:
    """Return the rows of all brokers, those of one group and topic as one, the farthest behind first."""
    found: dict[tuple[str, str], TopicLag] = {}
    for look in looks:
        for row in look.rows:
            key = row.group, row.topic
            found[key] = found[key].with_more(row) if key in found else row
    return sorted(found.values(), key=lambda row: (-row.behind, row.group, row.topic))


def by_group(rows: Iterable[TopicLag]) -> list[dict[str, Any]]:
    """Return one row for each consumer group with its topics, the farthest behind first."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = found.setdefault(
            row.group, {"group": row.group, "behind": 0, "perSecond": 0.0, "lastAt": 0, "queues": 0, "topics": []}
        )
        group["behind"] += row.behind
        group["perSecond"] += row.per_second
        group["queues"] += row.queues
        times = [each for each in (group["lastAt"], row.last_ms) if each]
        group["lastAt"] = min(times, default=0)
        group["topics"].append(row.topic)
    return sorted(found.values(), key=lambda group: (-group["behind"], group["group"]))
