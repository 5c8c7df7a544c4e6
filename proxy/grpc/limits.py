"""The bounds of a gRPC server, each with its name and default."""

from __future__ import annotations

import attrs


@attrs.frozen
class GrpcLimits:
    """Bounds of one connection and of the calls on it.

    Attributes:
        message_bytes: largest message accepted, inflated.
        header_list_bytes: largest list of header fields accepted.
        calls: streams that may be open at a time.
        call_bytes: what an open call costs, counted into what waits in the process.
        unread_messages: messages of a stream that wait for its handler; what follows waits at the client.
        window_bytes: what a client may send of one stream, and of all, before it is taken.
        receive_bytes: most bytes taken from the network in one go.
        turn_seconds: how long a connection works before others have a turn, of what it sent in one go.
        control_frames: pings, settings, resets and empty frames of a client in :attr:`control_seconds`; who sends more
            is disconnected. Settings count as :attr:`settings_frames`, for each may concern all calls. Each message
            that the client gets allows one more: clients measure the link with pings.
        settings_frames: see :attr:`control_frames`.
        control_seconds: see :attr:`control_frames`.
        request_seconds: time in which a request must be complete, of calls with a single one.
        idle_seconds: time without a call after which a connection is closed.
        silent_seconds: time without a byte after which a client with open calls is pinged.
        ping_seconds: time in which it must answer.
        pause_bytes: unsent bytes above which nothing more is read from the client.
        outbox_bytes: unsent bytes above which it is disconnected.
        stall_seconds: time without progress of a send after which it is disconnected.
        drain_seconds: time that calls under way have when the server stops.
    """

    message_bytes: int = 130 * 1024 * 1024
    header_list_bytes: int = 8192
    calls: int = 1000
    call_bytes: int = 4 * 1024
    unread_messages: int = 16
    window_bytes: int = 1024 * 1024
    receive_bytes: int = 32 * 1024
    turn_seconds: float = 0.002
    control_frames: int = 1000
    settings_frames: int = 20
    control_seconds: float = 10.0
    request_seconds: float = 60.0
    idle_seconds: float = 120.0
    silent_seconds: float = 330.0
    ping_seconds: float = 20.0
    pause_bytes: int = 1024 * 1024
    outbox_bytes: int = 256 * 1024 * 1024
    stall_seconds: float = 60.0
    drain_seconds: float = 3.0
