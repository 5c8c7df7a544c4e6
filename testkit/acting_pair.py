"""Two broker groups that stand in for each other, in processes of their own, for tests of what a failover does to you.

    with acting_pair() as pair:
        ...                             # any RocketMQ client against pair.namesrv_address
        pair.kill("broker-a")           # SIGKILL to the process with the master of broker-a, and the slave of broker-b;
                                        # or freeze and thaw, or cut (off the network) and mend
        pair.await_acting("broker-a")   # its slave serves readers now; producers go on with broker-b
        pair.restart("broker-a")
        pair.await_complete()           # the master is back and has taken over what its slave did
                                        # or, whatever was done to it: pair.heal()

There are a name server and two processes; each hosts the master of one group and the slave of the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from understudy.remoting.client import open_client
from understudy.runtime.portal import Portal
from understudy.runtime.portal_held import Held
from understudy.runtime.world import real_world
from understudy.testkit.drills.ring_processes import DrillError, ProcessRing

__all__ = ["ActingPair", "DrillError", "acting_pair"]

GROUPS = ("broker-a", "broker-b")
LIMIT_SECONDS = 60.0
_KEYS = {
    "totalReplicas": "2",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "true",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "brokerNotActiveTimeoutMillis": "3000",
}
_LAYOUT = {
    group: [
        {"brokerName": group, "brokerId": "0", "brokerRole": "SYNC_MASTER"},
        {"brokerName": other, "brokerId": "1", "brokerRole": "SLAVE"},
    ]
    for group, other in (GROUPS, GROUPS[::-1])
}
_NOTED_LINES = 100
_NAME_SERVER = {"scanNotActiveBrokerInterval": "500"}


class ActingPair:
    """A running pair; make it with :func:`acting_pair`.

    Every method takes the name of a group, ``broker-a`` or ``broker-b``, and means the process with its master.

    Attributes:
        namesrv_address: the name server, ``host:port``: all a client needs to know.
    """

    def __init__(self, portal: Portal, ring: ProcessRing) -> None:
        self._portal = portal
        self._ring = ring
        self._down: set[str] = set()
        self._frozen: set[str] = set()
        self._cut: set[str] = set()
        self.namesrv_address = ring.name_server

    def make_topic(self, topic: str, queues: int = 2) -> None:
        """Create *topic* in both groups. Raises ``DrillError`` when that does not succeed within a minute."""
        self._portal.call(partial(self._ring.make_topic, topic, queues))

    def kill(self, group: str) -> None:
        """End the process at once (SIGKILL). Raises ``ValueError`` for an unknown group, or one that is down."""
        self._check(group, running=True)
        self._ring.kill(group)
        self._down.add(group)
        self._frozen.discard(group)
        self._cut.discard(group)

    def restart(self, group: str) -> None:
        """Start a process that was killed; it finds its data again. Raises ``ValueError``."""
        self._check(group, running=False)
        self._ring.start(group)
        self._down.discard(group)

    def freeze(self, group: str) -> None:
        """Stop the process where it stands (SIGSTOP): it is silent, and its connections stay. Raises ``ValueError``."""
        self._check(group, running=True)
        self._ring.freeze(group)
        self._frozen.add(group)

    def thaw(self, group: str) -> None:
        """Let a frozen process go on. Raises ``ValueError``."""
        if group not in self._frozen:
            raise ValueError(f"{group} is not frozen")
        self._ring.thaw(group)
        self._frozen.discard(group)

    def cut(self, group: str) -> None:
        """Cut the process off the network: it goes on, alone, and its connections are silent. Raises ``ValueError``."""
        self._check(group, running=True)
        if group in self._cut or group in self._frozen:
            raise ValueError(f"{group} is {'cut off' if group in self._cut else 'frozen'} already")
        self._portal.call(self._ring.cut, group)
        self._cut.add(group)

    def mend(self, group: str) -> None:
        """Connect a process again that was cut off; what was sent meanwhile arrives now. Raises ``ValueError``."""
        if group not in self._cut:
            raise ValueError(f"{group} is not cut off")
        self._portal.call(self._ring.mend, group)
        self._cut.discard(group)

    def heal(self, seconds: float = LIMIT_SECONDS) -> None:
        """Undo every accident that lasts, as after a test that failed in the middle, and wait as `await_complete` does.

        A process that ended by itself is started again, too. Topics, messages and progress stay.

        Raises:
            DrillError: both groups are not complete after *seconds*.
        """
        for group in GROUPS:
            if self._ring.has_ended(group):
                self.kill(group)
        for group in sorted(self._frozen):
            self.thaw(group)
        for group in sorted(self._cut):
            self.mend(group)
        for group in sorted(self._down):
            self.restart(group)
        self.await_complete(seconds)

    def await_acting(self, group: str, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until the slave of *group* acts for its master. Raises ``DrillError`` after *seconds*."""
        self._check(group)

        async def acts() -> bool:
            return await self._ring.active(group, 1)

        self._until(f"the slave of {group} acts", acts, seconds)

    def await_complete(self, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until every broker is registered, every master serves, and its sends wait for its slave's copy.

        Raises ``DrillError`` after *seconds*.
        """
        self._until("both groups are complete", self._ring.complete, seconds)

    def warnings(self) -> list[str]:
        """Return what the processes have logged as warnings and errors, name of the process first."""
        return self._ring.log_lines("WARNING")

    def log_lines(self, level: str = "INFO") -> list[str]:
        """Return what the processes have logged, in the order of time, name of the process first.

        Args:
            level: the least: ``INFO``, ``WARNING`` or ``ERROR``; what is below ``INFO`` they do not log.
        """
        return self._ring.log_lines(level)

    def _until(self, what: str, question: Callable[[], Awaitable[bool]], seconds: float) -> None:
        self._portal.call(partial(self._ring.until, what, question, seconds))

    def _check(self, group: str, *, running: bool | None = None) -> None:
        if group not in GROUPS:
            raise ValueError(f"there is no group {group}; there are: {', '.join(GROUPS)}")
        if running is not None and running == (group in self._down):
            raise ValueError(f"the process of {group} {'is down' if running else 'runs'}")


@asynccontextmanager
async def _open_ring() -> AsyncIterator[ProcessRing]:
    async with open_client(real_world()) as client:
        ring = ProcessRing(client, _LAYOUT, _KEYS, _NAME_SERVER, cuttable=True)
        try:
            try:
                await ring.start_all()
                await ring.until("both groups are complete", ring.complete, LIMIT_SECONDS)
            except DrillError as error:  # what it logged is gone with it
                error.add_note("\n".join(["Logged by its processes:", *ring.log_lines("INFO")[-_NOTED_LINES:]]))
                raise
            yield ring
        finally:
            ring.close()


@contextmanager
def acting_pair() -> Iterator[ActingPair]:
    """Run a pair as long as the block lasts; nothing is left of it afterwards.

    Raises:
        DrillError: it was not there within a minute; a note has what its processes logged.
    """
    with Portal() as portal:
        held = Held(portal, _open_ring())
        ring = held.open().result()
        try:
            yield ActingPair(portal, ring)
        finally:
            held.close().result()
