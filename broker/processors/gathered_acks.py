"""Acknowledgements that came in one receive: those of one pop become one entry of the log, in the form for several.

A consumer of 32 messages acknowledges each with a request of its own, and an entry in the log for each would be most of
what a popped message costs: it is stored, waits in the timer and is stored again. Each request is answered by itself,
once the entry that holds it is stored, in the turn of the event loop in which it came.

Source: AckMessageProcessor.java and BatchAckMsg.java. Differs because the reference stores an entry for each request.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker.pop.revive_log import MOST_MESSAGES, Ack, Key
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import failure

Write = Callable[[Ack, int, int], int]
"""Stores an entry: its queue of the revive topic, when it is due there (wall milliseconds); returns the byte of the log
behind it, raises ``CommandError``."""

Destination = tuple[Key, int, int]
"""A check point's key; queue of the revive topic, and when its entries are due there, in wall milliseconds."""


@attrs.frozen(eq=False)
class _Entry:
    """What came for one pop.

    Attributes:
        copies: of its entry that there must be.
        offsets: queue offsets of the messages.
        requests: what is to be answered.
    """

    copies: int
    offsets: list[int]
    requests: list[Command]


class GatheredAcks:
    """The acknowledgements of the receive whose requests are just being handed on.

    Args:
        write: stores an entry.
        stored: answers what is stored.

    Attributes:
        connection: that they came on; ``None`` when there are none.
    """

    def __init__(self, write: Write, stored: StoredAnswers) -> None:
        self._write = write
        self._stored = stored
        self.connection: Connection | None = None
        self._entries: dict[Destination, _Entry] = {}
        self._queue = ("", -1)

    def knows(self, connection: Connection, topic: str, queue_id: int) -> bool:
        """Return whether the newest one here is of the same queue: what was asked for it needs not be asked again."""
        return self.connection is connection and self._queue == (topic, queue_id)

    def add(self, connection: Connection, command: Command, destination: Destination, offset: int) -> None:
        """Take one acknowledgement, which :meth:`settle` answers in this turn of the event loop.

        Args:
            connection: it came on; its receive is being handed on.
            command: the request.
            destination: of its entry.
            offset: queue offset of the message.

        Raises:
            CommandError: nothing can be stored now; it is not taken.
        """
        if self.connection is not connection:
            self.settle()
        entry = self._entries.get(destination)
        if entry is None:
            entry = self._entries[destination] = _Entry(self._stored.copies(), [], [])
            self.connection = connection
        key = destination[0]
        self._queue = key[0], key[2]
        entry.offsets.append(offset)
        entry.requests.append(command)
        if len(entry.offsets) == MOST_MESSAGES:
            del self._entries[destination]
            self._store(connection, destination, entry)

    def settle(self) -> None:
        """Store and answer what was taken."""
        connection, entries = self.connection, self._entries
        if connection is None:
            return
        self.connection, self._entries = None, {}
        for destination, entry in entries.items():
            self._store(connection, destination, entry)

    def _store(self, connection: Connection, destination: Destination, entry: _Entry) -> None:
        key, revive_queue, revive_ms = destination
        offsets, stored = tuple(entry.offsets), self._stored
        try:
            end = self._write(Ack(key, offsets, len(offsets) > 1), revive_queue, revive_ms)
        except Exception as error:  # nobody above could tell whose requests they were
            for command in entry.requests:
                connection.respond(command, failure(connection, command, error))
            return
        for command in entry.requests:
            answer = response(command)
            if stored.answer(connection, command, answer, end, entry.copies) is not None:
                connection.respond(command, answer)
