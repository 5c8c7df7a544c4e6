"""Who is connected: members of a consumer group (203), of a producer group (204), every producer (328)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.broker.admin.answers import long_json_answer
from understudy.broker.clients import ClientChannel, ConsumerTable, ProducerTable
from understudy.format.json_dialect import Rows
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer membership questions of *broker* on *server*."""
    handlers = ConnectionAdmin(broker.world, broker.consumers, broker.producers)
    server.register_async(RequestCode.GET_CONSUMER_CONNECTION_LIST, handlers.consumers)
    server.register_async(RequestCode.GET_PRODUCER_CONNECTION_LIST, handlers.producers)
    server.register_async(RequestCode.GET_ALL_PRODUCER_INFO, handlers.all_producers)


class ConnectionAdmin:
    """Handlers over one broker's client tables."""

    def __init__(
        self, world: World, consumers: ConsumerTable[Connection], producers: ProducerTable[Connection]
    ) -> None:
        self._world = world
        self._consumers = consumers
        self._producers = producers

    async def consumers(self, connection: Connection, command: Command) -> Command:
        """List members and subscriptions of a consumer group (203)."""
        group = required(command, "consumerGroup")
        info = self._consumers.get(group)
        if info is None:
            remark = f"the consumer group[{group}] not online"
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = {
            "connectionSet": map(_client, list(info.channels.values())),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": Rows((topic, entry.to_json()) for topic, entry in list(info.subscriptions.items())),
        }
        return await self._answer(command, body)

    async def producers(self, connection: Connection, command: Command) -> Command:
        """List members of a producer group (204)."""
        group = required(command, "producerGroup")
        channels = self._producers.groups.get(group)
        if channels is None:
            remark = f"the producer group[{group}] not exist"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        return await self._answer(command, {"connectionSet": map(_client, list(channels.values()))})

    async def all_producers(self, connection: Connection, command: Command) -> Command:
        """List every producer of every group (328)."""
        groups = list(self._producers.groups.items())
        data = Rows((group, map(_producer, list(channels.values()))) for group, channels in groups)
        return await self._answer(command, {"data": data})

    async def _answer(self, command: Command, body: dict[str, Any]) -> Command:
        async with Pace(self._world) as pace:
            return await long_json_answer(command, body, pace)


def _producer(channel: ClientChannel[Connection]) -> dict[str, Any]:
    return {
        "clientId": channel.client_id,
        "language": channel.language,
        "lastUpdateTimestamp": channel.last_seen_ms,
        "remoteIP": f"/{channel.connection.address}",
        "version": channel.version,
    }


def _client(channel: ClientChannel[Connection]) -> dict[str, Any]:
    return {
        "clientAddr": channel.connection.address,
        "clientId": channel.client_id,
        "language": channel.language,
        "version": channel.version,
    }
