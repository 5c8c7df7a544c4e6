"""What a container answers on its own port: add and remove brokers, read and change its configuration."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.container.broker_files import AddBrokerError
from understudy.container.container import BrokerContainer
from understudy.container.hosted import BrokerIdentity
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, required, required_int
from understudy.remoting.settings_requests import SettingsRequests
from understudy.runtime.properties import ConfigError


def register_all(container: BrokerContainer) -> None:
    """Give the container's server its handlers.

    Differs from the reference, which gives no answer at all to any other code: they are answered "not supported", so
    that a tool pointed at the wrong port hears it at once.
    """
    processor = _Processor(container)
    server = container.server
    server.register_async(RequestCode.ADD_BROKER, processor.add_broker, "container")
    server.register_async(RequestCode.REMOVE_BROKER, processor.remove_broker, "container")

    async def settled(texts: Mapping[str, str]) -> None:
        container.name_servers_changed()

    world = container.world
    settings = SettingsRequests(container.options, world.disk, clock=world.clock, settled=settled)
    server.register_async(RequestCode.UPDATE_BROKER_CONFIG, settings.update, "container")
    server.register(RequestCode.GET_BROKER_CONFIG, settings.get)


class _Processor:
    def __init__(self, container: BrokerContainer) -> None:
        self._container = container

    async def add_broker(self, connection: Connection, command: Command) -> Command:
        try:
            await self._container.add_asked_file((optional(command, "configPath") or "").strip())
        except (AddBrokerError, ConfigError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return response(command)

    async def remove_broker(self, connection: Connection, command: Command) -> Command:
        identity = BrokerIdentity(
            required(command, "brokerClusterName"), required(command, "brokerName"), required_int(command, "brokerId")
        )
        if not await self._container.remove_broker(identity):
            raise CommandError(ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
        return response(command)
