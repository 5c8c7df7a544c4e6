"""Queue locks of ordered consumers (41, 42).

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from understudy.broker.locks import Queue
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.json_dialect import JsonError, dumps, loads

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


class LockProcessor:
    """Handlers of the lock codes of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, server: RemotingServer) -> None:
        """Answer the lock codes at *server*."""
        server.register(RequestCode.LOCK_BATCH_MQ, self.lock)
        server.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, connection: Connection, command: Command) -> Command:
        """Take or refresh queues for a client; answer those it holds."""
        group, client_id, queues = _parse(command)
        granted = self._broker.locks.lock(group, client_id, queues, self._broker.world.clock.wall_ms())
        held = [{"brokerName": broker, "queueId": queue_id, "topic": topic} for topic, broker, queue_id in granted]
        return response(command, body=dumps({"lockOKMQSet": held}))

    def unlock(self, connection: Connection, command: Command) -> Command:
        """Give back a client's queues."""
        group, client_id, queues = _parse(command)
        self._broker.locks.unlock(group, client_id, queues)
        return response(command)


def _parse(command: Command) -> tuple[str, str, list[Queue]]:
    """Read a lock body. Raises :class:`CommandError` (1) that says what is missing."""
    try:
        data = loads(command.body) if command.body else None
    except JsonError as error:
        raise _bad(f"the body is no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise _bad("the body is missing: it must hold consumerGroup, clientId and mqSet")
    group, client_id, listed = data.get("consumerGroup"), data.get("clientId"), data.get("mqSet") or []
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise _bad("the body must hold consumerGroup and clientId")
    if not isinstance(listed, list):
        raise _bad("mqSet is no list")
    queues: dict[Queue, None] = {}
    for item in listed:
        if not isinstance(item, Mapping):
            raise _bad("mqSet holds something that is no message queue")
        try:
            queues[str(item.get("topic")), str(item.get("brokerName")), int(item.get("queueId", 0))] = None
        except (TypeError, ValueError):
            raise _bad("mqSet holds a queueId that is not a number") from None
    return group, client_id, list(queues)


def _bad(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
