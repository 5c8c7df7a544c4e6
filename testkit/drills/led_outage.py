"""A led group loses its master and gets it back: what happens when, in seconds after the loss.

====  ==========================================================================
T0    the master's process has ended, or stands still
T1    the controllers have another master
T2    the route leads to it
T3    it has acknowledged the first message that was sent to it since then
T4    the former master's port is open again, or its process goes on
T5    the former master is in the sync-state set again: it follows
====  ==========================================================================
"""

from __future__ import annotations

import enum
import signal

import attrs
import trio

from understudy.remoting.errors import RemotingError
from understudy.testkit.drills.controller import MEMBERS
from understudy.testkit.drills.led_replicas import ASK_MS, REPLICAS, LedReplicas, probe
from understudy.testkit.drills.ring_processes import DrillError

LIMIT_SECONDS = 60.0
START_SECONDS = 120.0
PATIENCE_SECONDS = 15.0
LONGER_BYTES = 24 << 20
"""More than two sockets between master and slave hold: what is in them, a slave gets although its master is dead."""
_BODY, _AT_ONCE = b"x" * 250_000, 16


class Fault(enum.Enum):
    """What happens to a master."""

    KILLED = "SIGKILL"
    FROZEN = "SIGSTOP"
    OUTGROWN = "SIGKILL, with a log longer than the others',"


@attrs.frozen
class Outage:
    """When it happened, in seconds after T0.

    Attributes:
        signalled: the signal was sent, at most 0.
        decided: T1.
        routed: T2.
        accepted: T3.
        started: the former master's process was started again, or went on.
        up: T4.
        back: T5.
    """

    signalled: float
    decided: float
    routed: float
    accepted: float
    started: float
    up: float
    back: float


async def play_outage(group: LedReplicas, fault: Fault) -> Outage:
    """Have the master of *group* meet *fault*, and come back once there is another one; say what happens.

    Returns:
        When.

    Raises:
        DrillError: something did not happen in time, or the log of the former master was not longer than it should be.
    """
    return await _Played(group, fault).play()


class _Played:
    """One outage."""

    def __init__(self, group: LedReplicas, fault: Fault) -> None:
        self._group = group
        self._fault = fault
        self._stands_still = False
        self._number = -1

    async def play(self) -> Outage:
        group, self._number = self._group, await self._group.master()
        before = await group.group(MEMBERS)
        if before is None or before[0] is None:
            raise DrillError("nobody tells of the group's master before it is lost")
        former_id, epoch = before[0], before[1]
        end = await self._outgrow() if self._fault is Fault.OUTGROWN else None
        signalled = self._strike()
        decided = await self._decided(epoch)
        heir = await group.master()
        await group.until("the new master in the route", lambda: group.shown(heir), LIMIT_SECONDS)
        routed = group.happened("T2", f"the route leads to replica {heir} ({group.kinds[heir]})")
        accepted = await self._accepted(heir)
        if end is not None and await group.log_end(heir) >= end:
            raise DrillError(f"the new master has all {end} bytes of the former one")
        await group.why(await group.wait_leader(MEMBERS))
        started, up = await self._come_back()
        await group.rejoin(former_id)
        back = group.happened("T5", f"replica {self._number} is in the set again: {await group.now()}")
        if end is not None:
            await self._cut(heir, end)
        return Outage(signalled, decided, routed, accepted, started, up, back)

    def _strike(self) -> float:
        """Kill or stop the master: T0. Return when its signal was sent."""
        group, name, clock = self._group, f"broker{self._number}", self._group.world.clock
        sent_at = clock.monotonic()
        if self._fault is Fault.FROZEN:
            group.processes.signal(name, signal.SIGSTOP)
            self._stands_still = True
        else:
            group.processes.kill(name)
        group.fault(f"T0 {self._fault.value} of the master, replica {self._number} ({group.kinds[self._number]})")
        signalled = sent_at - clock.monotonic()
        if self._fault is Fault.OUTGROWN:
            self._signal_slaves(signal.SIGCONT)
        return signalled

    async def _decided(self, epoch: int) -> float:
        group, former = self._group, self._group.broker_ports[self._number]

        async def decided() -> bool:
            now = await group.group(MEMBERS)
            return now is not None and now[0] is not None and now[1] > epoch and now[3] != former

        await group.until("a new master", decided, LIMIT_SECONDS)
        return group.happened("T1", f"decided: {await group.now()}")

    async def _accepted(self, heir: int) -> float:
        group = self._group
        if self._fault is Fault.FROZEN and not await self._soon_accepts(heir):
            # A real slave that was told of a new master asks a name server for its address, often before that one is
            # registered; so it connects to the former one, and waits for its word as long as that stands still.
            group.happened("", "nothing is acknowledged: slaves wait at the port of the master that stands still")
            self._go_on()
        await group.until("an accepted send", lambda: group.accepts(heir), LIMIT_SECONDS)
        text = f"replica {heir} ({group.kinds[heir]}) has acknowledged a message"
        if self._fault is Fault.FROZEN:
            text += f"; controllerHeartBeatTimeoutMills is {group.timeout_ms}"
        return group.happened("T3", text)

    async def _soon_accepts(self, number: int) -> bool:
        with trio.move_on_after(PATIENCE_SECONDS):
            await self._group.until("an accepted send", lambda: self._group.accepts(number), 2 * PATIENCE_SECONDS)
            return True
        return False

    async def _come_back(self) -> tuple[float, float]:
        """Return when the former master was started, or went on, and when it was up: T4."""
        group, number = self._group, self._number
        if self._fault is Fault.FROZEN:
            text = f"replica {number} goes on"
            group.begin(text)
            if self._stands_still:
                self._go_on()
            up = group.happened("T4", text)
            return up, up
        text = f"replica {number} is started again"
        group.begin(text)
        group.start_replica(number)
        started = group.happened("", text)
        await group.until(f"an open port of replica {number}", lambda: group.listens(number), START_SECONDS)
        return started, group.happened("T4", f"replica {number} listens")

    def _go_on(self) -> None:
        self._group.processes.signal(f"broker{self._number}", signal.SIGCONT)
        self._stands_still = False

    # -- a longer log --------------------------------------------------------------------------------------------

    def _signal_slaves(self, number: signal.Signals) -> None:
        for replica in range(REPLICAS):
            if replica != self._number:
                self._group.processes.signal(f"broker{replica}", number)

    async def _outgrow(self) -> int:
        """Have the master write what its slaves do not get, for they stand still; return the end of its log."""
        group = self._group
        wanted = await group.log_end(self._number) + LONGER_BYTES
        self._signal_slaves(signal.SIGSTOP)

        async def grown() -> bool:
            for _ in range(_AT_ONCE):
                try:
                    await group.client.invoke_oneway(group.address(self._number), probe(_BODY, oneway=True), ASK_MS)
                except RemotingError:
                    return False
            return await group.log_end(self._number) >= wanted

        await group.until("a master with a longer log", grown, LIMIT_SECONDS)
        return await group.log_end(self._number)

    async def _cut(self, heir: int, end: int) -> None:
        """Wait until the former master has the log of the new one, which is shorter than its own was."""
        group = self._group

        async def cut() -> bool:
            return await group.log_end(self._number) == await group.log_end(heir) < end

        await group.until("the log of the new master in the former one", cut, LIMIT_SECONDS)
        group.happened("", f"the log of replica {self._number} ended at byte {end}: it is cut")
