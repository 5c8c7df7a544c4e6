"""The rules of a broker's role in a group that may act: what decides, what it sees, and what comes of it.

Whatever the decision depends on wakes the session: a new view of the group, a master that appears or announces itself,
tables that were copied, the end of pre-online, an absence that was noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from understudy.broker.absence import STARTED
from understudy.broker.broker import Broker
from understudy.broker.inner import InnerMessage
from understudy.broker.pop.popped import Popped
from understudy.broker.services import Decision, Decisions, Run, Service
from understudy.broker.storage import config_path
from understudy.broker.topics import TopicConfig
from understudy.broker.transactions import judgement
from understudy.container.acting import Situation, acts, services
from understudy.container.failover_modules import import_for_failover
from understudy.container.listening import Listening
from understudy.container.log_topics import LogTopics
from understudy.container.lost_bytes import begin_passing, end_passing, fill_holes, heal, may_come, put_again, skipped
from understudy.remoting.codes import ResponseCode
from understudy.runtime.log import get_logger
from understudy.runtime.table import load_table
from understudy.store.status import PutStatus

if TYPE_CHECKING:
    from understudy.container.escape.bridge import Bridge
    from understudy.container.escape.halves import HalfEscapes
    from understudy.container.escape.neighbour import Beside
    from understudy.container.preonline import handshake
    from understudy.container.preonline.late import LateTakeOver
    from understudy.container.preonline.report import Report
    from understudy.container.preonline.service import PreOnline

log = get_logger("container.role")


class RoleServices:
    """The rules of one broker for as long as it has one role.

    Args:
        broker: its parts exist, nothing of this role runs yet.
        look: asks for new decisions.
        beside: returns the brokers that run in the same process now, masters first.

    Attributes:
        decisions: what runs and what does not, with reasons; empty before the first.
        report: of the newest pre-online, ``None`` before.
        acting_since_ms: wall time since which a slave acts, ``None`` while it does not.
    """

    def __init__(self, broker: Broker, look: Callable[[], None], beside: Callable[[], Sequence[Beside]]) -> None:
        self._broker = broker
        self._look = look
        self._beside = beside
        self._bridge: Bridge | None = None
        self._halves: HalfEscapes | None = None
        self._log_topics = LogTopics(broker)
        self._topics_missing = False
        self._clock = broker.world.clock
        self._returning: PreOnline | None = None
        self._late: LateTakeOver | None = None
        self._listening = Listening(broker, lambda: self.acting_since_ms is not None)
        self.decisions: dict[Service, Decision] = {}
        self.report: Report | None = None
        self.acting_since_ms: int | None = None
        cause = STARTED if broker.role.epoch == 0 else f"the role has changed: {broker.role}"
        broker.presence.began(cause)
        broker.replication.withhold(hole=True)  # until slaves were asked for what is missing
        if not broker.presence.isolated:
            broker.replication.take_nothing_yet()
        broker.replication.healing = partial(heal, broker)
        broker.slave_sync.before_copying = partial(end_passing, broker)  # a former master's progress is another's now

    def services(self) -> Mapping[Service, Run]:
        """Return what runs those services that only the host knows."""
        return {
            Service.ABSENCE_WATCH: self._broker.presence.run,
            Service.PRE_ONLINE: self._go_online,
            Service.LATE_TAKE_OVER: self._take_over_late,
            Service.LOG_TOPICS: self._find_topics,
            Service.MASTER_HOLES: partial(fill_holes, self._broker),
            Service.TRANSACTIONS: self._run_transactions,
        }

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Hear of everything that the decisions depend on, inside the block."""
        broker = self._broker
        broker.delay_levels.skipped = partial(skipped, broker)
        missing = broker.schedule.missing = broker.pops.revive.missing = partial(may_come, broker)
        broker.timing.wait_for(missing)
        with ExitStack() as stack:
            replication = broker.replication
            for listeners in (
                broker.presence.on_decide,
                broker.member_group.on_view,
                replication.master_changed,
                replication.slaves_changed,
                broker.store.holes.found,
                broker.slave_sync.on_synced,
                broker.slave_sync.on_parted,
            ):
                listeners.append(self._look)
                stack.callback(listeners.remove, self._look)
            yield

    # --- what it says ------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether the broker looks after what is stored: a master, or a slave that acts for it."""
        decision = self.decisions.get(Service.SCHEDULE)
        return decision is not None and decision.run

    @property
    def acting(self) -> bool:
        """Whether this broker is a slave that acts at this moment, was not away, and hears that nobody else may."""
        return not self._away and acts(self.situation()).run and not self._listening.now().holds_back

    @property
    def may_store(self) -> bool:
        """Whether what the broker itself decides now belongs into its own log: nobody else may act for it."""
        return not self._away and not self._broker.role.is_slave and not self._listening.now().holds_back

    @property
    def _away(self) -> bool:
        """Whether the broker was away and is not online again."""
        return self._broker.presence.absent or self._broker.presence.isolated

    @property
    def reason(self) -> str:
        """Why it does or does not."""
        decision = self.decisions.get(Service.SCHEDULE)
        return "starting" if decision is None else decision.reason

    @property
    def returning(self) -> handshake.State | None:
        """Where pre-online stands, ``None`` while it is not under way."""
        return None if self._returning is None else self._returning.state

    @property
    def summary(self) -> str:
        """The give-back under way or the newest one in one line, ``""`` when there was none."""
        if self._returning is not None:
            return self._returning.state.line()
        return "" if self.report is None else self.report.line()

    @property
    def warnings(self) -> list[str]:
        """What an operator has to know or to mend, a sentence each."""
        found = list(self._broker.member_group.state.warnings)
        slave = self._broker.replication.slave
        if slave is not None and slave.progress().refusal:
            found.append(f"nothing is copied: {slave.progress().refusal}")
        if self._returning is not None and self._returning.state.tries:
            found.append(f"pre-online waits: {self._returning.state.trouble}")
        if self._late is not None:
            found.append(f"online without {self._late.missing}: what only it knows is taken over when it answers")
        return found

    def finish_pre_online(self) -> bool:
        """End pre-online now, without what is missing, or forget who was left out; return whether there was one."""
        if self._returning is not None:
            self._returning.finish()
        elif self._late is not None:
            log.warning("left-out slaves are forgotten", broker=self._broker.identity.name, slaves=self._late.missing)
            self._broker.member_group.remember(attrs.evolve(self._broker.member_group.memory, left_out=()))
            self._late = None
            self._look()
        else:
            return False
        return True

    async def give_back(self) -> Mapping[str, Any] | None:
        """Return the newest report, else the one that a former life left beside the store.

        Raises:
            TableDamagedError, OSError: the file cannot be read.
        """
        report, disk = self.report, self._broker.world.disk
        if report is not None and report.slaves:
            return await disk.in_thread(report.to_json)
        from understudy.container.preonline.report import FILE_NAME

        path = config_path(self._broker.options.store, FILE_NAME)
        return (await disk.in_thread(lambda: load_table(disk, path))).data

    def situation(self) -> Situation:
        """Return what the decision depends on now."""
        broker, role = self._broker, self._broker.role
        successor = broker.replication.successor
        return Situation(
            broker_id=role.broker_id,
            is_slave=role.is_slave,
            acting_enabled=self._watched,
            isolated=broker.presence.isolated,
            members=broker.member_group.members,
            metadata_synced=broker.slave_sync.synced,
            master_returning=role.is_slave and broker.replication.awaits and successor is None,
            successor=successor if role.is_slave else None,
            master_declines=broker.member_group.state.master_declines,
            contact_lost=broker.presence.state.contact_lost,
            slaves_silent=self._listening.now().slaves_silent,
            left_out="" if self._late is None else self._late.missing,
            topics_missing=self._topics_missing,
            messages_missing=broker.replication.messages_missing,
            asks_first=broker.replication.takes_nothing_yet,
        )

    # --- deciding ----------------------------------------------------------------------------------------------

    def decide(self) -> Decisions:
        """Return what must run now, and take note of it: since when the broker acts, and whether it may be found."""
        if self._watched:
            import_for_failover()
        broker, situation = self._broker, self.situation()
        acting = acts(situation).run
        if acting and self.acting_since_ms is None and self._outdated(situation):
            broker.presence.outdated()
            situation = self.situation()
            acting = acts(situation).run
        if not acting and self.acting_since_ms is not None:
            self.acting_since_ms = None
            broker.hold.wake_all()  # pulls that wait here learn that the master serves again
            broker.pops.hold.wake_all()
        elif acting and self.acting_since_ms is None:
            self.acting_since_ms = self._clock.wall_ms()
            broker.slave_sync.current = True
            self._topics_missing = bool(self._log_topics.missing())
            situation = self.situation()
        parted = broker.slave_sync.parted and situation.is_slave and not acting
        if parted != broker.presence.parted:
            broker.presence.part(parted)
            broker.hold.wake_all()
        self.decisions = decided = services(situation)
        return decided

    def _outdated(self, situation: Situation) -> bool:
        """Return whether other slaves may know what those told them that acted, and this one does not."""
        others = (situation.members or {}).keys() - {situation.broker_id}
        return bool(others) and not self._broker.slave_sync.current

    async def _find_topics(self) -> None:
        try:
            await self._log_topics.run()
        finally:
            self._topics_missing = False

    # --- coming online -----------------------------------------------------------------------------------------

    @property
    def _watched(self) -> bool:
        """Whether a slave may act here: since when its presence knows of it, the view of the group is no old one."""
        return self._broker.presence.state.watched

    async def _go_online(self) -> None:
        from understudy.container.preonline.late import LateTakeOver, go_on_without
        from understudy.container.preonline.service import PreOnline

        self._late = None
        self._broker.replication.withhold(hole=True)
        self._broker.slave_sync.current = False
        await end_passing(self._broker)  # slaves may have come further
        self._returning = returning = PreOnline(self._broker, self._broker.presence.state.cause)
        try:
            self.report = report = await returning.run()
        finally:
            self._returning = None
            self._broker.replication.withhold(hole=False)
        async with trio.open_nursery() as nursery:
            reminding = trio.CancelScope()
            nursery.start_soon(_within, reminding, returning.remind)  # who was told waits for a moment only
            await self._go_on(reminding)
            if not self._broker.role.is_slave:
                await put_again(self._broker)
                await begin_passing(self._broker)
            nursery.cancel_scope.cancel()
        if returning.state.finished or returning.state.outdated:  # whoever did not answer is not asked for ever
            self._broker.slave_sync.current = True
        go_on_without(self._broker, returning.state.given_up)
        if returning.state.given_up:
            self._late = LateTakeOver(self._broker, report, self._report_again)
        if self._broker.member_group.members is not None:
            # By what it showed before, a slave would act beside its master, and a master find itself dropped.
            self._broker.member_group.begin_anew()
        self._broker.presence.online(heard=returning.heard)
        self._broker.hold.wake_all()  # readers had to wait

    async def _go_on(self, reminding: trio.CancelScope) -> None:
        """Let a master that asked its slaves for the end of its log store messages of its own from now on.

        While its disk refuses that, it is not on its way: *reminding* slaves of its return ends, and one acts again.
        """
        broker = self._broker
        while broker.history.open and not broker.role.is_slave:
            try:
                await broker.history.go_on()
            except OSError as error:
                log.error("the new life of the log cannot be noted, trying again", why=error)
                reminding.cancel()
                await self._clock.sleep(1)
            else:
                broker.store.set_writable(True)
                await broker.pops.bring_home()

    async def _take_over_late(self) -> None:
        late = self._late
        assert late is not None
        try:
            await late.run()
        finally:
            self._late = None

    def _report_again(self, report: Report) -> None:
        self.report = report

    # --- due messages ------------------------------------------------------------------------------------------

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Put due messages where this broker may put them now: a master into its own log, an acting slave elsewhere.

        A broker that was away, or no longer has the role, puts nothing anywhere.
        """
        broker = self._broker
        if self.may_store:
            return await broker.own_log.put(messages, lambda: self.may_store)
        statuses = [PutStatus.SERVICE_NOT_AVAILABLE] * len(messages)
        if not self.acting:
            return statuses
        bridge, since_ms = self._escape(), self.acting_since_ms
        taken = await broker.pops.take_due(messages, lambda message: bridge.had_delivered(message, since_ms))
        rest = [number for number in range(len(messages)) if number not in taken]
        escaped = await bridge.redeliver([messages[number] for number in rest], since_ms, lambda: self.acting)
        for number, status in (*taken.items(), *zip(rest, escaped, strict=True)):
            statuses[number] = status
        return statuses

    async def _run_transactions(self) -> None:
        broker = self._broker
        if not broker.role.is_slave:
            await broker.transactions.run()
            return
        from understudy.container.escape.halves import HalfEscapes

        self._halves = HalfEscapes(broker, self._escape(), lambda: self.acting)
        try:
            await self._halves.run()
        finally:
            self._halves = None

    async def end_transaction(self, decision: judgement.Decision) -> judgement.Refusal | None:
        """Have a decision about a half message carried out by a slave that acts; return why it cannot be now."""
        if self._halves is None:
            remark = "this slave does not act; the check asks again"
            return judgement.Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        return await self._halves.decide(decision)

    async def put_beside(self, topics: Sequence[TopicConfig], message: InnerMessage) -> PutStatus | None:
        """Put *message* to a master that runs beside this broker and learns *topics*; ``None`` when there is none.

        The master of the own group comes first.
        """
        for neighbour in sorted(self._beside(), key=lambda each: each.broker_name != self._broker.identity.name):
            if await neighbour.takes_messages():
                learned = [await neighbour.learn(row) for row in topics]
                if all(learned):
                    (status,) = await neighbour.put([message], lambda: True)  # a client asks for it now
                    return status
        return None

    async def read_elsewhere(self, broker_name: str, topic: str, queue_id: int, offset: int) -> Popped:
        """Return a popped message of another group of brokers.

        Args:
            broker_name: group whose log has it.
            topic: of the message.
            queue_id: of the message.
            offset: its queue offset.
        """
        found = await self._escape().read(broker_name, topic, queue_id, offset)
        return Popped(found.record, found.retry, found.lacks)

    def _escape(self) -> Bridge:
        from understudy.container.escape.bridge import Bridge
        from understudy.container.escape.local import neighbour_of
        from understudy.container.escape.parts import escape_parts

        if self._bridge is None:
            self._bridge = Bridge(escape_parts(self._broker), neighbour_of(self._broker), self._beside)
        return self._bridge


async def _within(scope: trio.CancelScope, run: Run) -> None:
    with scope:
        await run()
