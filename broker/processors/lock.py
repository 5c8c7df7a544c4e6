"""Queue locks of ordered consumers (41, 42), granted by this broker alone or by a majority of its group.

With ``lockInStrictMode`` a lock outlives any one replica: a slave that begins to act has granted it too, or a majority
without the dead master can. A request that fails to reach the majority leaves nothing locked behind.

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.lock_quorum import decide, quorum_of
from understudy.broker.locks import Queue, QueueLocks
from understudy.broker.member_group import MemberGroup
from understudy.format.json_dialect import JsonError, dumps, loads
from understudy.format.json_values import name_of
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number
from understudy.remoting.bodies import json_of
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.lock")

LANE = "lock quorum"
REPLICA_TIMEOUT_MS = 1_000


@attrs.frozen
class LockParts:
    """What of a broker is needed to lock queues.

    Attributes:
        identity: names, addresses and role.
        options: read at each request.
        clock: wall and monotonic time.
        client: connections to other brokers.
        locks: the locks.
        member_group: who else is in the group.
    """

    identity: Identity
    options: BrokerOptions
    clock: Clock
    client: RemotingClient
    locks: QueueLocks
    member_group: MemberGroup


class LockProcessor:
    """Handlers of the lock codes of one broker."""

    def __init__(self, parts: LockParts) -> None:
        self._parts = parts

    def register(self, server: RemotingServer) -> None:
        """Answer the lock codes at *server*."""
        self._lane = server.lane(LANE)
        server.register(RequestCode.LOCK_BATCH_MQ, self.lock)
        server.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, connection: Connection, command: Command) -> Answer:
        """Take or refresh queues for a client; answer those it holds."""
        _, _, _, alone = _parse(command)
        if not alone and self._quorum > 1:
            return self._lane.submit(connection, command, self._lock_by_majority)
        return self._lock_here(command)

    def unlock(self, connection: Connection, command: Command) -> Answer:
        """Give back a client's queues."""
        group, client_id, queues, alone = _parse(command)
        self._parts.locks.unlock(group, client_id, queues)
        if not alone and self._quorum > 1:
            return self._lane.submit(connection, command, self._unlock_everywhere)
        return response(command)

    @property
    def _quorum(self) -> int:
        options = self._parts.options
        return quorum_of(options.store.total_replicas) if options.broker.lock_in_strict_mode else 1

    def _lock_here(self, command: Command) -> Command:
        group, client_id, queues, _ = _parse(command)
        return _answer(command, self._parts.locks.lock(group, client_id, queues, self._parts.clock.wall_ms()))

    async def _lock_by_majority(self, connection: Connection, command: Command) -> Command:
        parts = self._parts
        group, client_id, queues, _ = _parse(command)
        own = parts.locks.lock(group, client_id, queues, parts.clock.wall_ms())
        grants: dict[str, list[Queue]] = {parts.identity.address: own}
        if own:
            async with trio.open_nursery() as nursery:
                for address in self._others():
                    nursery.start_soon(self._lock_at, address, group, client_id, own, grants)
        result = decide(queues, grants, self._quorum)
        if result.returned:
            log.info("too few replicas granted the lock", group=group, client=client_id, queues=len(result.returned))
            parts.locks.unlock(group, client_id, result.returned)
            await self._tell_others(group, client_id, result.returned)
        return _answer(command, result.granted)

    async def _unlock_everywhere(self, connection: Connection, command: Command) -> Command:
        group, client_id, queues, _ = _parse(command)
        await self._tell_others(group, client_id, queues)
        return response(command)

    def _others(self) -> list[str]:
        own = self._parts.identity
        members = self._parts.member_group.members or {}
        return [
            address for broker_id, address in members.items() if broker_id != own.broker_id and address != own.address
        ]

    async def _lock_at(
        self, address: str, group: str, client_id: str, queues: list[Queue], grants: dict[str, list[Queue]]
    ) -> None:
        command = request(RequestCode.LOCK_BATCH_MQ, {}, _body(group, client_id, queues))
        try:
            answer = await self._parts.client.invoke(address, command, REPLICA_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                grants[address] = _granted(answer)
        except (RemotingError, CommandError) as error:
            log.info("a replica did not grant the lock", address=address, why=error)

    async def _tell_others(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Take grants back at every other replica; one that cannot be reached lets them run out."""
        body = _body(group, client_id, queues)

        async def tell(address: str) -> None:
            command = request(RequestCode.UNLOCK_BATCH_MQ, {}, body)
            try:
                await self._parts.client.invoke(address, command, REPLICA_TIMEOUT_MS)
            except RemotingError as error:
                log.info("a replica was not told of an unlock", address=address, why=error)

        async with trio.open_nursery() as nursery:
            for address in self._others():
                nursery.start_soon(tell, address)


def _answer(command: Command, granted: Iterable[Queue]) -> Command:
    return response(command, body=dumps({"lockOKMQSet": _rows(granted)}))


def _rows(queues: Iterable[Queue]) -> list[dict[str, Any]]:
    return [{"brokerName": broker, "queueId": queue_id, "topic": topic} for topic, broker, queue_id in queues]


def _body(group: str, client_id: str, queues: Iterable[Queue]) -> bytes:
    return dumps({"clientId": client_id, "consumerGroup": group, "mqSet": _rows(queues), "onlyThisBroker": True})


def _granted(answer: Command) -> list[Queue]:
    try:
        data = loads(answer.body)
    except JsonError as error:
        raise _bad(f"the answer is no JSON: {error}") from None
    listed = data.get("lockOKMQSet") if isinstance(data, Mapping) else None
    return _queues(listed or [])


def _parse(command: Command) -> tuple[str, str, list[Queue], bool]:
    """Read a lock body: group, client, queues, and whether only this broker is meant.

    Raises :class:`CommandError` (1) that says what is missing.
    """
    try:
        data = json_of(command) if command.body else None
    except JsonError as error:
        raise _bad(f"the body is no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise _bad("the body is missing: it must hold consumerGroup, clientId and mqSet")
    group, client_id, listed = data.get("consumerGroup"), data.get("clientId"), data.get("mqSet") or []
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise _bad("the body must hold consumerGroup and clientId")
    return group, client_id, _queues(listed), data.get("onlyThisBroker") is True


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
