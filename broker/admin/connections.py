"""Who is connected: members of a consumer group (203), of a producer group (204), every producer (328)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.broker.admin.answers import json_answer
from understudy.broker.clients import ClientChannel, ConsumerTable, ProducerTable
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required
from understudy.remoting.server import RemotingServer

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer membership questions of *broker* on *server*."""
    handlers = ConnectionAdmin(broker.consumers, broker.producers)
    server.register(RequestCode.GET_CONSUMER_CONNECTION_LIST, handlers.consumers)
    server.register(RequestCode.GET_PRODUCER_CONNECTION_LIST, handlers.producers)
    server.register(RequestCode.GET_ALL_PRODUCER_INFO, handlers.all_producers)


class ConnectionAdmin:
    """Handlers over one broker's client tables."""

    def __init__(self, consumers: ConsumerTable[Connection], producers: ProducerTable[Connection]) -> None:
        self._consumers = consumers
        self._producers = producers

    def consumers(self, connection: Connection, command: Command) -> Command:
        """List members and subscriptions of a consumer group (203)."""
        group = required(command, "consumerGroup")
        info = self._consumers.get(group)
        if info is None:
            remark = f"the consumer group[{group}] not online"
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = {
            "connectionSet": [_client(channel) for channel in info.channels.values()],
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: entry.to_json() for topic, entry in info.subscriptions.items()},
        }
        return json_answer(command, body)

    def producers(self, connection: Connection, command: Command) -> Command:
        """List members of a producer group (204)."""
        group = required(command, "producerGroup")
        channels = self._producers.groups.get(group)
        if channels is None:
            remark = f"the producer group[{group}] not exist"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        return json_answer(command, {"connectionSet": [_client(channel) for channel in channels.values()]})

    def all_producers(self, connection: Connection, command: Command) -> Command:
        """List every producer of every group (328)."""
        groups = {
            group: [
                {
                    "clientId": channel.client_id,
                    "language": channel.language,
                    "lastUpdateTimestamp": channel.last_seen_ms,
                    "remoteIP": f"/{channel.connection.address}",
                    "version": channel.version,
                }
                for channel in channels.values()
            ]
            for group, channels in self._producers.groups.items()
        }
        return json_answer(command, {"data": groups})


def _client(channel: ClientChannel[Connection]) -> dict[str, Any]:
    return {
        "clientAddr": channel.connection.address,
        "clientId": channel.client_id,
        "language": channel.language,
        "version": channel.version,
    }
