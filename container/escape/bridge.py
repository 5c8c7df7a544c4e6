"""Puts messages of an acting slave to a master that lives, and reads single messages wherever they are.

The order of targets is that of :mod:`~understudy.container.escape.choice`: a master beside the slave that has the
topic, one elsewhere, one beside it that learns the topic. What one target does not take is offered to the next. A put
elsewhere that fails throws its route away. What was popped and comes back goes to a retry topic that nobody may have
yet: then it is put to a master elsewhere that has the topic it was popped from, and makes the retry topic.

Whether the slave still acts is asked right before anything leaves: after a pause in the middle of a put, whoever acted
meanwhile has delivered it.

Source: EscapeBridge.java.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import attrs
import trio

from understudy.broker.inner import InnerMessage
from understudy.broker.pop.returned import ORIGIN_GROUP
from understudy.broker.timer.recalls import was_taken_back
from understudy.broker.timer.rules import asking_again
from understudy.container.escape import choice
from understudy.container.escape.choice import NoTarget, Queue, Remote
from understudy.container.escape.neighbour import Beside, Found, Neighbour, Prepared
from understudy.container.escape.parts import EscapeParts
from understudy.container.escape.recognition import delivered_before
from understudy.container.escape.remote import RemoteNeighbour
from understudy.container.escape.routes import Routes, masters_of
from understudy.format import names
from understudy.format.names import TIMER_TOPIC
from understudy.format.properties import parse_properties
from understudy.runtime.log import get_logger
from understudy.store.status import PutStatus

log = get_logger("container.escape")


class Bridge:
    """The escapes of one broker.

    Args:
        parts: the broker.
        own: reads its log.
        beside: returns the brokers that run in the same container now, masters first; the broker itself may be one.
    """

    def __init__(self, parts: EscapeParts, own: Neighbour, beside: Callable[[], Sequence[Beside]]) -> None:
        self._parts = parts
        self._own = own
        self._beside = beside
        self._routes = Routes(parts)
        self._turn = 0

    # --- putting -----------------------------------------------------------------------------------------------

    async def redeliver(
        self, messages: Sequence[InnerMessage], acting_since_ms: int | None, may: Callable[[], bool]
    ) -> list[PutStatus]:
        """Put due messages where consumers find them, but those that the master had delivered before the slave acted.

        A timer message that must rest once more is put to another broker as its sender would send it, unless the log
        has a request that takes it back: the two would not meet any more.

        Args:
            messages: what is due, in order.
            acting_since_ms: wall time since which the slave acts.
            may: returns whether it still does, and was not away.
        """
        due: dict[int, InnerMessage] = {}
        for number, message in enumerate(messages):
            if message.topic == TIMER_TOPIC:  # not due yet, and not for this log to keep any longer
                if not was_taken_back(self._parts.store, message):
                    due[number] = asking_again(message)
            elif not self.had_delivered(message, acting_since_ms):
                due[number] = message
        statuses = [PutStatus.PUT_OK] * len(messages)
        for number, status in zip(due, await self.put(list(due.values()), may), strict=True):
            statuses[number] = status
        return statuses

    def had_delivered(self, message: InnerMessage, acting_since_ms: int | None) -> bool:
        """Tell whether the master had delivered a due *message* before the slave acted; arguments as above."""
        if acting_since_ms is None or not delivered_before(self._parts, message, acting_since_ms):
            return False
        log.info("the master had delivered it", broker=self._parts.node.identity.canonical_name, topic=message.topic)
        return True

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        """Put *messages* to the best targets there are, in order as far as they go to the same one.

        Args:
            messages: their queue ids may be changed, nothing else.
            may: asked right before any of them leaves.

        Returns:
            What became of each.
        """
        statuses = [PutStatus.SERVICE_NOT_AVAILABLE] * len(messages)
        await self._put_beside(messages, statuses, may)
        unknown = await self._put_elsewhere(messages, statuses, may)
        await self._teach_beside(messages, statuses, may)
        await self._teach_elsewhere(messages, statuses, unknown, may)
        for message, status in zip(messages, statuses, strict=True):
            if status is not PutStatus.PUT_OK:
                log.debug("not escaped yet", topic=message.topic, status=status.value)
        return statuses

    async def prepare(self, half: InnerMessage, may: Callable[[], bool]) -> tuple[Neighbour, Prepared] | None:
        """Put a half message to the best place there is; the same one again as long as the cluster stays as it is.

        Args:
            half: as it comes in there.
            may: asked right before it goes anywhere.

        Returns:
            The master that has it now, and where; ``None`` when it is not certain that one has.
        """
        for master in await self._masters_beside():
            queues = await master.write_queues(half.topic)
            if queues:
                moved = attrs.evolve(half, queue_id=choice.local_queue(queues, half.queue_id))
                prepared = await master.prepare(moved, may)
                if prepared is not None:
                    return master, prepared
        target = await self._elsewhere(half.topic, self._parts.node.identity.name)
        if isinstance(target, Remote):
            remote = RemoteNeighbour(self._parts, target.address)
            prepared = await remote.prepare(attrs.evolve(half, queue_id=target.queue_id), may)
            if prepared is not None:
                return remote, prepared
            self._routes.forget(half.topic)
            return None
        row = self._parts.topics.rows.get(half.topic)
        for master in await self._masters_beside():
            if row is not None and not await master.write_queues(row.name) and await master.learn(row):
                return await self.prepare(half, may)
        log.debug("no place for a half message", broker=self._parts.node.identity.canonical_name, why=target.why)
        return None

    async def _masters_beside(self) -> list[Beside]:
        own_group = self._parts.node.identity.name
        others = [each for each in self._beside() if each.broker_name != own_group]
        return [each for each in others if await each.takes_messages()]

    async def _put_beside(
        self, messages: Sequence[InnerMessage], statuses: list[PutStatus], may: Callable[[], bool]
    ) -> None:
        """Put what is not stored yet to masters of the container that have its topic."""
        for master in await self._masters_beside():
            moved: dict[int, InnerMessage] = {}
            for number in _left(statuses):
                message = messages[number]
                queues = await master.write_queues(message.topic)
                if queues:
                    queue_id = choice.local_queue(queues, message.queue_id)
                    moved[number] = attrs.evolve(message, queue_id=queue_id)
            await _put(master, moved, statuses, may)

    async def _put_elsewhere(
        self, messages: Sequence[InnerMessage], statuses: list[PutStatus], may: Callable[[], bool]
    ) -> set[int]:
        """Put what is not stored yet to masters of other machines; return the numbers of those that found none."""
        targets: dict[int, Remote | NoTarget] = {}
        for number in _left(statuses):
            targets[number] = await self._elsewhere(messages[number].topic, None)
        await self._send(messages, statuses, targets, may)
        return {number for number, target in targets.items() if isinstance(target, NoTarget)}

    async def _teach_elsewhere(
        self,
        messages: Sequence[InnerMessage],
        statuses: list[PutStatus],
        unknown: Collection[int],
        may: Callable[[], bool],
    ) -> None:
        """Put what was popped, and is *unknown* as its retry topic is nobody's, where its own topic is."""
        targets: dict[int, Remote | NoTarget] = {}
        for number in _left(statuses):
            own = _popped_from(messages[number]) if number in unknown else None
            if own is not None:
                target = await self._elsewhere(own, None)
                targets[number] = attrs.evolve(target, queue_id=0) if isinstance(target, Remote) else target
        await self._send(messages, statuses, targets, may)

    async def _elsewhere(self, topic: str, specific: str | None) -> Remote | NoTarget:
        """Choose a master of another machine for a message of *topic*."""
        settings = self._parts.node.options.broker
        allowed = settings.enable_slave_acting_master and settings.enable_remote_escape
        route = await self._routes.route(topic) if allowed else None
        queues = [] if route is None else [Queue(each.broker_name, each.queue_id) for each in route.write_queues]
        self._turn += 1
        return choice.remote(
            self._parts.node.identity.name, queues, masters_of(route), self._turn, allowed=allowed, specific=specific
        )

    async def _teach_beside(
        self, messages: Sequence[InnerMessage], statuses: list[PutStatus], may: Callable[[], bool]
    ) -> None:
        """Let a master of the container learn the topics that no master has, and put what is not stored yet."""
        masters, learned = await self._masters_beside(), False
        for number in _left(statuses):
            row = self._parts.topics.rows.get(messages[number].topic)
            if row is None or statuses[number] is PutStatus.MESSAGE_ILLEGAL:
                continue
            for master in masters:
                if not await master.write_queues(row.name) and await master.learn(row):
                    learned = True
                    break
        if learned:
            await self._put_beside(messages, statuses, may)

    async def _send(
        self,
        messages: Sequence[InnerMessage],
        statuses: list[PutStatus],
        targets: Mapping[int, Remote | NoTarget],
        may: Callable[[], bool],
    ) -> None:
        """Send messages to their *targets*, all at once; those of one target in order."""
        moved: dict[str, dict[int, InnerMessage]] = {}
        for number, target in targets.items():
            if isinstance(target, NoTarget):
                statuses[number] = target.status
                log.debug("no target to escape to", broker=self._parts.node.identity.canonical_name, why=target.why)
            else:
                message = attrs.evolve(messages[number], queue_id=target.queue_id)
                moved.setdefault(target.address, {})[number] = message
        async with trio.open_nursery() as nursery:
            for address, group in moved.items():
                nursery.start_soon(_put, RemoteNeighbour(self._parts, address), group, statuses, may)
        for number in targets:
            if statuses[number] is not PutStatus.PUT_OK:
                self._routes.forget(messages[number].topic)
                self._routes.forget(_popped_from(messages[number]) or "")

    # --- reading -----------------------------------------------------------------------------------------------

    async def read(self, broker_name: str, topic: str, queue_id: int, offset: int) -> Found:
        """Read one message of *broker_name*: here when its log is in this container, else from its master or slave.

        Args:
            broker_name: group whose log has it.
            topic: of the message.
            queue_id: of the message.
            offset: its queue offset.
        """
        if broker_name == self._parts.node.identity.name:
            return await self._own.read(topic, queue_id, offset)
        for each in self._beside():
            if each.broker_name == broker_name:
                return await each.read(topic, queue_id, offset)
        route = await self._routes.route(topic)
        address = None
        if route is not None and broker_name in route.brokers:
            address = route.brokers[broker_name].any_address()
        if address is None:
            self._routes.forget(topic)
            return Found(None, "brokerAddress not found", True)
        return await RemoteNeighbour(self._parts, address).read(topic, queue_id, offset)


def _left(statuses: Sequence[PutStatus]) -> list[int]:
    """Return the numbers of the messages that are not stored yet."""
    return [number for number, status in enumerate(statuses) if status is not PutStatus.PUT_OK]


def _popped_from(message: InnerMessage) -> str | None:
    """Return the topic that a message of a retry topic was popped from; ``None`` when it is none of these."""
    group = parse_properties(message.properties.decode("utf-8", "replace")).get(ORIGIN_GROUP)
    topic = message.topic if group is None else names.popped_topic(message.topic, group)
    return None if topic == message.topic else topic


async def _put(
    neighbour: Neighbour, moved: Mapping[int, InnerMessage], statuses: list[PutStatus], may: Callable[[], bool]
) -> None:
    """Put *moved* to *neighbour* and note in *statuses* what became of them."""
    if moved:
        for number, status in zip(moved, await neighbour.put(list(moved.values()), may), strict=True):
            statuses[number] = status
