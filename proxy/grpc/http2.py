"""What a server of calls needs of HTTP/2: the protocol's state as ``h2`` keeps it, header fields, and a GOAWAY."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event
from h2.exceptions import ProtocolError
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


class ServerState(H2Connection):
    """The state of a connection, with two bounds that ``h2`` does not have.

    * For each new stream it looks at all others. Here it looks when many have been opened, or the limit seems reached,
      so that a few more may be open than are allowed.
    * It keeps 64 frames of a header list that is not complete; here no more than a list may have.

    Args:
        configuration: of ``h2``.
        limits: of the connection.
    """

    def __init__(self, configuration: H2Configuration, limits: GrpcLimits) -> None:
        super().__init__(configuration)
        self._limits = limits
        self._look_after = max(limits.calls // 16, 1)
        self._not_looked, self._seen_open = 0, 0

    def _open_streams(self, remainder: int) -> int:
        self._not_looked += 1
        if self._not_looked >= self._look_after or self._seen_open + 1 >= self._limits.calls:
            self._not_looked, self._seen_open = 0, super()._open_streams(remainder)
        return self._seen_open

    def receive_data(self, data: Any) -> list[Event]:
        """See ``h2``. Raises ``ProtocolError`` for a header list that goes on and on, too."""
        found = super().receive_data(data)
        kept = self.incoming_buffer._headers_buffer
        if kept and sum(len(frame.data) for frame in kept) > 2 * self._limits.header_list_bytes:
            raise ProtocolError(f"header fields of more than {self._limits.header_list_bytes} bytes")
        return found


class _Values(list[Any]):
    """The values of one setting: the one in force, and those that the other side has not acknowledged."""

    def popleft(self) -> Any:
        """Take the first of them away."""
        return self.pop(0)


class SmallSettings(Settings):
    """Settings in little memory: an idle client holds twice eight of them, and h2 keeps a queue of 760 bytes for each.

    What means nothing here is not kept: there are 65,536 numbers, and a client may send them all.

    Args:
        client: whose they are.
        values: that differ from those of the protocol.
    """

    def __init__(self, client: bool, values: dict[SettingCodes, int] | None = None) -> None:
        super().__init__(client, values)
        self._settings: dict[Any, Any] = {key: _Values(each) for key, each in self._settings.items()}

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        if key in _MEANINGFUL:
            self._settings.setdefault(key, _Values([None]))
            super().__setitem__(key, value)


_MEANINGFUL = frozenset(SettingCodes)


def new_state(limits: GrpcLimits) -> ServerState:
    """Return the state of a new connection, as seen by its server."""
    state = ServerState(
        H2Configuration(
            client_side=False,
            validate_inbound_headers=False,  # what matters is looked at in `refusal`; the rest is the caller's
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        ),
        limits,
    )
    state.local_settings = SmallSettings(
        False,
        {
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.window_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        },
    )
    state.remote_settings = SmallSettings(True)
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


class Slices:
    """How many bytes of what a client sent at once are dealt with before a look at the clock.

    A kilobyte is a part of a message, or fifty calls: where it takes long, the next slice is a smaller one.

    Args:
        limits: of the connection.
        monotonic: returns seconds.

    Attributes:
        size: of the next slice in bytes.
    """

    def __init__(self, limits: GrpcLimits, monotonic: Callable[[], float]) -> None:
        self._limits, self._monotonic = limits, monotonic
        self.size = self._least = max(limits.slice_bytes // 8, 1)
        self._now = self._until = 0.0

    def begin(self) -> bool:
        """Begin a turn; return whether it is over, which it is not."""
        self._now = self._monotonic()
        self._until = self._now + self._limits.turn_seconds
        return False

    def took(self) -> bool:
        """Learn from the time that the last one took; return whether the turn is over."""
        before, self._now = self._now, self._monotonic()
        if self._now - before < self._limits.turn_seconds / 8:
            self.size = min(2 * self.size, self._limits.slice_bytes)
        else:
            self.size = max(self.size // 2, self._least)
        return self._now > self._until


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
