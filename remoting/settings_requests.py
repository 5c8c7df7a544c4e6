"""Requests that read and change the settings of a running server: broker, container, name server, controller.

Source: AdminBrokerProcessor.java, BrokerContainerProcessor.java, DefaultRequestProcessor.java, Configuration.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.runtime.clock import Clock
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, format_properties, parse_properties, printable
from understudy.runtime.stored_settings import (
    BlackListedError,
    LiveSettings,
    NotStoredError,
    StartOnlyError,
    StoredSettings,
)

log = get_logger("settings")

Settled = Callable[[Mapping[str, str]], Awaitable[None]]


async def nothing_more(texts: Mapping[str, str]) -> None:
    """Do nothing after a change."""


class SettingsRequests:
    """Handlers over the settings of one server.

    Args:
        live: settings in force.
        disk: of the file that keeps them.
        clock: for the version of the settings; ``None`` where answers carry none.
        settled: called after a change, before it is answered, with the keys that were given and known.
        fields: header fields of an answer that carries no version.
    """

    def __init__(
        self,
        live: LiveSettings,
        disk: Disk,
        *,
        clock: Clock | None = None,
        settled: Settled = nothing_more,
        fields: dict[str, str] | None = None,
    ) -> None:
        self._live = live
        self._stored = StoredSettings(live, disk)
        self._clock = clock
        self._version = DataVersion(timestamp=clock.wall_ms() if clock is not None else 0)
        self._settled = settled
        self._fields = fields

    def get(self, connection: Connection, command: Command) -> Command:
        """Answer every key that has a value, sorted, as ``key=value`` lines."""
        body = format_properties(self._live.properties())
        ext = {"version": dumps(self._version.to_json()).decode()} if self._clock is not None else self._fields
        return response(command, ResponseCode.SUCCESS, None, ext, body.encode())

    async def update(self, connection: Connection, command: Command) -> Command:
        """Change the keys in the body, all or none.

        Differs from the reference, which ignores values it cannot read and rewrites the whole file: a bad value is
        refused with one line, and only the changed keys of the file are touched.
        """
        if command.body:
            await self.change(read_body(command), connection)
        return response(command, ext=self._fields)

    async def change(self, values: Mapping[str, str], connection: Connection) -> None:
        """Change *values*, all or none. Raises :class:`~understudy.remoting.fields.CommandError`, told to the peer."""
        try:
            texts = await self._stored.update(values)
        except BlackListedError as error:
            log.warning("change of a black-listed key refused", peer=connection.address)
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from None
        except (ConfigError, StartOnlyError) as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        except NotStoredError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for key in values.keys() - texts.keys():
            log.warning("unknown key in a change of settings is ignored", key=printable(key), peer=connection.address)
        if self._clock is not None:
            self._version = self._version.next(self._clock.wall_ms())
        await self._settled(texts)
        log.info("settings changed", peer=connection.address, **texts)


def read_body(command: Command) -> dict[str, str]:
    """Return the keys and texts in the body of *command*.

    Raises:
        CommandError: they are no ``key=value`` lines.
    """
    try:
        return dict(parse_properties(command.body.decode(), "request"))
    except UnicodeDecodeError:
        raise CommandError(ResponseCode.SYSTEM_ERROR, "the body is not UTF-8 text of key=value lines") from None
    except ConfigError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
