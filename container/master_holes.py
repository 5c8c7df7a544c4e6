"""A master whose log has a hole gets its bytes back from its slaves while it serves.

A loss of power can take bytes out of the middle of a log that is flushed seldom. A master that comes back through
pre-online asks its slaves first (:mod:`understudy.container.preonline.holes`). One that a controller elects again, as
the only one of its set that is there, or that has no slave that would act for it, serves at once; what it lacks is
asked for as soon as a slave is there. Nothing that comes in meanwhile is touched: a hole lies before it.

Until its slaves were asked, it gives none of them what stands behind the first hole: a slave whose log ends before it
would copy what only stands in for lost messages, and keep that, while another one has them. That takes milliseconds
where slaves answer, and :data:`PATIENCE_SECONDS` at most.

The reference cuts its log in recovery, and with it what slaves have of it.
"""

from __future__ import annotations

from understudy.broker.broker import Broker
from understudy.container.preonline.asking import RefusedError
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.holes import fill, read_log
from understudy.ha.continuity import MismatchError
from understudy.ha.healing import PROBE_BYTES
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.damage import MENDED_AT_ONCE_BYTES

log = get_logger("container.holes")

LOOK_SECONDS = 5.0
"""Longest time until a slave is asked that has registered since it was seen to copy; it doubles while none can help."""
LONGEST_LOOK_SECONDS = 600.0
"""A look compares everything behind the hole, so one that is there for good is not looked at all the time."""
SETTLE_SECONDS = 1.0
"""How long slaves are waited for that may connect, before those are given the log that have nothing to give."""
PATIENCE_SECONDS = 5.0
"""How long slaves that do not answer keep others from getting the log as it is."""


class MasterHoles:
    """See the module.

    Args:
        broker: a master.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.world.clock
        self._told: dict[Member, str] = {}
        self._withheld = True

    async def run(self) -> None:
        """Ask every slave that name servers show, again and again, until nothing is missing."""
        slaves, changed, handled = self._broker.replication.slaves_changed, Signal(), 0
        began, pause = self._clock.monotonic(), LOOK_SECONDS
        slaves.append(changed.set)
        try:
            while self._broker.store.hole is not None:
                answered = [await self._ask(member) for member in await self._slaves()]
                self._give(answered.count(True), self._clock.monotonic() - began)
                with self._clock.move_on_after(SETTLE_SECONDS if self._withheld else pause) as waiting:
                    handled = await changed.wait(handled)
                if not self._withheld:
                    pause = min(2 * pause, LONGEST_LOOK_SECONDS) if waiting.cancelled_caught else LOOK_SECONDS
        finally:
            self._broker.replication.withhold(hole=False)
            slaves.remove(changed.set)

    def _give(self, answered: int, seconds: float) -> None:
        """Give slaves the log as it is, when so many have *answered* that none is left who may have what is missing."""
        serving = self._broker.replication.master
        all_asked = serving is None or answered >= serving.connection_count
        if self._withheld and (seconds > PATIENCE_SECONDS or (all_asked and seconds >= SETTLE_SECONDS)):
            self._withheld = False
            self._broker.replication.withhold(hole=False)

    async def _slaves(self) -> list[Member]:
        broker = self._broker
        views = await broker.member_group.views()
        shown = {Member(*each) for view in views for each in view.items()}
        slaves = sorted(each for each in shown if each.broker_id and each.address != broker.identity.address)
        # Who was master may have what nobody else has, until it follows and that is cut off.
        copying = broker.replication.copying()
        return slaves if copying is None else [each for each in slaves if each.broker_id in copying]

    async def _ask(self, member: Member) -> bool:
        """Ask *member*; return whether it answered."""
        store, answered = self._broker.store, True
        hole, end = store.hole, store.max_physical_offset
        if hole is None or hole >= end:
            return True
        if end - hole > MENDED_AT_ONCE_BYTES:  # not beside the work: it comes back, or copies who is elected next
            self._tell(member, hole, f"{end - hole} bytes follow: it is asked when this broker comes back")
            return True
        try:
            why_not = await fill(self._broker, member, hole, end)
        except (RemotingError, RefusedError, MismatchError, ValueError, OSError) as error:
            why_not, answered = str(error), not isinstance(error, RemotingError)
        if not why_not:
            log.warning("the log has everything again", missing_from=hole, end=end, slave=member)
            await self._broker.history.believe_what_came_back()
        else:
            self._tell(member, hole, why_not)
        return answered

    def _tell(self, member: Member, hole: int, why_not: str) -> None:
        """Say, once and not at every look, why *member* cannot help."""
        if self._told.get(member) != why_not:
            self._told[member] = why_not
            log.warning(
                "messages are missing in the log, and this slave cannot give them",
                missing_from=hole,
                slave=member,
                why=why_not,
            )


async def heal(broker: Broker, hole: int) -> None:
    """Take from the master of a slave that controllers lead what it sent something in place of, at *hole* (bytes)."""
    address = broker.replication.master_address
    if address is None:
        return
    master = Member(0, address)
    try:
        ours = broker.store.slice(hole, PROBE_BYTES)
        theirs, _, _ = await read_log(broker, master, hole)
        why_not = "it has the same"
        if theirs[: len(ours)] != ours:
            why_not = await fill(broker, master, hole, broker.store.max_physical_offset)
    except (RemotingError, RefusedError, MismatchError, ValueError, OSError) as error:
        why_not = str(error)
    log.info("asked for messages that the master had lost", missing_from=hole, master=master, why_not=why_not)
