"""A master whose log has a hole gets its bytes back from its slaves while it serves.

A loss of power can take bytes out of the middle of a log that is flushed seldom. A master that comes back through
pre-online asks its slaves first (:mod:`understudy.container.preonline.holes`). One that a controller elects again, as
the only one of its set that is there, or that has no slave that would act for it, serves at once; what it lacks is
asked for as soon as a slave is there. Nothing that comes in meanwhile is touched: a hole lies before it.

Until its slaves were asked, it takes no messages: where the end of a queue is missing, they would get the queue offsets
of those that come back, which nobody could read any more. Nor does it give any slave what stands behind the first hole:
one whose log ends before it would copy what only stands in for lost messages, and keep that, while another one has
them. That takes milliseconds where slaves answer, and :data:`PATIENCE_SECONDS` at most.

The reference cuts its log in recovery, and with it what slaves have of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.replication import Replication
from understudy.container.passed import begin_passing
from understudy.container.preonline.asking import RefusedError
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.holes import fill, read_log
from understudy.container.put_again import put_again
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
MOST_BYTES = 1 << 30
"""What follows a hole is compared before messages are taken, in :data:`PATIENCE_SECONDS`: more cannot be."""
SOONER = 8
"""When a slave has come, those that could not help before are asked after this part of their pause."""
SETTLE_SECONDS = 1.0
"""How long slaves are waited for that may connect, before those are given the log that have nothing to give."""
LEAST_SECONDS = 10.0
LEAST_BYTES_PER_SECOND = 256 << 10
"""Who gives more slowly keeps a look open no longer than one of this rate would, and those few seconds; then others
are asked. What follows a hole is read twice: to be compared, and to be written."""
DOUBLED_MOST = 5
"""Who had too little time has twice as much the next time, so often: it may be alone in having what is missing."""
PATIENCE_SECONDS = 5.0
"""How long slaves that do not answer keep others from getting the log as it is, and clients from sending."""


@attrs.define
class Fruitless:
    """A look at the log of a slave that could not give everything.

    Attributes:
        hole: where the first hole was (bytes).
        asked_at: monotonic seconds.
        pause: seconds until it is asked again.
        due: monotonic seconds; that, or sooner when a slave has come.
    """

    hole: int
    asked_at: float
    pause: float
    due: float


class Newcomers:
    """The slaves that come: those that say how far their logs go. Who knocks at the port only is none.

    Args:
        replication: of a master.

    Attributes:
        came: set by each of them.
    """

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._known: frozenset[str] = frozenset()
        self._all_known = False
        self.came = Signal()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hear of slaves inside the block."""
        changed, reported = self._replication.slaves_changed, self._replication.copies_changed
        self._look()
        changed.append(self._changed)
        reported.append(self._reported)
        try:
            yield
        finally:
            changed.remove(self._changed)
            reported.remove(self._reported)

    @property
    def count(self) -> int:
        """How many are there now."""
        self._look()
        return len(self._known)

    def _changed(self) -> None:
        self._all_known = False

    def _reported(self) -> None:
        if not self._all_known:  # else this is one of many reports
            self._look()

    def _look(self) -> None:
        master = self._replication.master
        found = [] if master is None else master.status()
        known = frozenset(each.address for each in found if each.acknowledged >= 0)
        self._all_known = len(known) == len(found)
        if known - self._known:
            self.came.set()
        self._known = known


class MasterHoles:
    """See the module.

    Args:
        broker: a master.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.world.clock
        self._told: dict[Member, str] = {}
        self._fruitless: dict[Member, Fruitless] = {}
        self._slow = Counter[Member]()
        self._withheld = True
        self._began = -math.inf

    async def run(self) -> None:
        """Ask every slave that name servers show, again and again, until nothing is missing."""
        await begin_passing(self._broker)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._give_in_time)
                await self._ask_until_whole()
                nursery.cancel_scope.cancel()
        finally:
            self._give()
            await put_again(self._broker)

    async def _ask_until_whole(self) -> None:
        newcomers, handled, pause = Newcomers(self._broker.replication), 0, LOOK_SECONDS
        began = self._began = self._clock.monotonic()
        with newcomers.watched():
            while self._broker.store.hole is not None or self._broker.store.came_back():
                answered = await self._ask_those_due()
                if not self._withheld:
                    await put_again(self._broker)
                if answered >= newcomers.count and self._clock.monotonic() - began >= SETTLE_SECONDS:
                    self._give()  # none is left who may have what is missing
                with self._clock.move_on_after(SETTLE_SECONDS if self._withheld else self._wait(pause)) as waiting:
                    handled = await newcomers.came.wait(handled)
                if not waiting.cancelled_caught:
                    pause = LOOK_SECONDS
                    self._bring_forward()
                elif not self._withheld:
                    pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    async def _give_in_time(self) -> None:
        """However long those take that are asked, slaves and clients do not wait for it."""
        await self._clock.sleep(PATIENCE_SECONDS)
        self._give()

    async def _ask_those_due(self) -> int:
        """Ask the slaves whose turn it is; return how many have answered, now or before."""
        members, answered = await self._slaves(), 0
        self._fruitless = {member: each for member, each in self._fruitless.items() if member in members}
        for number, member in enumerate(members):
            each = self._fruitless.get(member)
            due = each is None or each.hole != self._broker.store.hole or each.due <= self._clock.monotonic()
            if not due or await self._ask(member, len(members) - number):
                answered += 1
        return answered

    def _wait(self, pause: float) -> float:
        """Return for how many seconds nobody is asked, *pause* at most."""
        hole, now = self._broker.store.hole, self._clock.monotonic()
        if hole is None:
            return pause  # nobody is to be asked any more, and what came back and was refused is tried again
        dues = [each.due if each.hole == hole else now for each in self._fruitless.values()]
        return max(min([now + pause, *dues]) - now, 0)

    def _bring_forward(self) -> None:
        """Ask sooner, for a slave has come: who it is its connection does not say."""
        for each in self._fruitless.values():
            each.due = min(each.due, each.asked_at + max(each.pause / SOONER, LOOK_SECONDS))

    def _give(self) -> None:
        """Give slaves the log as it is from now on, and take messages."""
        if self._withheld:
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

    async def _ask(self, member: Member, left: int) -> bool:
        """Ask *member*, the first of *left*, which share the time before messages are taken; return if it answered."""
        answered, hole, end = True, self._broker.store.hole, self._broker.store.max_physical_offset
        if hole is None:
            return True
        until = self._until(member, end - hole, left)
        if until is None:
            why_not = "so much follows that no message could be taken for long: it is asked at the next start, or never"
        else:
            try:
                why_not = await fill(self._broker, member, hole, end, until)
            except (RemotingError, RefusedError, MismatchError, ValueError, OSError) as error:
                why_not, answered = str(error), not isinstance(error, RemotingError)
        if why_not and until is not None and self._clock.monotonic() >= until:
            self._slow[member] += 1
        self._note(member, hole, fruitless=answered and bool(why_not))
        if not why_not:
            log.warning("the log has everything again", missing_from=hole, end=end, slave=member)
            await self._believe()
        else:
            self._tell(member, hole, why_not)
        return answered

    async def _believe(self) -> None:
        """Count progress again that was made in what came back; it counts also while the disk does not take it."""
        try:
            await self._broker.history.believe_what_came_back()
        except OSError as error:
            log.error("progress in messages that came back is not on the disk yet", why=error)

    def _until(self, member: Member, follow: int, left: int) -> float | None:
        """Return until when (monotonic seconds) to ask for a hole that so many bytes *follow*; ``None``: not now.

        No message is taken while what follows is entered again. Of much that is done only as long as none is taken yet.
        """
        now, ends = self._clock.monotonic(), self._began + PATIENCE_SECONDS
        first = self._broker.replication.takes_nothing_yet and now < ends
        if follow <= MENDED_AT_ONCE_BYTES:
            seconds = LEAST_SECONDS + 2 * follow / LEAST_BYTES_PER_SECOND
            until = now + seconds * (1 << min(self._slow[member], DOUBLED_MOST))
            return min(until, now + (ends - now) / left) if first and left > 1 else until
        return ends if first and follow <= MOST_BYTES else None

    def _note(self, member: Member, hole: int, *, fruitless: bool) -> None:
        """Take note of whether *member* could give something: who could not is asked less and less often."""
        before, now = self._fruitless.pop(member, None), self._clock.monotonic()
        if fruitless:
            again = before is not None and before.hole == hole
            pause = min(2 * before.pause, LONGEST_LOOK_SECONDS) if before is not None and again else LOOK_SECONDS
            self._fruitless[member] = Fruitless(hole, now, pause, now + pause)

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
        ours = bytes(broker.store.slice(hole, PROBE_BYTES))
        theirs, _, _ = await read_log(broker, master, hole, stand_ins=True)
        why_not = "it has the same"
        if theirs[: len(ours)] != ours:
            why_not = await fill(broker, master, hole, broker.store.max_physical_offset, stand_ins=True)
    except (RemotingError, RefusedError, MismatchError, ValueError, OSError) as error:
        why_not = str(error)
    log.info("asked for messages that the master had lost", missing_from=hole, master=master, why_not=why_not)
