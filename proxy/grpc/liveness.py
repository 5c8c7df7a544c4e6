"""Whether a client is there, and whether it is worth its connection. Pure."""

from __future__ import annotations

from enum import Enum

from understudy.proxy.grpc.limits import GrpcLimits


class Attention(Enum):
    """What a client deserves now."""

    NONE = "none"
    GOODBYE = "it has had no call for long"
    PING = "it was silent for long"
    CLOSE = "silent, and no answer to a ping"


class Liveness:
    """When something was heard of one client.

    Args:
        limits: how long is too long.
        now: monotonic seconds of its first byte.

    Attributes:
        last_byte: when something came.
        last_call: when a call came or ended.
    """

    __slots__ = ("_limits", "_pinged_at", "last_byte", "last_call")

    def __init__(self, limits: GrpcLimits, now: float) -> None:
        self._limits = limits
        self._pinged_at: float | None = None
        self.last_byte = self.last_call = now

    def pong(self) -> None:
        """Take the answer to a ping."""
        self._pinged_at = None

    def look(self, now: float, *, has_calls: bool) -> tuple[Attention, float]:
        """Return what the client deserves at *now*, and when to look again, in monotonic seconds."""
        limits = self._limits
        if not has_calls:
            idle = now - self.last_call >= limits.idle_seconds
            return Attention.GOODBYE if idle else Attention.NONE, self.last_call + limits.idle_seconds
        pinged_at = self._pinged_at
        if pinged_at is not None and pinged_at >= self.last_byte:
            late = now - pinged_at >= limits.ping_seconds
            return Attention.CLOSE if late else Attention.NONE, pinged_at + limits.ping_seconds
        if now - self.last_byte >= limits.silent_seconds:
            self._pinged_at = now
            return Attention.PING, now + limits.ping_seconds
        return Attention.NONE, now + min(limits.request_seconds, limits.silent_seconds)
