"""Messages per second from the differences of brokers' counters, kept for some minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from understudy.console.model.groups import Group

MOST_POINTS = 600
_LONGEST_GAP_MS = 15_000
_COUNTERS = ("msgPutTotalTodayNow", "msgGetTotalTodayNow")


@attrs.frozen
class Count:
    """Counters of one broker at one time."""

    at_ms: int
    put: float
    got: float


@attrs.frozen
class Point:
    """One moment of the whole cluster.

    Attributes:
        at_ms: when.
        put_per_second: messages taken from producers; ``None`` unknown.
        got_per_second: messages given to consumers; ``None`` unknown.
        latency_ms: below which 99 of 100 messages were stored during the last minute, of the slowest broker; ``None``
            when nothing was, of which brokers say 0.
    """

    at_ms: int
    put_per_second: float | None
    got_per_second: float | None
    latency_ms: float | None


@attrs.frozen
class Rates:
    """What is known of rates.

    Attributes:
        counts: the newest counters by address.
        now: put and got per second of each broker by address, as of its newest two answers.
        points: of the cluster, the oldest first.
    """

    counts: Mapping[str, Count] = attrs.field(factory=dict)
    now: Mapping[str, tuple[float, float]] = attrs.field(factory=dict)
    points: tuple[Point, ...] = ()


def observe(known: Rates, groups: Mapping[str, Group], at_ms: int) -> Rates:
    """Return the rates after the answers of all brokers that lead a group at *at_ms*."""
    counts: dict[str, Count] = {}
    now: dict[str, tuple[float, float]] = {}
    latencies: list[float] = []
    for group in groups.values():
        leader = group.members.get(group.leader)
        if leader is None or leader.answer is None or not leader.answers:
            continue
        put, got = (leader.answer.number(name) for name in _COUNTERS)
        if put is None or got is None:
            continue
        count = counts[leader.address] = Count(leader.answer.at_ms, put, got)
        before = known.counts.get(leader.address)
        if before is not None and before.at_ms == count.at_ms:
            counts[leader.address] = before
            if leader.address in known.now:
                now[leader.address] = known.now[leader.address]
        elif before is not None and (rate := _rate(before, count)) is not None:
            now[leader.address] = rate
        latency = leader.answer.number("putLatency99")
        if latency:
            latencies.append(latency)
    point = Point(
        at_ms,
        _total(rate[0] for rate in now.values()),
        _total(rate[1] for rate in now.values()),
        max(latencies, default=None),
    )
    return Rates(counts, now, (*known.points, point)[-MOST_POINTS:])


def _rate(before: Count, after: Count) -> tuple[float, float] | None:
    """Return both rates; ``None`` when the broker began anew in between, or was not asked for long."""
    elapsed_ms = after.at_ms - before.at_ms
    if not 0 < elapsed_ms <= _LONGEST_GAP_MS or after.put < before.put or after.got < before.got:
        return None
    return (after.put - before.put) * 1000 / elapsed_ms, (after.got - before.got) * 1000 / elapsed_ms


def _total(rates: Iterable[float]) -> float | None:
    found = list(rates)
    return sum(found) if found else None
