"""Blocks of TCP ports for processes that listen on several ports beside each other."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below the ports that the system gives to outgoing connections: of those it could give one away before its process
starts, or starts again."""
_UNIT = 10
"""Ports of one claim. A block claims all that it touches, so that blocks of different widths do not overlap."""


class NoPortsError(OSError):
    """There is no such block on this machine; the message says which was looked for."""


class PortBlocks:
    """Hands out blocks of free ports; a server that needs port P also listens near it.

    A locked file claims each block for the life of this object, so that runs at the same time do not collide.

    Args:
        width: ports of a block, at least; made a multiple of ten.
    """

    def __init__(self, width: int = 50) -> None:
        self._width = -(-width // _UNIT) * _UNIT
        self._next = FIRST_PORT
        self._claims: list[int] = []

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
            os.close(claim)
        self._claims.clear()

    def _claim(self, first: int) -> bool:
        path = Path(tempfile.gettempdir()) / f"understudy-ports-{os.getuid()}-{first}"
        claim = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(claim)
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
