"""Which brokers live, as this controller hears it: heartbeats, their timeouts, and closed connections.

Pure: time and connections are arguments. Every controller keeps its own table, because brokers send heartbeats to all
of them; nothing here is replicated.

Differs from the reference: a record follows the connection of its newest heartbeat, so that closing an older connection
harms nobody and closing the current one is always noticed; every broker of a connection is judged when it closes; the
reported offsets are the newest ones, not the greatest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable

import attrs

from understudy.controller.election import Live

DEFAULT_TIMEOUT_MS = 10_000
INTERVALS = 3
"""A heartbeat that is older than so many intervals says nothing of now, though its broker is not missed yet."""
UNKNOWN_PATIENCE_SECONDS = 3.0
"""How long a broker that has registered, and was never heard, is given for its first heartbeat."""
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
        interval_seconds: between its heartbeats; 0: it does not say.
        silent: it was missed for its silence: something between it and this controller may be in the way.
        excused_until: it is not missed before, monotonic seconds.
        source: host at the other end of the connection.
    """

    address: str
    heard: float
    timeout_seconds: float
    connection: Hashable
    facts: Live
    interval_seconds: float = 0.0
    alive: bool = True
    end_reason: str = ""
    silent: bool = False
    excused_until: float = -math.inf
    source: str = ""

    @property
    def missed_at(self) -> float:
        """When it is missed (monotonic seconds)."""
        return max(self.heard + self.timeout_seconds, self.excused_until)

    @property
    def fresh_seconds(self) -> float:
        """For how long it says something of now."""
        return min(self.timeout_seconds, INTERVALS * self.interval_seconds or self.timeout_seconds / 2)

    def lives(self, now: float) -> bool:
        return self.alive and now <= self.missed_at

    def is_fresh(self, now: float) -> bool:
        return self.alive and now - self.heard <= self.fresh_seconds


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
        self._newcomers: dict[tuple[str, int], float] = {}
        self._moments: dict[str, float] = {}
        self.known = 0

    def expect(self, broker_name: str, broker_id: int, now: float) -> None:
        """Take a request of a broker as a sign that its first heartbeat is on the way."""
        if self.record(broker_name, broker_id) is None:
            self._expected[broker_name, broker_id] = now

    def registers(self, broker_name: str, broker_id: int, incarnation: str, now: float) -> bool:
        """Know that a broker registers, perhaps for the first time of its life.

        Args:
            broker_name, broker_id: the broker.
            incarnation: of its store; empty when it does not say so.
            now: monotonic seconds.

        Returns:
            Whether its former life is surely over; a living broker may register, too, to see whether it is known.
        """
        record = self.record(broker_name, broker_id)
        if record is not None:
            told = record.facts.incarnation
            over = incarnation != told if incarnation and told else not record.lives(now)
            if over:
                news = record.alive or record.silent
                if record.alive:
                    self._leave(self._records[broker_name][broker_id][0], record.connection)
                record.alive, record.silent, record.end_reason = False, False, "it has registered anew since"
                return news
        self.waits(broker_name, broker_id, now)
        return False

    def waits(self, broker_name: str, broker_id: int, now: float) -> None:
        """Know that a broker has begun its life, and may send no heartbeats: it may wait for others to be elected.

        Not while it is heard: living brokers register again and again.
        """
        record = self.record(broker_name, broker_id)
        if record is None or not record.is_fresh(now):
            self._newcomers.setdefault((broker_name, broker_id), now)

    def heartbeat(self, key: BrokerKey, heartbeat: Heartbeat) -> bool:
        """Take a heartbeat; returns whether the broker was not alive before, or nearly missed.

        When nobody of its group was heard for a while, or ever, the others may be on their way, too: they get a moment
        more, once until they are heard themselves: it may be only this one that is heard more seldom than it is missed.

        Raises:
            TooManyBrokersError: when it is of one broker more than can be watched.
        """
        group = self._records.setdefault(key.broker_name, {})
        self._expected.pop((key.broker_name, key.broker_id), None)
        self._newcomers.pop((key.broker_name, key.broker_id), None)
        now = heartbeat.heard
        unheard = not any(record.lives(now) for _, record in group.values())
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
        self._moments.setdefault(key.broker_name, now + heartbeat.fresh_seconds)
        for _, record in group.values() if unheard else ():
            overdue = record.silent or (record.alive and not record.lives(now))
            if overdue and record.excused_until == -math.inf:
                record.alive, record.silent, record.end_reason = True, False, ""
                record.excused_until = now + record.fresh_seconds
        return former is None or not former[1].is_fresh(now)

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
                if record.alive and not record.lives(now):
                    record.alive, record.silent = False, True
                    record.end_reason = f"silent for {now - record.heard:.1f} s"
                    self._leave(key, record.connection)
                    expired.append(key)
        return expired

    def moments_over(self, now: float) -> list[str]:
        """Return the groups whose brokers have had the moment in which to be heard for the first time, each once."""
        over = [name for name, until in self._moments.items() if -math.inf < until <= now]
        self._moments.update(dict.fromkeys(over, -math.inf))
        return over

    def next_expiry(self, now: float) -> float | None:
        """Return when the next broker is missed, or a moment that it was given is over; ``None``: none will be."""
        times = [since + self._patience(*each) for each, since in self._newcomers.items()]
        times = [time for time in [*times, *self._moments.values()] if time > now]
        times += [record.missed_at for group in self._records.values() for _, record in group.values() if record.alive]
        return min(times, default=None)

    def forget(self, broker_name: str, broker_ids: Collection[int] | None) -> None:
        """Drop the records of cleaned brokers."""
        group = self._records.get(broker_name, {})
        for name, broker_id in list(self._newcomers):
            if name == broker_name and (broker_ids is None or broker_id in broker_ids):
                del self._newcomers[name, broker_id]
        for broker_id in list(group) if broker_ids is None else broker_ids:
            entry = group.pop(broker_id, None)
            if entry is not None:
                self.known -= 1
                self._leave(entry[0], entry[1].connection)
        if not group:
            self._records.pop(broker_name, None)
            self._moments.pop(broker_name, None)

    def alive(self, broker_name: str, now: float) -> dict[int, Live]:
        """Return the living brokers of a group with their facts."""
        return {
            broker_id: record.facts
            for broker_id, (_, record) in self._records.get(broker_name, {}).items()
            if record.lives(now)
        }

    def fresh(self, broker_name: str, now: float) -> dict[int, Live]:
        """Return the brokers of a group that were heard just now, with their facts: who is surely there."""
        return {
            broker_id: record.facts
            for broker_id, (_, record) in self._records.get(broker_name, {}).items()
            if record.is_fresh(now)
        }

    def may_be_cut_off(self, broker_name: str, members: Collection[int], master_id: int, now: float) -> bool:
        """Whether this controller may be the one who is cut off: nobody of a group is heard, and all may live.

        Not when the connection of its master has ended, nor when that one has registered or asked for an election, and
        then sends no heartbeats: it waits for others to be elected.

        Args:
            broker_name: the group.
            members: its registered ids.
            master_id: its master.
            now: monotonic seconds.
        """
        records = {one: record for one in members if (record := self.record(broker_name, one)) is not None}
        if any(record.is_fresh(now) for record in records.values()):
            return False
        if any(record.lives(now) for record in records.values()):
            return True  # they will be heard, or missed
        master = records.get(master_id)
        if master is not None and not master.silent:
            return False
        return not self._has_waited(broker_name, master_id, now)

    def waiting_newcomers(self, now: float) -> list[tuple[str, int]]:
        """Return who has registered a while ago and has sent no heartbeat since."""
        return [each for each in self._newcomers if self._has_waited(*each, now)]

    def _has_waited(self, broker_name: str, broker_id: int, now: float) -> bool:
        since = self._newcomers.get((broker_name, broker_id), math.inf)
        return now >= since + self._patience(broker_name, broker_id)

    def _patience(self, broker_name: str, broker_id: int) -> float:
        record = self.record(broker_name, broker_id)
        return UNKNOWN_PATIENCE_SECONDS if record is None else record.fresh_seconds

    def record(self, broker_name: str, broker_id: int) -> Heartbeat | None:
        """Return the newest news of a broker, dead or alive."""
        entry = self._records.get(broker_name, {}).get(broker_id)
        return None if entry is None else entry[1]

    def maybe_alive(self, broker_name: str, broker_id: int, now: float) -> bool:
        """Whether a broker lives, or may live because this controller has not listened long enough to know."""
        record = self.record(broker_name, broker_id)
        if record is None:
            since = max(self._started, self._expected.get((broker_name, broker_id), self._started))
            if now - since < self._grace:
                return True
            return now < self._moments.get(broker_name, now) and not self._has_waited(broker_name, broker_id, now)
        return record.lives(now)

    def count(self) -> int:
        """Return how many brokers live."""
        return sum(record.alive for group in self._records.values() for _, record in group.values())

    def _leave(self, key: BrokerKey, connection: Hashable) -> None:
        keys = self._by_connection.get(connection)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._by_connection[connection]
