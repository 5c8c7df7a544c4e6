"""Which brokers live, as this controller hears it: heartbeats, their timeouts, and closed connections.

Pure: time and connections are arguments. Every controller keeps its own table, because brokers send heartbeats to all
of them; nothing here is replicated.

Differs from the reference: a record follows the connection of its newest heartbeat, so that closing an older connection
harms nobody and closing the current one is always noticed; every broker of a connection is judged when it closes; the
reported offsets are the newest ones, not the greatest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import attrs

from understudy.controller.election import Live

DEFAULT_TIMEOUT_MS = 10_000
MAX_BROKERS = 100_000


class TooManyBrokersError(Exception):
    """Somebody sends heartbeats of more brokers than any installation has; nothing was changed."""


@attrs.frozen
class BrokerKey:
    """Names one broker."""

    cluster_name: str
    broker_name: str
    broker_id: int


@attrs.define
class Heartbeat:
    """The newest news of one broker.

    Args:
        address: where it can be reached.
        heard: monotonic seconds.
        timeout_seconds: after this silence it counts as dead.
        connection: what it came through.
        facts: what elections look at.
    """

    address: str
    heard: float
    timeout_seconds: float
    connection: Hashable
    facts: Live
    alive: bool = True
    end_reason: str = ""


class Liveness:
    """All heartbeats this controller has heard.

    Args:
        now: monotonic seconds; brokers never heard of get a grace counted from here.
        unknown_grace_seconds: how long a broker that has not been heard yet counts as possibly alive.

    Attributes:
        known: number of brokers of which a heartbeat is kept, dead or alive.
    """

    def __init__(self, now: float, unknown_grace_seconds: float = 10.0) -> None:
        self._started = now
        self._grace = unknown_grace_seconds
        self._records: dict[str, dict[int, tuple[BrokerKey, Heartbeat]]] = {}
        self._by_connection: dict[Hashable, set[BrokerKey]] = {}
        self._expected: dict[tuple[str, int], float] = {}
        self.known = 0

    def expect(self, broker_name: str, broker_id: int, now: float) -> None:
        """Take a request of a broker as a sign that its first heartbeat is on the way."""
        if self.record(broker_name, broker_id) is None:
            self._expected[broker_name, broker_id] = now

    def heartbeat(self, key: BrokerKey, heartbeat: Heartbeat) -> bool:
        """Take a heartbeat; returns whether the broker was not alive before.

        Raises:
            TooManyBrokersError: when it is of one broker more than can be watched.
        """
        group = self._records.setdefault(key.broker_name, {})
        self._expected.pop((key.broker_name, key.broker_id), None)
        former = group.get(key.broker_id)
        if former is None:
            if self.known >= MAX_BROKERS:
                if not group:
                    del self._records[key.broker_name]
                raise TooManyBrokersError(f"{MAX_BROKERS} brokers are watched already")
            self.known += 1
        elif former[1].connection != heartbeat.connection or former[0] != key:
            self._leave(former[0], former[1].connection)
        group[key.broker_id] = (key, heartbeat)
        self._by_connection.setdefault(heartbeat.connection, set()).add(key)
        return former is None or not former[1].alive

    def connection_closed(self, connection: Hashable) -> list[BrokerKey]:
        """Return the brokers whose current connection this was; they count as dead from now on."""
        lost = sorted(self._by_connection.pop(connection, ()), key=lambda key: (key.broker_name, key.broker_id))
        for key in lost:
            record = self._records[key.broker_name][key.broker_id][1]
            record.alive, record.end_reason = False, "its connection closed"
        return lost

    def expire(self, now: float) -> list[BrokerKey]:
        """Return the brokers whose heartbeats have just timed out."""
        expired = []
        for group in self._records.values():
            for key, record in group.values():
                if record.alive and now - record.heard > record.timeout_seconds:
                    record.alive = False
                    record.end_reason = f"silent for {now - record.heard:.1f} s"
                    self._leave(key, record.connection)
                    expired.append(key)
        return expired

    def next_expiry(self) -> float | None:
        """Return when the next heartbeat times out (monotonic seconds), or ``None``."""
        times = [
            record.heard + record.timeout_seconds
            for group in self._records.values()
            for _, record in group.values()
            if record.alive
        ]
        return min(times, default=None)

    def forget(self, broker_name: str, broker_ids: Iterable[int] | None) -> None:
        """Drop the records of cleaned brokers."""
        group = self._records.get(broker_name, {})
        for broker_id in list(group) if broker_ids is None else broker_ids:
            entry = group.pop(broker_id, None)
            if entry is not None:
                self.known -= 1
                self._leave(entry[0], entry[1].connection)
        if not group:
            self._records.pop(broker_name, None)

    def alive(self, broker_name: str, now: float) -> dict[int, Live]:
        """Return the living brokers of a group with their facts."""
        return {
            broker_id: record.facts
            for broker_id, (_, record) in self._records.get(broker_name, {}).items()
            if record.alive and now - record.heard <= record.timeout_seconds
        }

    def record(self, broker_name: str, broker_id: int) -> Heartbeat | None:
        """Return the newest news of a broker, dead or alive."""
        entry = self._records.get(broker_name, {}).get(broker_id)
        return None if entry is None else entry[1]

    def maybe_alive(self, broker_name: str, broker_id: int, now: float) -> bool:
        """Whether a broker lives, or may live because this controller has not listened long enough to know."""
        record = self.record(broker_name, broker_id)
        if record is None:
            since = max(self._started, self._expected.get((broker_name, broker_id), self._started))
            return now - since < self._grace
        return record.alive and now - record.heard <= record.timeout_seconds

    def count(self) -> int:
        """Return how many brokers live."""
        return sum(record.alive for group in self._records.values() for _, record in group.values())

    def _leave(self, key: BrokerKey, connection: Hashable) -> None:
        keys = self._by_connection.get(connection)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._by_connection[connection]
