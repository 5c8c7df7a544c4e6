"""TCP ports for processes that must be told theirs before they start."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Return *count* different ports of the loopback interface that nobody used a moment ago.

    For drills, benchmarks and tests: a server that can, binds port 0 instead.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
