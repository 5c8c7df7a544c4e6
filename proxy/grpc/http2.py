"""What a server of calls says in header fields, as it goes over the wire, and how many empty frames it puts up with."""

from __future__ import annotations

import math

from understudy.proxy.grpc.fields import block_of
from understudy.proxy.grpc.framing import percent_encoded
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.status import RpcError, StatusCode

HEADERS = block_of(
    [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-accept-encoding", b"identity,gzip"),
    ]
)
"""Before the first message of an answer."""
GOOD_END = block_of([(b"grpc-status", b"0")])
"""Behind the last one of a call that went well."""


def end_of(status: StatusCode, message: str) -> bytes:
    """Return the block of the trailers that end a call."""
    if status is StatusCode.OK:
        return GOOD_END
    return block_of([(b"grpc-status", b"%d" % status), (b"grpc-message", percent_encoded(message).encode())])


def refusal_of(http_status: int, error: RpcError) -> bytes:
    """Return the block that answers what is no call."""
    head = block_of([(b":status", b"%d" % http_status), (b"content-type", b"application/grpc")])
    return head + end_of(error.status, error.message)


class ControlBudget:
    """How many frames that carry nothing a client may still send in the current interval."""

    def __init__(self, limits: GrpcLimits) -> None:
        self._limits = limits
        self._left, self._until = 0, -math.inf

    def earn(self) -> None:
        """Allow one more for a message that was sent: with each some clients measure the link by a ping."""
        self._left += 1

    def spend(self, now: float, count: int = 1) -> bool:
        """Count *count* of them at *now*, in monotonic seconds; return whether they were within the bounds."""
        if now >= self._until:
            self._left, self._until = self._limits.control_frames, now + self._limits.control_seconds
        self._left -= count
        return self._left >= 0
