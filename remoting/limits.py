"""The bounds of a connection and of a server, each with its name and default."""

from __future__ import annotations

import attrs

from understudy.remoting.frame import FRAME_LIMIT_BYTES, HEADER_LIMIT_BYTES


@attrs.frozen
class ConnectionLimits:
    """Bounds of one connection.

    Attributes:
        frame_bytes: largest frame accepted.
        header_bytes: largest header accepted.
        receive_bytes: most bytes taken from the network in one go.
        pause_bytes: unsent bytes above which the peer's further requests are left unread until it has read answers.
        turn_seconds: time after which the requests of one receive let those of other connections pass.
        outbox_bytes: unsent bytes above which the peer counts as a slow reader and is disconnected.
        stall_seconds: time without progress of a send after which the peer is disconnected.
        idle_seconds: time without any byte in either direction after which a connection is closed.
        connect_timeout_seconds: time to establish a connection.
    """

    frame_bytes: int = FRAME_LIMIT_BYTES
    header_bytes: int = HEADER_LIMIT_BYTES
    receive_bytes: int = 256 * 1024
    pause_bytes: int = 1024 * 1024
    turn_seconds: float = 0.003
    outbox_bytes: int = 128 * 1024 * 1024
    stall_seconds: float = 60.0
    idle_seconds: float = 120.0
    connect_timeout_seconds: float = 3.0


@attrs.frozen
class LaneLimits:
    """Bounds of one kind of request whose handlers take time.

    Attributes:
        running: handlers at work at the same time.
        waiting: requests that may wait for one; the next is refused with SYSTEM_BUSY.
        waiting_bytes: bodies that may wait for one, all together; the next is refused with SYSTEM_BUSY.
        wait_seconds: age at which a waiting request is refused with SYSTEM_BUSY.
    """

    running: int = 16
    waiting: int = 10_000
    wait_seconds: float = 5.0
    waiting_bytes: int = 64 * 1024 * 1024
