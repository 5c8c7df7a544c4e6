"""What one connection says: the frames that the protocol's state makes, and the outbox by which they leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import trio
from h2.errors import ErrorCodes
from h2.exceptions import H2Error

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.call import Call
from understudy.proxy.grpc.status import RpcError
from understudy.runtime.outbox import Outbox
from understudy.runtime.signal import Signal


class Writing:
    """The outgoing side of one connection; nothing here waits.

    Args:
        state: of the protocol.
        outbox: of the connection.

    Attributes:
        corked: what is said leaves later, together.
    """

    def __init__(self, state: http2.ServerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self.corked = False

    def flush(self) -> None:
        """Send what the protocol has to say."""
        if self.corked:
            return
        data = self._state.data_to_send()
        if data:
            self._outbox.send((data,), len(data))

    def safely(self, change: Callable[[], None]) -> None:
        """Make a change to the protocol's state, unless the stream or the connection has ended meanwhile; send it."""
        with contextlib.suppress(H2Error):
            change()
        self.flush()

    def give_back(self, size: int, stream_id: int) -> None:
        """Give back the window of *size* bytes."""
        self.safely(lambda: self._state.acknowledge_received_data(size, stream_id))

    def send(self, stream_id: int, data: bytes, at: int) -> int:
        """Make a frame of *data* from *at* on; return its bytes, 0 where its client has no room. Raises ``H2Error``."""
        window = self._state.local_flow_control_window(stream_id)
        size = min(window, self._state.max_outbound_frame_size, len(data) - at)
        if size > 0:
            self._state.send_data(stream_id, data[at : at + size] if size < len(data) else data)
        return max(size, 0)

    async def message(self, call: Call, data: bytes, window: Signal) -> None:
        """Send *data* of a call, in frames, as its client has room for them.

        Args:
            call: that is answered.
            data: a message with its length before it.
            window: told when there may be more room.

        Raises:
            trio.BrokenResourceError: the client has ended the call.
        """
        at = 0
        try:
            while at < len(data):
                if call.ended:
                    raise trio.BrokenResourceError("the client has ended the call")
                if not call.headers_sent:
                    call.headers_sent = True
                    self._state.send_headers(call.stream_id, http2.HEADERS)
                sent = 0 if self._outbox.choked else self.send(call.stream_id, data, at)
                at += sent
                if not sent:
                    self.flush()
                    await (self._outbox.wait_drained() if self._outbox.choked else window.wait())
        except H2Error as error:
            raise trio.BrokenResourceError(f"the client has ended the call: {error}") from None

    def end(self, stream_id: int, headers: http2.Headers, *, complete: bool) -> None:
        """End a stream; *complete*: its client has sent everything."""

        def close() -> None:
            self._state.send_headers(stream_id, headers, end_stream=True)
            if not complete:
                self._state.reset_stream(stream_id, ErrorCodes.NO_ERROR)

        self.safely(close)

    def refuse(self, stream_id: int, http_status: int, error: RpcError) -> None:
        """End what is no call."""
        headers = [(b":status", str(http_status).encode()), (b"content-type", b"application/grpc")]
        self.end(stream_id, [*headers, *http2.end_of(error.status, error.message)], complete=False)

    def goodbye(self) -> None:
        """Say that no more calls may be opened; those that are open go on."""
        self.flush()
        self._outbox.send((http2.GOODBYE,), len(http2.GOODBYE))

    def close(self, why: ErrorCodes) -> None:
        """Say that the connection ends, and why."""
        self.safely(lambda: self._state.close_connection(why))
