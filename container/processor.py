"""What a container answers on its own port: add and remove brokers, read and change its configuration."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from understudy.container.broker_files import AddBrokerError
from understudy.container.container import BrokerContainer
from understudy.container.hosted import BrokerIdentity
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, required, required_int
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, Properties, parse_properties
from understudy.runtime.stored_settings import NotStoredError, store_changes

log = get_logger("container.processor")


def register_all(container: BrokerContainer) -> None:
    """Give the container's server its handlers.

    Differs from the reference, which gives no answer at all to any other code: they are answered "not supported", so
    that a tool pointed at the wrong port hears it at once.
    """
    processor = _Processor(container)
    server = container.server
    server.register_async(RequestCode.ADD_BROKER, processor.add_broker, "container")
    server.register_async(RequestCode.REMOVE_BROKER, processor.remove_broker, "container")
    server.register_async(RequestCode.UPDATE_BROKER_CONFIG, processor.update_config, "container")
    server.register(RequestCode.GET_BROKER_CONFIG, processor.get_config)


class _Processor:
    def __init__(self, container: BrokerContainer) -> None:
        self._container = container
        self._version = DataVersion(timestamp=container.world.clock.wall_ms())
        self._one_writer = trio.Lock()

    async def add_broker(self, connection: Connection, command: Command) -> Command:
        try:
            await self._container.add_broker_file((optional(command, "configPath") or "").strip())
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

    def get_config(self, connection: Connection, command: Command) -> Command:
        lines = "".join(f"{key}={value}\n" for key, value in self._container.options.properties().items())
        version = dumps(self._version.to_json()).decode()
        return response(command, 0, None, {"version": version}, lines.encode())

    async def update_config(self, connection: Connection, command: Command) -> Command:
        container = self._container
        try:
            properties = dict(parse_properties(command.body.decode(), f"request of {connection.address}"))
            fixed = container.options.fixed_keys().intersection(properties)
            if fixed:
                log.warning("update of fixed keys refused", keys=",".join(sorted(fixed)), peer=connection.address)
                raise CommandError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            async with self._one_writer:
                changes = await self._change(properties)
        except UnicodeDecodeError:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the body is not UTF-8 text of key=value lines") from None
        except (ConfigError, NotStoredError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("configuration updated", peer=connection.address, changes=changes)
        return response(command, 0, None)

    async def _change(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Have *properties* in force when they are in the file; return the known keys with their text."""
        container = self._container
        change = container.options.read_change(Properties(properties, "update"))
        if container.options.path is not None:
            await store_changes(container.world.disk, container.options.path, change.texts)
        container.options.apply(change)
        container.name_servers_changed()
        self._version = self._version.next(container.world.clock.wall_ms())
        return change.texts
