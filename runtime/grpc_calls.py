"""Calls of gRPC that this side makes: one request, one answer, one after the other over a connection.

For what servers tell others now and then; it knows nothing of reconnecting, balancing or streams. HTTP/2 is that of
``h2``, which the extra ``otlp`` brings.

Source: PROTOCOL-HTTP2.md of gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

import understudy
from understudy.runtime.clock import Clock
from understudy.runtime.network import ByteStream

ANSWER_BYTES = 64 * 1024
"""Largest answer."""

_PREFIX_BYTES = 5
_TYPE_AT = 3  # in a frame
_GREETINGS = (b"\x04", b"")  # the first frame has settings; so little may have come that its type is not there yet
_RECEIVE_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 200


class CallFailedError(Exception):
    """A call was refused, or its answer is none; the message says why."""


@attrs.define
class _Answer:
    """What has come of an answer."""

    headers: dict[str, str] = attrs.field(factory=dict)
    content: bytearray = attrs.field(factory=bytearray)
    ended: bool = False

    def message(self) -> bytes:
        """Return the only message of a whole answer. Raises :class:`CallFailedError`."""
        if self.headers.get(":status") != "200":
            raise CallFailedError(f"HTTP status {self.headers.get(':status', 'unknown')[:_SHOWN_CHARACTERS]}")
        status = self.headers.get("grpc-status", "unknown")[:_SHOWN_CHARACTERS]
        if status != "0":
            why = unquote(self.headers.get("grpc-message", ""))[:_SHOWN_CHARACTERS]
            raise CallFailedError(f"gRPC status {status}" + (f": {why}" if why else ""))
        prefix = self.content[:_PREFIX_BYTES]
        if prefix[:1] != b"\x00" or int.from_bytes(prefix[1:], "big") != len(self.content) - _PREFIX_BYTES:
            raise CallFailedError("the answer is not one plain message")
        return bytes(self.content[_PREFIX_BYTES:])


class GrpcCalls:
    """One connection.

    Args:
        clock: for timeouts.
        stream: the connection, open; who opened it closes it.
        authority: host and port of the other side.
        secure: whether it is secured by TLS.
    """

    def __init__(self, clock: Clock, stream: ByteStream, authority: str, secure: bool) -> None:
        self._clock = clock
        self._stream = stream
        self._fixed = [(":method", "POST"), (":scheme", "https" if secure else "http"), (":authority", authority)]
        self._greeted = False
        self._state = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._state.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._state.initiate_connection()

    async def call(
        self, path: str, request: bytes, headers: Iterable[tuple[str, str]], timeout_seconds: float
    ) -> bytes:
        """Call a method.

        Args:
            path: of the method.
            request: its message.
            headers: more header fields.
            timeout_seconds: until the answer must have come.

        Returns:
            The message of the answer.

        Raises:
            CallFailedError: the other side refused, or does not speak gRPC. The connection is of no use any more, as
                after the others.
            TimeoutError: no answer in time.
            trio.BrokenResourceError: the connection broke.
        """
        fields = [
            *self._fixed,
            (":path", path),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", f"understudy/{understudy.__version__}"),
            ("grpc-timeout", f"{min(int(timeout_seconds * 1000), 99_999_999)}m"),
            *headers,
        ]
        with self._clock.move_on_after(timeout_seconds):
            try:
                return await self._exchange(fields, b"\x00" + len(request).to_bytes(4, "big") + request)
            except ProtocolError as error:
                raise CallFailedError(f"no HTTP/2 is spoken there: {error}") from None
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")

    async def _exchange(self, fields: list[tuple[str, str]], content: bytes) -> bytes:
        state, answer = self._state, _Answer()
        number = state.get_next_available_stream_id()
        state.send_headers(number, fields)
        left = memoryview(content)
        while not answer.ended:
            left = self._send_some(number, left)
            await self._stream.send_all(state.data_to_send())
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                raise CallFailedError("the connection was closed instead of an answer")
            if not self._greeted and data[_TYPE_AT : _TYPE_AT + 1] not in _GREETINGS:
                raise CallFailedError("no HTTP/2 is spoken there")  # h2 would wait for the rest of a huge frame
            self._greeted = True
            for event in state.receive_data(data):
                self._take(event, number, answer)
        await self._stream.send_all(state.data_to_send())
        return answer.message()

    def _send_some(self, number: int, left: memoryview) -> memoryview:
        """Hand over what the other side's window allows; return the rest."""
        state = self._state
        while left and (size := min(state.local_flow_control_window(number), state.max_outbound_frame_size, len(left))):
            state.send_data(number, bytes(left[:size]), end_stream=size == len(left))
            left = left[size:]
        return left

    def _take(self, event: Any, number: int, answer: _Answer) -> None:
        if isinstance(event, ConnectionTerminated):
            raise CallFailedError("the other side ends the connection")
        if getattr(event, "stream_id", None) != number:
            return
        if isinstance(event, (ResponseReceived, TrailersReceived)):
            headers: Any = event.headers  # texts, as `header_encoding` asks
            answer.headers |= dict(headers)
        elif isinstance(event, DataReceived):
            answer.content += event.data
            if len(answer.content) > ANSWER_BYTES:
                raise CallFailedError(f"an answer of more than {ANSWER_BYTES} bytes")
            self._state.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, StreamEnded):
            answer.ended = True
        elif isinstance(event, StreamReset):
            raise CallFailedError(f"the call was reset, error {event.error_code}")
