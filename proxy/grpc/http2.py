"""What a server of calls needs of HTTP/2: the protocol's state as ``h2`` keeps it, header fields, and a GOAWAY."""

from __future__ import annotations

import math

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from understudy.proxy.grpc.framing import percent_encoded
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.status import StatusCode

DEFAULT_WINDOW_BYTES = 65_535
"""Of a connection, before anything is said of it."""

Headers = list[tuple[bytes, bytes]]

HEADERS: Headers = [
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity,gzip"),
]
GOOD_END: Headers = [(b"grpc-status", b"0")]

_ANY_STREAM = (1 << 31) - 1
#: Made here, as h2 takes a connection for closed once it has sent one, and answers no open call.
GOODBYE = GoAwayFrame(0, last_stream_id=_ANY_STREAM, error_code=int(ErrorCodes.NO_ERROR)).serialize()


def new_state(limits: GrpcLimits) -> H2Connection:
    """Return the state of a new connection, as seen by its server."""
    state = H2Connection(
        H2Configuration(
            client_side=False,
            validate_inbound_headers=False,  # what matters is looked at in `refusal`; the rest is the caller's
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    state.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.window_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        },
    )
    state.decoder.max_header_list_size = limits.header_list_bytes
    return state


def end_of(status: StatusCode, message: str) -> Headers:
    """Return the trailers that end a call."""
    if status is StatusCode.OK:
        return GOOD_END
    return [(b"grpc-status", str(int(status)).encode()), (b"grpc-message", percent_encoded(message).encode())]


def text_of(value: bytes | str) -> str:
    """Return a name or value of a header field as text."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


class ControlBudget:
    """How many frames that carry nothing a client may still send in the current interval."""

    def __init__(self, limits: GrpcLimits) -> None:
        self._limits = limits
        self._left, self._until = 0, -math.inf

    def spend(self, now: float) -> bool:
        """Count one at *now*, in monotonic seconds; return whether it was within the bounds."""
        if now >= self._until:
            self._left, self._until = self._limits.control_frames, now + self._limits.control_seconds
        self._left -= 1
        return self._left >= 0
