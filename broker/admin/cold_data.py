"""Reads of old data: limits of groups (2001 to 2003), and how the system reads the log from the disk (2004).

Limits are kept in memory and shown. They hold nobody back, as in the reference unless ``coldDataFlowControlEnable`` is
set, which has no effect here.

Source: AdminBrokerProcessor.java, ColdDataCgCtrService.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.admin.answers import json_answer
from understudy.broker.broker_config import BrokerConfig
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.cold_data")

GROUP_LIMIT = 10_000
"""Most groups whose limits are kept."""
_MODES = {"0": True, "1": False}
"""MADV_NORMAL reads ahead, MADV_RANDOM does not."""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer requests about old data of *broker* on *server*."""
    handlers = ColdDataAdmin(broker.options.broker, broker.store)
    server.register(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, handlers.update)
    server.register(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, handlers.remove)
    server.register(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, handlers.show)
    server.register(RequestCode.SET_COMMITLOG_READ_MODE, handlers.set_read_mode)


class ColdDataAdmin:
    """Handlers over one broker's limits."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self._config = config
        self._store = store
        self._limits: dict[str, int] = {}

    def update(self, connection: Connection, command: Command) -> Command:
        """Keep the limits of groups, ``group=bytes per second`` each, all or none (2001)."""
        try:
            wanted = parse_properties(command.body.decode("utf-8", "replace"), "request")
            limits = {group: int(text) for group, text in wanted.items()}
        except ConfigError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"a limit is no whole number: {error}") from None
        if any(not -(1 << 63) <= limit < 1 << 63 for limit in limits.values()):
            raise CommandError(ResponseCode.INVALID_PARAMETER, "a limit is outside the range of 64-bit integers")
        if len(self._limits.keys() | limits.keys()) > GROUP_LIMIT:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"limits of more than {GROUP_LIMIT} groups are not kept")
        self._limits |= limits
        if limits:
            log.warning("limits of reads of old data are kept and shown, but hold nobody back", groups=",".join(limits))
        return response(command)

    def remove(self, connection: Connection, command: Command) -> Command:
        """Forget the limit of one group (2002)."""
        self._limits.pop(command.body.decode("utf-8", "replace").strip(), None)
        return response(command)

    def show(self, connection: Connection, command: Command) -> Command:
        """Return the limits; nothing is counted while nobody is held back (2003)."""
        config = self._config
        body = {
            "runtimeTable": {},
            "configTable": self._limits,
            "cgColdReadThreshold": config.cg_cold_read_threshold,
            "globalColdReadThreshold": config.global_cold_read_threshold,
            "globalAcc": 0,
        }
        return json_answer(command, body)

    def set_read_mode(self, connection: Connection, command: Command) -> Command:
        """Have the system read ahead in the log, or not (2004)."""
        mode = optional(command, "READ_AHEAD_MODE")
        if mode is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error")
        if mode not in _MODES:
            remark = "set commitlog readahead mode param value error, it is 0 (normal) or 1 (random)"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        self._store.read_ahead(_MODES[mode])
        log.info("read-ahead of the log changed", on=_MODES[mode], peer=connection.address)
        return response(command, 0, f"set commitlog readahead mode success, mode: {mode}")
