"""TCP ports for processes that must be told theirs before they start, and for those that listen beside each other.

Who can, listens on port 0 and asks what it got.  Everybody else takes ports here: of ports that were free a moment ago
the system gives one to an outgoing connection, or another run takes it, before its process listens or listens again.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def last_port() -> int:
    """Return where the ports begin that the system gives to outgoing connections, or 32,000 if they begin later."""
    with suppress(OSError, ValueError, IndexError):
        first_of_system = int(RANGE_FILE.read_text().split()[0])
        if 8_000 <= first_of_system:
            return min(first_of_system, 32_000)
    return 32_000


LAST_PORT = last_port()
FIRST_PORT = max(LAST_PORT - 12_000, 2_000)
_UNIT = 10
"""Ports of one claim. A block claims all that it touches, so that blocks of different widths do not overlap."""


class NoPortsError(OSError):
    """There is no such block on this machine; the message says which was looked for."""


class PortBlocks:
    """Hands out blocks of free ports; a server that needs port P also listens near it.

    A bound UDP port of the same number claims each block for the life of this object, at most of this process, so that
    runs at the same time do not collide, whoever runs them; TCP knows nothing of it, and no file is left behind.

    Args:
        width: ports of a block, at least; made a multiple of ten.
    """

    def __init__(self, width: int = 50) -> None:
        self._width = -(-width // _UNIT) * _UNIT
        self._next = FIRST_PORT
        self._claims: list[socket.socket] = []

    def __enter__(self) -> PortBlocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> int:
        """Return the first port of a block that nobody else got. Raises :class:`NoPortsError`."""
        while self._next + self._width <= LAST_PORT:
            first = self._next
            self._next += self._width
            block = range(first, first + self._width)
            if all(self._claim(unit) for unit in block[::_UNIT]) and all(_is_free(port) for port in block):
                return first
        raise NoPortsError(f"no {self._width} free ports in a row between {FIRST_PORT} and {LAST_PORT}")

    def middles(self, count: int) -> list[int]:
        """Return *count* ports in the middle of a block each: a Java broker listens on both sides of its own, too."""
        return [self.take() + self._width // 2 for _ in range(count)]

    def release(self) -> None:
        """Give all blocks back."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()

    def _claim(self, first: int) -> bool:
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
