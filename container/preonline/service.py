"""Does what the handshake of :mod:`handshake` says, for one broker that is not online yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from understudy.broker.absence import DROPPED, OUTDATED
from understudy.broker.admin.announcements import SUCCESSOR, SUCCESSOR_ADDRESS
from understudy.broker.broker import Broker
from understudy.broker.merge import Row, up_to_date, within
from understudy.broker.replicated.table import Merged, ProgressTable
from understudy.container.preonline import handshake
from understudy.container.preonline.asking import QUESTION_TIMEOUT_MS, RefusedError, ask
from understudy.container.preonline.common_log import end_of_log, is_active
from understudy.container.preonline.completion import complete_log
from understudy.container.preonline.copying import not_copying
from understudy.container.preonline.handshake import (
    Behind,
    Done,
    Event,
    Failed,
    Finish,
    Member,
    Members,
    Phase,
    State,
    Unfinished,
)
from understudy.container.preonline.holes import fill_holes, share_of
from understudy.container.preonline.report import Report, TakenOver
from understudy.container.preonline.tables import bring_back, compare, former, handed_out, keep
from understudy.ha.following import HaState
from understudy.ha.master import HaMaster
from understudy.remoting.codes import RequestCode
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("container.preonline")

COPY_SECONDS = 10.0
PAUSE_SECONDS = 1.0
ANNOUNCE_TIMEOUT_MS = 6_000
"""How long a slave may take to believe that this broker comes, by two questions, and to end what it puts elsewhere."""
LOOK_SECONDS = 2.0
"""How long a slave takes a log from another one before it looks again whether there is a master to copy."""
LEARN_ROUNDS = 10
"""How many times a slave is refused by the one that acts until it takes over again what that one knows."""
REMIND_SECONDS = 2.0
"""How often a slave that waits for this broker is told so again: less than it waits after it was told last."""


class PreOnline:
    """One return of one broker.

    Args:
        broker: it runs already, but nobody may find it.
        cause: why it is not online, for the report.

    Attributes:
        state: where the handshake stands.
        heard: a name server has answered, the last time that they were asked.
    """

    def __init__(self, broker: Broker, cause: str) -> None:
        self._broker = broker
        self._clock = broker.world.clock
        self._cause = cause
        self.heard = False
        self._taken: dict[Member, TakenOver] = {}
        self._incomplete: dict[Member, str] = {}
        self._looked: set[tuple[Member, int]] = set()
        self._rests_since = math.inf
        self._began_ms = 0
        self._former: Sequence[Mapping[str, Any]] = ()
        self._steps = trio.CancelScope()
        identity, memory = broker.identity, broker.member_group.memory
        self.state = handshake.begin(
            Member(identity.broker_id, identity.address),
            tuple(Member(*each) for each in (memory.members or {}).items()),
            left_out=tuple(Member(each.broker_id, each.address) for each in memory.left_out),
            lone=memory.lone(identity.broker_id, broker.options.store.total_replicas),
            now=self._clock.monotonic(),
            dropped=cause == DROPPED,
            outdated=cause == OUTDATED,
            patience_seconds=broker.options.broker.pre_online_max_wait_millis / 1000,
            timeout_seconds=broker.options.broker.broker_not_active_timeout_millis / 1000,
        )

    def finish(self) -> None:
        """Go online as soon as possible, whatever is missing; what is under way is given up."""
        self._steps.cancel()

    async def run(self) -> Report:
        """Go through the handshake; return when the broker may register."""
        self._began_ms = self._clock.wall_ms()
        self._former = await former(self._broker)
        with self._steps:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.remind)
                while self.state.phase is not Phase.ONLINE:
                    self._next(await self._do(self.state))
                nursery.cancel_scope.cancel()
        if self.state.phase is not Phase.ONLINE:
            self._next(Finish())
        if self.state.given_up:
            log.error(
                "online without slaves; what only they know is taken over when they answer",
                broker=self._broker.identity.canonical_name,
                slaves=", ".join(map(str, self.state.given_up)),
                why=self.state.trouble,
            )
        report = self._report(self._clock.wall_ms())
        if self._taken:
            await keep(self._broker, report)
        log.info("pre-online done", broker=report.broker, report=report.line())
        return report

    def _report(self, ended_ms: int | None) -> Report:
        name, taken = self._broker.identity.canonical_name, tuple(self._taken.values())
        return Report(name, self._cause, self._began_ms, ended_ms, taken, self.state.trouble, self._former)

    def _next(self, event: Event) -> None:
        before = self.state
        self.state = handshake.step(before, event, self._clock.monotonic())
        failed = isinstance(event, Failed) and before.trouble != self.state.trouble  # it is tried again each second
        if failed or isinstance(event, Finish) or (isinstance(event, Behind) and before.trouble != event.why):
            log.warning(
                "pre-online ended early" if isinstance(event, Finish) else "pre-online step failed",
                broker=self._broker.identity.canonical_name,
                step=before.phase.value,
                member=before.target,
                why=self.state.trouble,
            )

    async def _do(self, state: State) -> Event:
        if state.phase is Phase.PAUSE:
            await self._clock.sleep(PAUSE_SECONDS)
            return Done()
        try:
            if state.phase is Phase.ASK_MEMBERS:
                return await self._ask_members()
            if state.phase is Phase.LEARN:
                return await self._learn(state.reachable)
            assert state.target is not None
            if state.phase is Phase.COMPLETE_LOG:
                return await self._complete_log(state.target, state.waiting)
            if state.phase is Phase.ANNOUNCE:
                return await self._announce(state.target)
            if state.phase is Phase.AWAIT_COPY:
                return await self._await_copy(state.target)
            if state.phase is Phase.TAKE_OVER:
                return await self._take_over(state.target)
            if state.phase is Phase.ASK_MASTER:
                return await self._ask_master(state.target)
            return await self._await_following()
        except ValueError as error:
            return Failed(f"what {state.target or 'a name server'} answered cannot be read: {error}")
        except (RemotingError, RefusedError, OSError) as error:
            return Failed(str(error))

    async def _ask_members(self) -> Event:
        if not self._broker.registration.name_servers:
            return Members(())
        views = await self._broker.member_group.views()
        self.heard = bool(views)
        if not views:
            return Failed("no name server answers")
        return Members(tuple({Member(*each) for view in views for each in view.items()}))

    # --- a master, or a slave that acts from now on ------------------------------------------------------------

    async def _learn(self, members: tuple[Member, ...]) -> Event:
        """Take over what *members* know, who go on acting until they are told; each is asked again then.

        A master takes nothing from one whose log is longer: what it says of the end must wait until the log is
        complete. Nor is anything taken from one that has handed out what it gives back: that is written into the log
        once, when it has stopped, for nobody could take it out again that it was acknowledged, or has come back, since.
        Nobody must go on behind it until then.
        """
        is_slave = self._broker.role.is_slave
        for member in members:
            try:
                if not is_slave and await self._ahead_bytes(member) > 0:
                    continue
                merged = await compare(self._broker, member)
                if is_slave and not any(each.changed for each in merged.values()):
                    continue
                if not await handed_out(self._broker, member):  # asked last: it tells of all that the offsets passed
                    await self._put(member, merged, 0)
            except (RemotingError, RefusedError, ValueError, OSError) as error:
                log.debug("nothing learned yet", member=member, why=error)
        return Done()

    async def remind(self) -> None:
        """Tell whom this broker has told of its return that it is still on its way, until cancelled.

        Another one may take long, or what is to be done before the broker is online.
        """
        while True:
            await self._clock.sleep(REMIND_SECONDS)
            for member in self.state.told:
                try:
                    await self._announce(member, QUESTION_TIMEOUT_MS)
                except (RemotingError, RefusedError, ValueError, OSError) as error:
                    log.debug("not reminded", member=member, why=error)

    async def _complete_log(self, member: Member, others: tuple[Member, ...]) -> Event:
        event: Event = Done()
        is_slave = self._broker.role.is_slave
        until = self._clock.monotonic() + LOOK_SECONDS if is_slave else self.state.patient_until
        for each in await complete_log(self._broker, member, others, until, self._looked):
            if each.why_not and not (each.silent or each.more) and self._incomplete.get(each.member) != each.why_not:
                log.error(
                    "this broker's log ends before that of a slave, which cannot give what is missing",
                    broker=self._broker.identity.canonical_name,
                    own_end=self._broker.store.max_physical_offset,
                    slave=each.member,
                    why=each.why_not,
                )
            self._incomplete[each.member] = each.why_not
            if is_slave and (each.more or (each.silent and each.taken_bytes)):
                event = Unfinished()
            elif each.silent and each.member == member:
                event = Failed(each.why_not)
            elif each.behind and each.member == self.state.shown[0] and await self._goes_on_acting(each.member):
                event = Behind(f"{each.member} acts and has more of the log: {each.why_not}")
                now_and_then = self.state.trouble != event.why or self.state.tries % LEARN_ROUNDS == 0
                if now_and_then and self._broker.slave_sync.synced:
                    await self._learn((each.member,))  # it may be lost before this slave gets on
            if each.taken_bytes:
                self._note(TakenOver(each.member.broker_id, each.member.address, 0, {}, each.taken_bytes), each.member)
                await keep(self._broker, self._report(None))
        return event

    async def _goes_on_acting(self, member: Member) -> bool:
        """Return whether *member* acts, or may do so in a moment.

        It may have to look at its group first. For longer it rests for a reason, and then somebody else must act.
        """
        now = self._clock.monotonic()
        if await is_active(self._broker, member):
            self._rests_since = math.inf
        else:
            self._rests_since = min(self._rests_since, now)
        return now - self._rests_since < self._broker.options.broker.broker_not_active_timeout_millis / 1000

    def _note(self, taken: TakenOver, member: Member) -> None:
        before = self._taken.get(member)
        self._taken[member] = taken if before is None else before.again(taken)

    async def _announce(self, member: Member, timeout_ms: int = ANNOUNCE_TIMEOUT_MS) -> Event:
        identity = self._broker.identity
        if not identity.role.is_slave:
            ext = {
                "masterHaAddress": identity.ha_address,
                "masterFlushOffset": str(self._broker.replication.initial_offset),
                "masterAddress": identity.address,
            }
        else:
            ext = {SUCCESSOR: str(identity.broker_id), SUCCESSOR_ADDRESS: identity.address}
        await ask(self._broker, member, RequestCode.EXCHANGE_BROKER_HA_INFO, ext, timeout_ms)
        return Done()

    async def _await_copy(self, member: Member) -> Event:
        master = self._broker.replication.master
        if master is None:
            return Done()
        ahead, why = await self._ahead_bytes(member), self._incomplete.get(member, "this master has other messages")
        if ahead > 0 and why:  # else it is the beginning of a record, which the slave gives up when it connects
            return Failed(
                f"the log of slave {member.broker_id} at {member.address} is {ahead} bytes longer than this master's: "
                f"it cannot copy, and it cannot give them ({why}). Move the slave's store away and start it again, or "
                "make it the master"
            )
        if await self._copied(master, (*self.state.copying, member), member):
            return Done()
        return Failed(f"slave {member.broker_id} at {member.address} did not begin to copy within {COPY_SECONDS:g} s")

    async def _copied(self, master: HaMaster, wanted: Sequence[Member], member: Member | None = None) -> bool:
        """Wait until *member*, or all of *wanted*, copy the log of *master*; return whether that is so in time."""

        def copies() -> bool:
            connected = [each.address for each in master.status() if each.acknowledged >= 0]
            missing = not_copying(wanted, connected, self.state.known)
            return not missing if member is None else member not in missing

        changed = Signal()
        master.acknowledged.append(changed.set)
        master.membership_changed.append(changed.set)
        try:
            with self._clock.move_on_after(COPY_SECONDS):
                while not copies():
                    with self._clock.move_on_after(1):
                        await changed.wait()
                return True
        finally:
            master.acknowledged.remove(changed.set)
            master.membership_changed.remove(changed.set)
        return False

    async def _ahead_bytes(self, member: Member) -> int:
        return max(await end_of_log(self._broker, member) - self._broker.store.max_physical_offset, 0)

    async def _take_over(self, member: Member) -> Event:
        broker, is_master = self._broker, not self._broker.role.is_slave
        if not is_master and not broker.slave_sync.synced:
            return Failed(f"the tables of the group are not copied from {member.address} yet")
        until = share_of(broker, self.state.patient_until, 1 + len(self.state.waiting))
        filled = await fill_holes(broker, member, until, self._looked)
        if filled and broker.replication.master is not None:  # slaves had to connect anew
            await self._copied(broker.replication.master, self.state.copying)
        # What a slave has less of the log than another one, it may still get from the master.
        ahead = await self._ahead_bytes(member) if is_master else 0
        merged = await compare(broker, member)
        if ahead > 0:
            merged = {
                table: attrs.evolve(each, rows=within(each.rows, self._end_of(table))) if table.in_queues else each
                for table, each in merged.items()
            }
        await bring_back(broker, member)
        await self._put(member, merged, ahead)
        return Done()

    async def _put(self, member: Member, merged: Mapping[ProgressTable, Merged], ahead_bytes: int) -> None:
        """Make ours what was *merged* with what *member* knows, and keep it."""
        merged = {
            table: attrs.evolve(each, rows=up_to_date(each.rows, table.stamped_offsets()))
            for table, each in merged.items()
        }
        for table, each in merged.items():
            table.put(each)
        rows = {table.kind: each.rows for table, each in merged.items()}
        self._note(TakenOver(member.broker_id, member.address, ahead_bytes, rows), member)
        await keep(self._broker, self._report(None))  # first, so that nothing is taken that no report will tell of
        for table, each in merged.items():
            if each.changed:
                await self._broker.persistence.save(table.name)

    def _end_of(self, table: ProgressTable) -> Callable[[str, int], int]:
        return lambda key, queue_id: self._broker.store.max_queue_offset(*table.queue_of(key, queue_id))

    # --- a slave -----------------------------------------------------------------------------------------------

    async def _ask_master(self, master: Member) -> Event:
        answer = await ask(self._broker, master, RequestCode.EXCHANGE_BROKER_HA_INFO, {})
        ext = answer.ext or {}
        flushed = ext.get("masterFlushOffset", "")
        self._broker.replication.learn_flush_offset(int(flushed) if flushed.isdecimal() else 0)
        self._broker.replication.follow(master.address, ext.get("masterHaAddress"))
        return Done()

    async def _await_following(self) -> Event:
        slave = self._broker.replication.slave
        if slave is None:
            return Done()
        following = trio.Event()

        def look(state: HaState) -> None:
            if state is HaState.TRANSFER:
                following.set()

        slave.state_changed.append(look)
        look(slave.state)
        try:
            with self._clock.move_on_after(COPY_SECONDS):
                await following.wait()
                return Done()
        finally:
            slave.state_changed.remove(look)
        return Failed(f"the master's log was not reached within {COPY_SECONDS:g} s")


def rows_of(report: Report) -> list[Row]:
    """Return every row of *report*, for people and for drills."""
    return [row for each in report.slaves for row in each.rows]
