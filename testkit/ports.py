"""TCP ports for processes that must be told theirs before they start."""

from __future__ import annotations

import random
import socket

_BELOW_EPHEMERAL = range(15_000, 32_700)
"""Ports that no outgoing connection is given: between the question and the start of a server nobody else takes one."""


def free_ports(count: int) -> list[int]:
    """Return *count* different ports of the loopback interface that nobody used a moment ago.

    For drills, benchmarks and tests: a server that can, binds port 0 instead.
    """
    sockets: list[socket.socket] = []
    try:
        for port in random.SystemRandom().sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL)):
            if len(sockets) == count:
                break
            each = socket.socket()
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                each.close()
            else:
                sockets.append(each)
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
