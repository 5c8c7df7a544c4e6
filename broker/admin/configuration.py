"""The broker's configuration, read and changed while it runs (25, 26).

Source: AdminBrokerProcessor.java, Configuration.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.data_version import DataVersion
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime import json_dialect
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, parse_properties, rewrite_properties

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
        "haListenPort",
        "listenPort",
        "storePathCommitLog",
        "storePathRootDir",
    }
)
"""Who and where a broker is: a running one cannot become another."""


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

    async def update(self, connection: Connection, command: Command) -> Command:
        """Change keys, all or none, and write them into the broker's file (25).

        Differs from the reference, which ignores values it cannot read and rewrites the whole file: a bad value is
        refused with one line, and only the changed keys of the file are touched.
        """
        if not command.body:
            return response(command)
        try:
            wanted = parse_properties(command.body.decode("utf-8", "replace"), "request")
        except ConfigError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        options = self._broker.options
        black_listed = ALWAYS_BLACK_LISTED | set(options.broker.configBlackList.split(";"))
        if black_listed & wanted.keys():
            raise CommandError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        before = options.properties()
        fixed = sorted(key for key in START_ONLY & wanted.keys() if wanted[key] != before.get(key))
        if fixed:
            # Differs because the reference shows the new value from then on and goes on with the old one.
            remark = (
                f"{', '.join(fixed)} cannot change while the broker runs; change the file and start the broker again"
            )
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        try:
            changed = options.update(wanted, "request")
        except ConfigError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        for key in wanted.keys() - changed.keys():
            log.warning("unknown key in a configuration update is ignored", key=key, peer=connection.address)
        try:
            await self._save(changed)
        except OSError as error:
            options.update({key: before[key] for key in changed if key in before})
            remark = f"nothing was changed, because {self._path()} cannot be written: {error}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from None
        self._version = self._version.next(self._broker.world.clock.wall_ms())
        log.info("configuration changed", peer=connection.address, **changed)
        if "brokerPermission" in changed:
            self._broker.topics.touch()
            await self._broker.registration.settled()
        return response(command)

    def get(self, connection: Connection, command: Command) -> Command:
        """Return every key with its value, sorted (26)."""
        body = "".join(f"{key}={value}\n" for key, value in self._broker.options.properties().items())
        version = json_dialect.dumps(self._version.to_json()).decode()
        return response(command, ResponseCode.SUCCESS, None, {"version": version}, body.encode())

    def _path(self) -> str | None:
        return self._broker.options.broker.brokerConfigPath or self._broker.options.path

    async def _save(self, changed: dict[str, str]) -> None:
        path, disk = self._path(), self._broker.world.disk
        if path is None or not changed:
            return

        def write() -> None:
            data = disk.read(path) if disk.exists(path) else b""
            write_durably(disk, path, rewrite_properties(data, changed))

        await disk.in_thread(write)
