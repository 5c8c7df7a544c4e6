"""Queue locks of ordered consumers (41, 42), granted by this broker alone or by a majority of its group.

With ``lockInStrictMode`` a lock outlives any one replica: a slave that begins to act has granted it too, or a majority
without the dead master can. A request that fails to reach the majority leaves nothing locked that was not locked
before. Whoever does not answer is waited for only as long as it matters: clients wait for a second, and one replica of
a majority may be silent.

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from understudy.broker.lock_quorum import LockResult, decide, quorum_of
from understudy.broker.locks import Queue, QueueLocks
from understudy.broker.member_group import MemberGroup
from understudy.broker.node import Node
from understudy.broker.presence import Presence
from understudy.format.json_dialect import JsonError, dump_pieces, dumps, join_in_steps
from understudy.format.json_values import name_of
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number
from understudy.remoting.bodies import Reading, body_of, json_of, read_answer
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.damping import Damping
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.signal import Signal

log = get_logger("broker.lock")

LANE = "lock quorum"
REPLICA_TIMEOUT_MS = 600
"""How long a replica may take to grant; with the next one less than the second that clients wait.

Differs: the reference asks for a second and waits for all, so that a silent replica costs every client its answer.
"""
TAKE_BACK_TIMEOUT_MS = 300
"""How long one may take to take back what was granted."""
_UNCLEAR = "too few replicas answer; what is locked stays locked until it runs out; ask again, also at another replica"
_FULL = (
    "[OVERLOAD]the clients of this host hold too many queue locks (keptForPeersBytes); give some back, or wait a minute"
)
AT_ONCE = 512
"""Queues of a request that is carried out in one piece."""


@attrs.frozen
class LockParts:
    """What of a broker is needed to lock queues.

    Attributes:
        node: who it is, its settings and its world.
        client: connections to other brokers.
        locks: the locks.
        member_group: who else is in the group.
        presence: whether it is back for good.
    """

    node: Node
    client: RemotingClient
    locks: QueueLocks
    member_group: MemberGroup
    presence: Presence


class LockProcessor:
    """Handlers of the lock codes of one broker.

    Args:
        parts: of the broker.
        lane: where requests wait for other brokers.
        large: where those wait that name many queues.
    """

    def __init__(self, parts: LockParts, lane: Lane, large: Lane) -> None:
        self._parts = parts
        self._lane, self._large = lane, large
        self._identity = parts.node.identity
        self._world = parts.node.world
        self._lines = Damping()

    def register(self, server: RemotingServer) -> None:
        """Answer the lock codes at *server*."""
        server.register(RequestCode.LOCK_BATCH_MQ, self.lock, READING)
        server.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock, READING)

    def lock(self, connection: Connection, command: Command) -> Answer:
        """Take or refresh queues for a client; answer those it holds."""
        asked = asked_of(command)
        if not asked.alone and self._quorum > 1:
            return self._lane.submit(connection, command, self._lock_by_majority)
        if len(asked.queues) > AT_ONCE:
            return self._large.submit(connection, command, self._lock_here)
        now_ms, host = self._world.clock.wall_ms(), connection.source
        granted = self._parts.locks.lock(asked.group, asked.client_id, asked.queues, now_ms, host)
        self._check_room(asked, granted, host)
        return response(command, body=dumps({"lockOKMQSet": list(_rows(granted))}))

    def unlock(self, connection: Connection, command: Command) -> Answer:
        """Give back a client's queues."""
        asked = asked_of(command)
        everywhere = not asked.alone and self._quorum > 1
        if len(asked.queues) <= AT_ONCE:
            self._parts.locks.unlock(asked.group, asked.client_id, asked.queues)
            return self._lane.submit(connection, command, self._tell_all) if everywhere else response(command)
        if everywhere:
            return self._lane.submit(connection, command, self._unlock_everywhere)
        return self._large.submit(connection, command, self._unlock_here)

    @property
    def _quorum(self) -> int:
        options = self._parts.node.options
        return quorum_of(options.store.total_replicas) if options.broker.lock_in_strict_mode else 1

    async def _locked(self, asked: Asked, host: str) -> list[Queue]:
        now_ms, locks = self._world.clock.wall_ms(), self._parts.locks
        async with Pace(self._world) as pace:
            granted = await pace.run(locks.locking(asked.group, asked.client_id, asked.queues, now_ms, host))
        self._check_room(asked, granted, host)
        return granted

    def _check_room(self, asked: Asked, granted: list[Queue], host: str) -> None:
        """Tell a client that gets nothing that *host* has too many locks, if so. Raises :class:`CommandError`."""
        if not self._parts.locks.is_full(host):
            return
        self._lines.tell(log.warning, "a host holds too many queue locks", self._world.clock.monotonic(), host=host)
        if asked.queues and not granted:
            raise CommandError(ResponseCode.SYSTEM_BUSY, _FULL)

    async def _unlocked(self, asked: Asked) -> None:
        async with Pace(self._world) as pace:
            await pace.run(self._parts.locks.unlocking(asked.group, asked.client_id, asked.queues))

    async def _lock_here(self, connection: Connection, command: Command) -> Command:
        return await self._answer(command, await self._locked(asked_of(command), connection.source))

    async def _unlock_here(self, connection: Connection, command: Command) -> Command:
        await self._unlocked(asked_of(command))
        return response(command)

    async def _lock_by_majority(self, connection: Connection, command: Command) -> Command:
        parts, asked = self._parts, asked_of(command)
        async with Pace(self._world) as pace:
            now_ms = self._world.clock.wall_ms()
            held = await pace.run(parts.locks.holding(asked.group, asked.client_id, asked.queues, now_ms))
        if 1 + len(self._others()) < self._quorum and (held or parts.presence.isolated):
            # Slaves are gone, or this broker has just come back with no locks and knows nobody who would. A client that
            # was told that it has none would give up what nobody else can get.
            return response(command, ResponseCode.SYSTEM_ERROR, _UNCLEAR)
        own = await self._locked(asked, connection.source)
        result = await self._decided(attrs.evolve(asked, queues=own), held) if own else decide((), {}, 1)
        if result.refused:
            log.info(
                "too few replicas granted the lock",
                group=asked.group,
                client=asked.client_id,
                queues=len(result.refused),
            )
        if result.returned:
            returned = attrs.evolve(asked, queues=list(result.returned))
            await self._unlocked(returned)
            await self._tell_others(returned)
        if result.unclear:
            return response(command, ResponseCode.SYSTEM_ERROR, _UNCLEAR)
        return await self._answer(command, result.granted)

    async def _decided(self, asked: Asked, held: frozenset[Queue]) -> LockResult:
        """Ask the other replicas for what is locked here, until no answer that is missing could change anything."""
        grants: dict[str, list[Queue]] = {self._identity.address: asked.queues}
        body, others, answered = await self._body(asked), self._others(), Signal()
        waiting = len(others)

        async def ask(address: str) -> None:
            nonlocal waiting
            await self._lock_at(address, body, grants)
            waiting -= 1
            answered.set()

        async with trio.open_nursery() as nursery:
            for address in others:
                nursery.start_soon(ask, address)
            handled = 0
            while True:
                silent = len(others) - waiting - (len(grants) - 1)
                count = partial(decide, asked.queues, dict(grants), self._quorum, held, waiting, silent)
                result = await self._world.threads.run(count)
                if not result.open:
                    nursery.cancel_scope.cancel()  # what one of them grants yet ends with the client's other locks
                    return result
                handled = await answered.wait(handled)

    async def _unlock_everywhere(self, connection: Connection, command: Command) -> Command:
        await self._unlocked(asked_of(command))
        return await self._tell_all(connection, command)

    async def _tell_all(self, connection: Connection, command: Command) -> Command:
        await self._tell_others(asked_of(command))
        return response(command)

    async def _answer(self, command: Command, granted: Iterable[Queue]) -> Command:
        return response(command, body=await self._written({"lockOKMQSet": _rows(granted)}))

    async def _body(self, asked: Asked) -> bytes:
        """Return the request for *asked* at this broker alone."""
        ask = {"clientId": asked.client_id, "consumerGroup": asked.group, "mqSet": _rows(asked.queues)}
        return await self._written({**ask, "onlyThisBroker": True})

    async def _written(self, value: Mapping[str, object]) -> bytes:
        async with Pace(self._world) as pace:
            return await pace.run(join_in_steps(dump_pieces(value)))

    def _others(self) -> list[str]:
        own = self._identity
        members = self._parts.member_group.members or {}
        return [
            address for broker_id, address in members.items() if broker_id != own.broker_id and address != own.address
        ]

    async def _lock_at(self, address: str, body: bytes, grants: dict[str, list[Queue]]) -> None:
        command = request(RequestCode.LOCK_BATCH_MQ, {}, body)
        try:
            answer = await self._parts.client.invoke(address, command, REPLICA_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                await read_answer(self._world.threads, answer, _granted)
                grants[address] = body_of(answer, _granted)
        except (RemotingError, CommandError) as error:
            log.info("a replica did not grant the lock", address=address, why=error)

    async def _tell_others(self, asked: Asked) -> None:
        """Take grants back at every other replica; one that cannot be reached lets them run out."""
        body = await self._body(asked)

        async def tell(address: str) -> None:
            command = request(RequestCode.UNLOCK_BATCH_MQ, {}, body)
            try:
                await self._parts.client.invoke(address, command, TAKE_BACK_TIMEOUT_MS)
            except RemotingError as error:
                log.info("a replica was not told of an unlock", address=address, why=error)

        async with trio.open_nursery() as nursery:
            for address in self._others():
                nursery.start_soon(tell, address)


def _rows(queues: Iterable[Queue]) -> Iterator[dict[str, Any]]:
    return ({"brokerName": broker, "queueId": queue_id, "topic": topic} for topic, broker, queue_id in queues)


def _granted(answer: Command) -> list[Queue]:
    try:
        data = json_of(answer)
    except JsonError as error:
        raise _bad(f"the answer is no JSON: {error}") from None
    listed = data.get("lockOKMQSet") if isinstance(data, Mapping) else None
    return _queues(listed or [])


@attrs.frozen
class Asked:
    """What a request to lock or unlock says.

    Attributes:
        group: that consumes in order.
        client_id: of its member.
        queues: each once.
        alone: only this broker is meant.
    """

    group: str
    client_id: str
    queues: list[Queue]
    alone: bool = False


def asked_of(command: Command) -> Asked:
    """Return what a request to lock or unlock asks for. Raises :class:`CommandError`."""
    asked: Asked = body_of(command, _parse)
    return asked


def _parse(command: Command) -> Asked:
    """Read the body of a request. Raises :class:`CommandError` (1) that says what is missing."""
    try:
        data = json_of(command) if command.body else None
    except JsonError as error:
        raise _bad(f"the body is no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise _bad("the body is missing: it must hold consumerGroup, clientId and mqSet")
    group, client_id, listed = data.get("consumerGroup"), data.get("clientId"), data.get("mqSet") or []
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise _bad("the body must hold consumerGroup and clientId")
    return Asked(group, client_id, _queues(listed), data.get("onlyThisBroker") is True)


READING = Reading(_parse)


def _queues(listed: object) -> list[Queue]:
    if not isinstance(listed, list):
        raise _bad("mqSet is no list")
    queues: dict[Queue, None] = {}
    for item in listed:
        if not isinstance(item, Mapping):
            raise _bad("mqSet holds something that is no message queue")
        try:
            queue_id = whole_number(item.get("queueId", 0), "mqSet: queueId", INT_MIN, INT_MAX)
            topic = name_of(item.get("topic"), "mqSet: topic")
            queues[topic, name_of(item.get("brokerName"), "mqSet: brokerName"), queue_id] = None
        except ValueError as error:
            raise _bad(str(error)) from None
    return list(queues)


def _bad(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
