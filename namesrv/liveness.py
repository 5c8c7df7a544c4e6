"""Who is gone: unregistrations in batches, closed connections at once, silence at its deadline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import trio

from understudy.namesrv.records import Member, MinBrokerIdNotice
from understudy.namesrv.route_table import RouteTable
from understudy.remoting.connection import Connection
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("namesrv.liveness")

# When the timer itself fires this late, this process was not running (stopped, swapped out, a moved machine) and
# heartbeats may lie unread: brokers get GRACE_MS, in which their frames are read, before silence counts.
STALL_MS = 500
GRACE_MS = 1000


class Liveness:
    """Removes brokers from a route table, each for one of the three reasons.

    Nothing here polls: the expiry task sleeps until the earliest deadline, and registrations wake it only when theirs
    is earlier still.

    Args:
        table: changed by this object only between two events.
        clock: monotonic time.
        tell: takes the notices that removals lead to; must not wait.
    """

    def __init__(self, table: RouteTable, clock: Clock, tell: Callable[[tuple[MinBrokerIdNotice, ...]], None]) -> None:
        self._table = table
        self._clock = clock
        self._tell = tell
        self._queue: list[Member] = []
        self._queued = Signal()
        self._asleep_until_ms: int | None = None
        self._earlier = Signal()

    def now_ms(self) -> int:
        """Return the monotonic time the table's deadlines are in."""
        return int(self._clock.monotonic() * 1000)

    # -- unregistration -----------------------------------------------------------------------------------------

    def unregister(self, member: Member, capacity: int) -> bool:
        """Queue *member* for removal; return whether there was room. Requests of one moment are removed together."""
        if len(self._queue) >= capacity:
            return False
        self._queue.append(member)
        self._queued.set()
        return True

    async def run_unregistrations(self) -> None:
        """Remove what is queued, all of it in one step, whenever something is."""
        while True:
            if not self._queue:
                await self._queued.wait()
            batch, self._queue = self._queue, []
            self._remove(batch, "unregistered")

    # -- connections --------------------------------------------------------------------------------------------

    def on_close(self, connection: Connection) -> None:
        """Remove every broker that registered over *connection*, at once.

        Differs: the reference removes one of them, by chance, and leaves the others to their timeout.
        """
        if trio.current_effective_deadline() == -math.inf:
            return  # cancelled from outside: this name server ends, the brokers do not
        lost = self._table.lost_with(connection)
        if lost:
            self._remove(lost, "connection closed")

    # -- silence ------------------------------------------------------------------------------------------------

    def registered(self, deadline_ms: int) -> None:
        """Note that a member with this deadline exists; wakes the timer if it would sleep longer."""
        if self._asleep_until_ms is None or deadline_ms < self._asleep_until_ms:
            self._earlier.set()

    async def run_expiry(self) -> None:
        """Remove members when they have been silent for longer than they said they may."""
        while True:
            deadline_ms = self._asleep_until_ms = self._table.next_deadline_ms()
            if deadline_ms is None:
                await self._earlier.wait()
                continue
            wait_ms = max(deadline_ms + 1 - self.now_ms(), 0)
            with self._clock.move_on_after(wait_ms / 1000):
                await self._earlier.wait()
                continue
            if self.now_ms() - deadline_ms > STALL_MS and self._table.next_deadline_ms() == deadline_ms:
                log.warning("woke up late, waiting for heartbeats before counting silence", grace_ms=GRACE_MS)
                await self._clock.sleep(GRACE_MS / 1000)
            silent = self._table.silent(self.now_ms())
            if silent:
                self._remove(silent, "silent")
                self._close_unused(silent)

    def _close_unused(self, silent: Iterable[Member]) -> None:
        # Differs: the reference closes the connection whoever else is on it; a container's other brokers stay.
        in_use = {id(member.connection) for member in self._table.live.values()}
        for member in silent:
            connection = member.connection
            if isinstance(connection, Connection) and id(connection) not in in_use:
                connection.close(f"broker {member.name}:{member.broker_id} was silent for {member.timeout_ms} ms")

    def _remove(self, members: list[Member], reason: str) -> None:
        current = [member for member in members if self._table.live.get(member.key) is member]
        notices = self._table.remove(current)
        for member in current:
            log.info(
                "broker gone",
                broker=member.name,
                id=member.broker_id,
                address=member.address,
                cluster=member.cluster,
                reason=reason,
                silent_ms=self.now_ms() - member.seen_ms,
            )
        self._tell(notices)
