"""Everything of one broker that serves pops: tables, what waits, what brings messages back, and the handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from understudy.broker.deferred_service import DeferredService
from understudy.broker.inner import InnerMessage
from understudy.broker.pop.log import ReviveLog
from understudy.broker.pop.moving import Moving
from understudy.broker.pop.recovery import handed_out, newest_points
from understudy.broker.pop.returned import Returned
from understudy.broker.pop.revive import ReviveParts, ReviveQueues, ReviveTarget
from understudy.broker.pop.taking import Taker
from understudy.broker.pop.waiting import PopHold, WaitingPop
from understudy.broker.processors.ack import AckParts, AckProcessor
from understudy.broker.processors.change_invisible import InvisibleTimeProcessor
from understudy.broker.processors.pop import PopParts, PopProcessor
from understudy.broker.processors.pop_questions import NOTIFICATION, PopQuestions
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.broker.hold import ParkedPull
    from understudy.broker.session import RoleRules

log = get_logger("broker.pops")


class Pops:
    """The pops of one broker.

    Args:
        broker: its tables, store and timer exist.

    Attributes:
        orders: what was handed out in order.
        log: check points and acknowledgements.
        hold: pops that wait.
        moving: what pops and acknowledgements change.
        queues: the revive topic.
        revive: brings messages back.
    """

    def __init__(self, broker: Broker) -> None:
        config, world, store = broker.options.broker, broker.world, broker.store
        self._broker = broker
        self.orders = broker.orders
        self.log = ReviveLog(broker.identity, broker.options, world.clock, store, broker.timer.door)
        self.hold = PopHold(
            world.clock,
            broker.arrivals,
            lambda: config.max_pop_polling_size,
            lambda: config.pop_polling_size,
            world.load.parked,
        )
        self.moving = Moving(world.clock, config, broker.offsets, self.log, broker.stats)
        self._parts = ReviveParts(
            identity=broker.identity,
            config=config,
            clock=world.clock,
            store=store,
            topics=broker.topics,
            groups=broker.groups,
            offsets=broker.offsets,
            log=self.log,
            stats=broker.stats,
            returned=Returned(store),
            timer_behind=lambda: broker.timer.behind > 0 or broker.timer.behind_ms(world.clock.wall_ms()) > 0,
        )
        self.queues = ReviveQueues(self._parts)
        self.revive = DeferredService(world.clock, self.queues, self._target(broker.session.rules))
        self.queues.announce = self.revive.arrived
        parts = PopParts(
            identity=broker.identity,
            options=broker.options,
            clock=world.clock,
            random=world.random,
            store=store,
            topics=broker.topics,
            groups=broker.groups,
            offsets=broker.offsets,
            orders=self.orders,
            log=self.log,
            moving=self.moving,
            hold=self.hold,
            presence=broker.presence,
            conditions=broker.conditions,
            stats=broker.stats,
            taker=Taker(store, broker.offsets, self.orders, self.moving, config, set()),
        )
        acks = AckParts(
            identity=broker.identity,
            options=broker.options,
            clock=world.clock,
            store=store,
            topics=broker.topics,
            offsets=broker.offsets,
            orders=self.orders,
            log=self.log,
            moving=self.moving,
            hold=self.hold,
            presence=broker.presence,
            stats=broker.stats,
            stored=StoredAnswers(broker.identity, broker.options.store, broker.acknowledgements, broker.replication),
        )
        self._pop, self._questions = PopProcessor(parts), PopQuestions(parts)
        self._others = AckProcessor(acks), InvisibleTimeProcessor(acks)
        self.hold.answer = self._again

    def register(self, server: RemotingServer) -> None:
        """Answer the codes of pop at *server*."""
        for processor in (self._pop, self._questions, *self._others):
            processor.register(server)

    async def run(self) -> None:
        """Bring messages back until cancelled, and write what waits in memory when it is due."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.moving.run)
            nursery.start_soon(self.revive.run)

    def _again(self, parked: ParkedPull) -> None:
        assert isinstance(parked, WaitingPop)
        if parked.kind == NOTIFICATION:
            self._questions.again(parked)
        else:
            self._pop.again(parked)

    def _target(self, rules: RoleRules) -> ReviveTarget:
        return ReviveTarget(self._parts, rules, rules.read_elsewhere, self.moving.in_flight)

    def change_role(self, rules: RoleRules) -> None:
        """Serve the next role: what is due goes where *rules* say, and who waits learns of it."""
        self.revive.target = self._target(rules)
        if not self._broker.role.is_slave:
            self.recover()  # a slave's copy of the offsets is older than its copy of the log
        self.hold.wake_all()

    def handed_on(self, messages: Sequence[InnerMessage]) -> None:
        """Learn of due *messages* that a slave which acts hands on to another broker.

        An acknowledgement among them may be of a check point that is in this broker's log already, and goes nowhere.
        """
        for message in messages:
            if message.topic == self.log.topic:
                self.queues.handed_on(message)

    def forget_topic(self, topic: str) -> None:
        """Forget what was popped of a deleted topic."""
        self.orders.forget(lambda known, group, queue_id: known != topic)
        self.moving.forget_topic(topic)

    def recover(self) -> None:
        """Move offsets past what the log says was handed out."""
        broker, name = self._broker, self._broker.identity.name
        points = newest_points(broker.store, self.log.topic, self.log.queues, name)
        for (group, topic, queue_id), offset in handed_out(points, broker.offsets, name).items():
            log.info("popped further than the table says", group=group, topic=topic, queue=queue_id, offset=offset)
            broker.offsets.commit(group, topic, queue_id, offset)
