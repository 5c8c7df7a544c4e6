"""What a master says to one slave and hears from it: the part of a connection that depends on the protocol.

Without I/O: :class:`understudy.ha.master.HaMaster` moves the bytes and knows offsets, a conversation knows frames.
"""

from __future__ import annotations

from typing import Protocol

from understudy.ha import wire
from understudy.ha.settings import HaParameters

HANDSHAKE_SECONDS = 1.0
"""For the second half of a frame that was one write."""
_NO_BORDER = 1 << 62


class Conversation(Protocol):
    """One connection of a slave, from the master's side; offsets are bytes of the log.

    Attributes:
        reply: what the slave must be told before it gets any of the log; the caller sends and empties it.
    """

    reply: bytes

    @property
    def undecided(self) -> bool:
        """Whether what came may be one frame or the half of another; :meth:`feed` with ``None`` decides."""
        ...

    @property
    def in_sync(self) -> bool | None:
        """Whether the slave counts as in sync; ``None`` when its distance says it."""
        ...

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat would tell the slave something that it does not know."""
        ...

    def feed(self, data: bytes | None) -> int | None:
        """Take what the slave sent, ``None`` when nothing followed; return where its log ends, if it said so.

        Raises:
            WireError: the connection must end; the message says why.
        """
        ...

    def whole_log(self, settings: HaParameters) -> bool:
        """Return whether the slave, if it is empty, gets the whole log, not only the last file."""
        ...

    def bytes_until_border(self, offset: int) -> int:
        """Return how many bytes from *offset* on one frame may have, as far as the protocol is concerned."""
        ...

    def header(self, offset: int, body_bytes: int) -> bytes:
        """Return the head of a frame; without a body it is a heartbeat."""
        ...

    def sent(self, master_end: int) -> None:
        """Take note that the slave is sent something while the master's log ends at *master_end*."""
        ...

    def reported(self, offset: int, master_end: int) -> None:
        """Take note of a report that was accepted."""
        ...

    def ended(self) -> None:
        """Take note that the connection has ended."""
        ...


class PlainConversation:
    """Plain replication: eight bytes from the slave, twelve and the log from the master."""

    in_sync = None
    has_news = False

    def __init__(self) -> None:
        self._reader = wire.ReportReader()
        self.reply = b""

    @property
    def undecided(self) -> bool:
        return self._reader.undecided

    def feed(self, data: bytes | None) -> int | None:
        return self._reader.settle() if data is None else self._reader.feed(data)

    def whole_log(self, settings: HaParameters) -> bool:
        return settings.whole_log

    def bytes_until_border(self, offset: int) -> int:
        return _NO_BORDER

    def header(self, offset: int, body_bytes: int) -> bytes:
        return wire.header(offset, body_bytes)

    def sent(self, master_end: int) -> None:
        """Plain replication keeps no time of it."""

    def reported(self, offset: int, master_end: int) -> None:
        """The distance says it."""

    def ended(self) -> None:
        """Nothing is kept."""
