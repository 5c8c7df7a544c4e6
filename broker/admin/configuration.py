"""The broker's configuration, read and changed while it runs (25, 26).

Source: AdminBrokerProcessor.java, Configuration.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from understudy.format import json_dialect
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, Properties, parse_properties
from understudy.runtime.stored_settings import NotStoredError, store_changes

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.config")

ALWAYS_BLACK_LISTED = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
START_ONLY = frozenset(
    {
        "bindAddress",
        "brokerClusterName",
        "brokerId",
        "brokerName",
        "brokerRole",
        "flushDiskType",
        "haListenPort",
        "listenPort",
        "storePathCommitLog",
        "storePathRootDir",
    }
)
"""Who and where a broker is, and what it promises senders: a running one cannot become another."""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer configuration requests of *broker* on *server*."""
    handlers = ConfigurationAdmin(broker)
    server.register_async(RequestCode.UPDATE_BROKER_CONFIG, handlers.update)
    server.register(RequestCode.GET_BROKER_CONFIG, handlers.get)


class ConfigurationAdmin:
    """Handlers over one broker's options."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.world.clock.wall_ms())
        self._one_writer = trio.Lock()

    async def update(self, connection: Connection, command: Command) -> Command:
        """Change keys, all or none, and write them into the broker's file (25).

        Differs from the reference, which ignores values it cannot read and rewrites the whole file: a bad value is
        refused with one line, and only the changed keys of the file are touched.
        """
        if not command.body:
            return response(command)
        try:
            wanted = dict(parse_properties(command.body.decode("utf-8", "replace"), "request"))  # in no line of a file
        except ConfigError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        options = self._broker.options
        black_listed = ALWAYS_BLACK_LISTED | {key.strip() for key in options.broker.config_black_list.split(";")}
        if black_listed & wanted.keys():
            raise CommandError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        async with self._one_writer:
            changed = await self._change(wanted, connection)
        log.info("configuration changed", peer=connection.address, **changed)
        if "brokerPermission" in changed:
            self._broker.topics.touch()
            await self._broker.registration.settled()
        return response(command)

    async def _change(self, wanted: dict[str, str], connection: Connection) -> dict[str, str]:
        """Have *wanted* in force when it is in the file; return the known keys with their text."""
        options = self._broker.options
        before = options.properties()
        fixed = sorted(key for key in START_ONLY & wanted.keys() if wanted[key] != before.get(key))
        if fixed:
            # Differs because the reference shows the new value from then on and goes on with the old one.
            remark = (
                f"{', '.join(fixed)} cannot change while the broker runs; change the file and start the broker again"
            )
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        try:
            change = options.read_change(Properties(wanted, "request"))
        except ConfigError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        for key in wanted.keys() - change.texts.keys():
            log.warning("unknown key in a configuration update is ignored", key=key, peer=connection.address)
        path = options.broker.broker_config_path or options.path
        if path is not None and change.texts:
            try:
                await store_changes(self._broker.world.disk, path, change.texts)
            except NotStoredError as error:
                raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        options.apply(change)
        self._broker.settings_changed()
        self._version = self._version.next(self._broker.world.clock.wall_ms())
        return change.texts

    def get(self, connection: Connection, command: Command) -> Command:
        """Return every key with its value, sorted (26)."""
        body = "".join(f"{key}={value}\n" for key, value in self._broker.options.properties().items())
        version = json_dialect.dumps(self._version.to_json()).decode()
        return response(command, ResponseCode.SUCCESS, None, {"version": version}, body.encode())
