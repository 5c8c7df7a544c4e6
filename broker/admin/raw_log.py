"""A question of ours that the reference does not have: raw bytes of the log (953), for a replica that lost its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.history_keeper import HistoryKeeper
from understudy.broker.log_history import LOG_HISTORY
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required_int
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

STAND_INS = "standIns"
MISSING_FROM = "missingFrom"
MOST_BYTES = 1 << 20
"""Most bytes of one answer: far below the largest frame."""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer the question on *server*."""
    server.register(RequestCode.READ_LOG, RawLog(broker.store, broker.history).read)


class RawLog:
    """The handler over one broker's log."""

    def __init__(self, store: MessageStore, history: HistoryKeeper) -> None:
        self._store = store
        self._history = history

    def read(self, connection: Connection, command: Command) -> Command:
        """Return the bytes from ``offset`` on, at most to the end of their file, none from the end on.

        Where messages are missing in the log, it gives what stands before them. The header says where the log begins
        and ends, which history it has, and from where on messages are missing. Only a slave of this broker asks for
        what stands there in their place (``standIns``).
        """
        offset, store = required_int(command, "offset"), self._store
        hole = store.hole
        if (command.ext or {}).get(STAND_INS) == "true":
            hole = None
        elif hole is not None and offset >= hole:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"messages are missing in this log from {hole} on")
        first, end = max(store.min_physical_offset, 0), store.max_physical_offset
        if offset < first:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"offset {offset} is before this log, from {first} on")
        most = MOST_BYTES if hole is None else min(MOST_BYTES, hole - offset)
        body = bytes(store.slice(offset, most)) if offset < end else b""
        ext = {"minOffset": str(first), "maxOffset": str(end), LOG_HISTORY: self._history.value.to_text()}
        if hole is not None:
            ext[MISSING_FROM] = str(hole)
        return response(command, ext=ext, body=body)
