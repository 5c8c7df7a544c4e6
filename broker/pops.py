"""Everything of one broker that serves pops: tables, what waits, what brings messages back, and the handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

import trio

from understudy.broker.deferred_service import DeferredService
from understudy.broker.inner import InnerMessage
from understudy.broker.pop.acting_rows import Homeward
from understudy.broker.pop.log import ReviveLog
from understudy.broker.pop.moving import Moving
from understudy.broker.pop.recovery import GroupQueue, newest_points, note_handed_out, points_from, set_back
from understudy.broker.pop.revive import ReviveParts, ReviveQueues
from understudy.broker.pop.revive_log import CheckPoint, Entry, entry_of
from understudy.broker.pop.revive_target import ReviveTarget
from understudy.broker.pop.state import PopState
from understudy.broker.pop.taking import Taker
from understudy.broker.pop.waiting import PopHold, WaitingPop
from understudy.broker.processors.ack import AckParts, AckProcessor
from understudy.broker.processors.change_invisible import InvisibleTimeProcessor
from understudy.broker.processors.pop import PopParts, PopProcessor
from understudy.broker.processors.pop_admission import PopAdmission
from understudy.broker.processors.pop_questions import NOTIFICATION, PopQuestions, QuestionParts
from understudy.broker.storage import config_path
from understudy.broker.timer.lateness import out_before_ms
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.signal import Signal
from understudy.runtime.table import save_table
from understudy.store.status import PutRejected, PutStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.broker.parked_pulls import ParkedPull
    from understudy.broker.session import RoleRules

log = get_logger("broker.pops")

HOME_AGAIN_SECONDS = 2.0
"""Pause before what the log did not take is tried again: the timer takes only so much for one second."""
FORGET_SECONDS = 5.0
AGAIN_MS = 10_000
"""What came out of a timer comes out again after a crash, or at the next slave that acts, if it was less long ago."""
_TURN = 256
"""Check points that are read in one turn."""
_STEP = 16
"""Check points between two looks at the clock."""


class Pops:
    """The pops of one broker.

    Args:
        broker: its tables, store and timer exist.

    Attributes:
        orders: what was handed out in order.
        acting: what is handed out for a master that is away.
        log: check points and acknowledgements.
        hold: pops that wait.
        gathered: acknowledgements of the receive that is being handed on.
        moving: what pops and acknowledgements change.
        queues: the revive topic.
        revive: brings messages back.
    """

    def __init__(self, broker: Broker) -> None:
        config, world, store = broker.options.broker, broker.world, broker.store
        self._broker = broker
        self.orders, self.acting = broker.orders, broker.acting_pops
        self.log = ReviveLog(broker.identity, broker.options, world.clock, store, broker.timer.door)
        self.log.keep = partial(self.keep, logged=False)
        self._saved = self.acting.revision
        self._recovered = False
        self._homing, self._learned, self._refused = trio.Lock(), Signal(), 0
        self.acting.on_change.append(self._learned.set)
        self.hold = PopHold(
            world.clock,
            broker.arrivals,
            lambda: config.max_pop_polling_size,
            lambda: config.pop_polling_size,
            world.load.parked,
        )
        self.moving = Moving(world.clock, config, broker.offsets, self.log, broker.stats)
        state = PopState(broker.offsets, self.orders, self.log, self.moving, broker.stats, broker.pop_clock)
        self._parts = ReviveParts(
            node=broker.node,
            store=store,
            catalog=broker.catalog,
            state=state,
            acting=self.acting,
            timer=broker.timer,
        )
        self.queues = ReviveQueues(self._parts)
        self.revive = DeferredService(world.clock, self.queues, self._target(broker.session.rules))
        self.queues.announce, self.queues.opened = self.revive.arrived, self.revive.opened
        admission = PopAdmission(broker.catalog, broker.presence, self.serves)
        pops = PopParts(
            node=broker.node,
            admission=admission,
            conditions=broker.conditions,
            taker=Taker(store, broker.offsets, self.orders, self.moving, config, set()),
            state=state,
            hold=self.hold,
        )
        acks = AckParts(
            node=broker.node,
            admission=admission,
            store=store,
            state=state,
            hold=self.hold,
            stored=broker.stored,
        )
        self._pop = PopProcessor(pops)
        self._questions = PopQuestions(QuestionParts(broker.node, admission, store, state, self.hold))
        acknowledgements = AckProcessor(acks)
        self.gathered = acknowledgements.gathered
        self._others = acknowledgements, InvisibleTimeProcessor(acks)
        self.hold.answer = self._again

    def register(self, server: RemotingServer) -> None:
        """Answer the codes of pop at *server*."""
        for processor in (self._pop, self._questions, *self._others):
            processor.register(server)

    def serves(self) -> bool:
        """Whether messages are handed out here, and acknowledgements taken.

        A slave that acts does so, and a master that nobody may act for: what is acknowledged to two is known to one.
        """
        rules = self._broker.session.rules
        return (self._recovered and rules.acting) if self._broker.role.is_slave else rules.may_store

    async def run(self) -> None:
        """Bring messages back until cancelled, and write what waits in memory when it is due.

        A master writes what slaves handed out for it, too.
        """
        broker = self._broker
        try:
            if broker.role.is_slave:  # its copy of the offsets is older than its copy of the log
                await self.recover()
                self._recovered, self.acting.since_ms = True, broker.world.clock.wall_ms()
                self.hold.wake_all()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.moving.run)
                nursery.start_soon(self.revive.run)
                nursery.start_soon(self._keep_forgetting if broker.role.is_slave else self._keep_bringing_home)
        finally:
            self._recovered, self.acting.since_ms = False, None

    def _again(self, parked: ParkedPull) -> None:
        assert isinstance(parked, WaitingPop)
        if parked.kind == NOTIFICATION:
            self._questions.again(parked)
        else:
            self._pop.again(parked)

    def _target(self, rules: RoleRules) -> ReviveTarget:
        return ReviveTarget(self._parts, rules, rules.read_elsewhere, self.queues.returned)

    def change_role(self, rules: RoleRules) -> None:
        """Serve the next role: what is due goes where *rules* say, and who waits learns of it."""
        self.revive.target = self._target(rules)
        self.hold.wake_all()

    # --- while the broker is a slave ---------------------------------------------------------------------------

    def keep(self, entry: Entry, queue: int, deliver_ms: int, *, logged: bool) -> None:
        """Take what belongs into *queue* of the revive topic and must not go into the log of a slave.

        Args:
            entry: a check point, or acknowledgements.
            queue: of the revive topic.
            deliver_ms: wall time when it is due there.
            logged: it came out of the log.

        Raises:
            PutRejected: it came from a consumer, and too much waits already.
        """
        self.acting.add(entry, queue, deliver_ms, logged=logged)
        self.queues.kept(entry, queue)

    async def take_due(
        self, messages: Sequence[InnerMessage], delivered: Callable[[InnerMessage], bool]
    ) -> dict[int, PutStatus]:
        """Take those due *messages* that belong into the revive topic, on a slave that acts.

        Args:
            messages: what is due.
            delivered: tells whether the master had delivered a message: it is in the log then.

        Returns:
            By their number what became of them, once it is durable.
        """
        found: dict[int, PutStatus] = {}
        for number, message in enumerate(messages):
            entry = entry_of(message, self.log.topic, self._broker.identity.name)
            if entry is not None:
                if message.topic != self.log.topic or not delivered(message):
                    self.keep(*entry, logged=True)
                found[number] = PutStatus.PUT_OK
        if found:
            try:
                await self._broker.persistence.save(self._broker.tables.acting_pops.name)
            except OSError as error:
                log.error("what was handed out could not be saved", why=error)
                return dict.fromkeys(found, PutStatus.SERVICE_NOT_AVAILABLE)
        return found

    async def keep_acting(self) -> None:
        """Make durable what was handed out for a master, if it is not. Raises ``OSError``."""
        table, disk, revision = self._broker.tables.acting_pops, self._broker.world.disk, self.acting.revision
        if revision != self._saved:
            path, content = config_path(self._broker.options.store, table.file.file_name), table.snapshot()
            await disk.in_thread(lambda: save_table(disk, path, content))
            self._saved = revision

    async def bring_home(self) -> None:
        """Write what slaves handed out for this master, and it has learned, into the log.

        What cannot be written stays in the table, holds up nothing else, and is tried again while the master serves.
        """
        async with self._homing:
            before, refused = len(self.acting), list[PutRejected]()
            try:
                async with Pace(self._broker.world) as pace:
                    for each in self.acting.homeward():
                        if self._broker.role.is_slave or self._broker.history.open:
                            break  # it is written when the log has its end
                        self._write_home(each, refused)
                        await pace.breathe()
            finally:
                if (count := before - len(self.acting)) > 0:
                    self.acting.tell()
                    name = self._broker.identity.canonical_name
                    log.info("what slaves handed out is home", broker=name, entries=count)
            if len(refused) not in (0, self._refused):
                log.error("some of what slaves handed out cannot be written yet", count=len(refused), why=refused[0])
            self._refused = len(refused)

    def _write_home(self, each: Homeward, refused: list[PutRejected]) -> None:
        if isinstance(each.entry, CheckPoint):
            self._broker.groups.get(each.entry.group)  # which may be new: it began while only the slave was there
        try:
            self.log.write(each.entry, each.queue, each.deliver_ms)
        except PutRejected as error:
            refused.append(error)
        else:
            self.acting.written(each)

    async def _keep_bringing_home(self) -> None:
        """Do so for what could not be written before, and for what is learned of later."""
        while True:
            if self.acting.empty:
                await self._learned.wait()
                continue
            await self.bring_home()
            await self._broker.world.clock.sleep(HOME_AGAIN_SECONDS)

    async def _keep_forgetting(self) -> None:
        """Forget acknowledgements that nobody needs any more, so that they leave room for others."""
        broker = self._broker
        while True:
            if not self.acting.acks:
                await self._learned.wait()
                continue
            self.acting.forget_needless(out_before_ms(broker.timer, broker.world.clock.wall_ms()) - AGAIN_MS)
            await broker.world.clock.sleep(FORGET_SECONDS)

    def forget_topics(self, topics: Set[str]) -> None:
        """Forget what was popped of deleted topics."""
        self.orders.forget(lambda known, group, queue_id: known not in topics)
        self.moving.forget_topics(topics)

    async def recover(self) -> None:
        """Move offsets past what the log, or another replica, says was handed out; nothing may be meanwhile."""
        broker, name, found = self._broker, self._broker.identity.name, dict[GroupQueue, int]()
        self.queues.find()
        for row in self.acting.rows() if broker.role.is_slave else ():
            note_handed_out(row.point, broker.offsets, name, found)
        async with Pace(broker.world) as pace:  # there may be hundreds of thousands
            for number, point in enumerate(newest_points(broker.store, self.log.topic, self.log.queues, name)):
                note_handed_out(point, broker.offsets, name, found)
                if number % _STEP == 0:
                    await pace.breathe()
        self._move(found)

    async def forget_from(self, position: int) -> None:
        """Set groups back to what goes out again when the log is cut at byte *position*, with its check points.

        It is durable when this returns: a start that finishes the cut finds no check points any more.

        Differs: the reference keeps the offsets, and such messages never come again if this broker leads next.

        Raises:
            OSError: it could not be made durable; the log must not be cut.
        """
        broker, found = self._broker, list[CheckPoint]()
        for number, point in enumerate(points_from(broker.store, position, broker.identity.name)):
            if point is not None:
                found.append(point)
            if number % _TURN == 0:
                await trio.lowlevel.checkpoint()
        offsets = set_back(found, broker.offsets)
        for (group, topic, queue_id), offset in offsets.items():
            log.info("what it handed out is cut off the log", group=group, topic=topic, queue=queue_id, offset=offset)
            self.moving.reset(group, topic, queue_id)
            broker.offsets.cut({f"{topic}@{group}": {queue_id: offset}})
        if offsets:
            await broker.persistence.save(broker.tables.offsets.name)

    def _move(self, offsets: Mapping[GroupQueue, int]) -> None:
        for (group, topic, queue_id), offset in offsets.items():
            log.info("popped further than the table says", group=group, topic=topic, queue=queue_id, offset=offset)
            self._broker.offsets.commit_popped(group, topic, queue_id, offset, self._broker.store.max_physical_offset)
