"""One HTTP/2 connection and the calls on it.

The laws:

* ``h2`` is the whole protocol state; bytes go in by one task, and events are dealt with in place. A call with a single
  request gets a task when the request is complete: what is only begun is a row in a table.
* Nothing here waits to write. Answers go through an :class:`~understudy.runtime.outbox.Outbox`; a client that does not
  read is not read from, and is disconnected when it stalls.
* What a client may hold is bounded: messages by size, calls by number, unread data by its window, control frames by
  rate, and the bodies of all requests of the process by one budget.
* A fault of one call ends that call; a fault of the protocol ends the connection with a GOAWAY that says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio
from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import H2Error

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.call import Call, Handler, Method
from understudy.proxy.grpc.framing import IDENTITY, MessageReader, framed, refusal, timeout_seconds
from understudy.proxy.grpc.held import Held
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.liveness import Attention, Liveness
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.grpc.writing import Writing
from understudy.runtime.clock import Clock
from understudy.runtime.load import Load
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.outbox import Outbox
from understudy.runtime.signal import Signal
from understudy.runtime.threads import Threads

log = get_logger("proxy.grpc")

_CLOSE_GRACE_SECONDS = 1.0
_FEW_CALLS, _SOME_ROOM_BYTES = 16, 1024
_ENDED_AT_ONCE = 16
"""Calls of a connection that end in one turn of the event loop: each may have a task."""
_CONTROL = (events.PingReceived, events.StreamReset, events.PriorityUpdated)


class GrpcConnection:
    """One client.

    Args:
        stream: its bytes; TLS and preambles are off.
        clock: for deadlines and idle times.
        load: where unread requests, open calls and unsent answers are counted.
        threads: for what takes long.
        methods: by path, as ``/package.Service/Method``.
        limits: see there.
        peer: the client's host and port, if a preamble named another than *stream* has.

    Attributes:
        peer, local: addresses of both sides.
        source: the host at the other end of the wire, whatever a preamble says: what trust is measured by.
        clock, threads: as given.
        held: what its calls hold.
    """

    def __init__(
        self,
        stream: ByteStream,
        clock: Clock,
        load: Load,
        threads: Threads,
        methods: Mapping[str, Method],
        limits: GrpcLimits,
        peer: tuple[str, int] | None = None,
    ) -> None:
        self.peer, self.source = peer or stream.peer, stream.peer[0]
        self.local = stream.local
        self.clock = clock
        self.threads = threads
        self.held = Held(load, self)
        self._stream = stream
        self._load = load
        self._methods = methods
        self._limits = limits
        self._outbox = Outbox(stream, clock, limits, load.outgoing, self.close)
        self._h2 = http2.new_state(limits)
        self._calls: dict[int, Call] = {}
        self._writing = Writing(self._h2, self._outbox)
        self._window = Signal()
        self._nursery: trio.Nursery | None = None
        self._receiving = trio.CancelScope()
        self._stopping = self._ended = False
        self._closing = ""
        self._life = Liveness(limits, clock.monotonic())
        self._control = http2.ControlBudget(limits)

    def holds(self, call: Call) -> bool:
        """Tell whether *call* is still to be answered."""
        return self._calls.get(call.stream_id) is call

    # --- life --------------------------------------------------------------------------------------------------

    async def run(self, first: bytes = b"") -> None:
        """Serve the connection until it ends; never raises for what the client or the network does.

        Args:
            first: bytes that were received already.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = self._outbox.nursery = nursery
                self._h2.initiate_connection()
                self._h2.increment_flow_control_window(self._limits.window_bytes - http2.DEFAULT_WINDOW_BYTES)
                self._writing.flush()
                try:
                    with self._receiving:
                        await self._receive(first)
                    await self._end_calls()
                finally:
                    self._ended = True  # before the nursery closes: from here on nobody may start a task in it
                nursery.cancel_scope.cancel()
        finally:
            self._writing.corked = True  # nothing leaves any more
            for call in list(self._calls.values()):
                self._forget(call)
            self._outbox.ended()
            with trio.move_on_after(_CLOSE_GRACE_SECONDS, shield=True):
                await self._stream.aclose()

    async def _end_calls(self) -> None:
        """Let go of what is open, some of it in a turn; when thousands of clients leave at once, each has its turns."""
        self._writing.corked = True  # nothing leaves any more
        calls = list(self._calls.values())
        for first in range(0, max(len(calls), 1), _ENDED_AT_ONCE):
            async with self._load.turn:
                for call in calls[first : first + _ENDED_AT_ONCE]:
                    self._forget(call)

    async def _receive(self, data: bytes) -> None:
        size = self._limits.receive_bytes
        try:
            data = data or await self._stream.receive_some(size)
            while data and not self._closing:
                self._life.last_byte = self.clock.monotonic()
                if len(data) <= self._limits.slice_bytes:
                    self._take_slice(data)
                else:
                    await self._take_in_turns(data)
                if self._outbox.unsent and self._outbox.choked:
                    await self._outbox.wait_drained()
                data = b"" if self._closing else await self._stream.receive_some(size)
            if self._closing:
                told, now = self._load.lines, self.clock.monotonic()
                peer = f"{self.peer[0]}:{self.peer[1]}"
                told.tell(log.info, "gRPC client disconnected", now, peer=peer, why=self._closing)
                await self._last_words()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone

    def _take_slice(self, data: bytes) -> None:
        """Deal with *data*, and send what that leads to."""
        self._writing.corked = True
        try:
            self._take(self._h2.receive_data(data))
        except (H2Error, ValueError, IndexError, KeyError) as error:  # the last three: hpack and hyperframe
            self._closing = f"protocol error: {str(error) or type(error).__name__}"
        finally:
            self._writing.corked = False
        self._writing.flush()

    async def _take_in_turns(self, data: bytes) -> None:
        """Deal with *data* slice by slice; connections with much to do work one after the other."""
        slices, view, at = http2.Slices(self._limits, self.clock.monotonic), memoryview(data), 0
        while at < len(view) and not self._closing:
            async with self._load.turn:
                over = slices.begin()
                while at < len(view) and not self._closing and not over:
                    size = slices.size
                    self._take_slice(bytes(view[at : at + size]))
                    at, over = at + size, slices.took()

    async def _last_words(self) -> None:
        """Wait until what was said is sent, but not for long."""
        with self.clock.move_on_after(_CLOSE_GRACE_SECONDS):
            await self._outbox.wait_drained()

    async def _leave(self) -> None:
        self.goodbye()
        await self._last_words()
        self.close("idle")

    def close(self, reason: str) -> None:
        """End the connection now; what is unsent is dropped."""
        self._closing = self._closing or reason
        self._outbox.drop()
        self._receiving.cancel()

    def look(self, now: float) -> float:
        """Close, ping or leave the client, as it deserves at *now*; return when to look again (monotonic seconds)."""
        if self._ended:
            return math.inf
        limits = self._limits
        for call in list(self._calls.values()):
            if not call.started and now - call.received_at >= limits.request_seconds:
                why = f"the request was not complete within {limits.request_seconds:g} s"
                self._end(call, StatusCode.DEADLINE_EXCEEDED, why)
        attention, due = self._life.look(now, has_calls=bool(self._calls))
        if attention is Attention.GOODBYE and not self._stopping and self._nursery is not None:
            self._nursery.start_soon(self._leave)
        elif attention is Attention.CLOSE:
            self.close(attention.value)
        elif attention is Attention.PING:
            self._h2.ping(b"are here")
            self._writing.flush()
        return due

    def goodbye(self) -> None:
        """Tell the client to open no more calls here; those that are open go on."""
        if not self._stopping:
            self._stopping = True
            self._writing.goodbye()

    async def drain(self) -> None:
        """Say goodbye, end calls that have no end, and wait a little for the others."""
        self.goodbye()
        for call in list(self._calls.values()):
            if call.method.endless or not call.started:
                self._end(call, StatusCode.UNAVAILABLE, "the server stops; call again, at another one")
        with self.clock.move_on_after(self._limits.drain_seconds):
            while self._calls:
                await self._window.wait()
            await self._outbox.wait_drained()

    # --- what comes --------------------------------------------------------------------------------------------

    def _take(self, found: list[events.Event]) -> None:
        told: events.Event | None = None  # a priority that is a part of the request before it, and no frame
        for event in found:
            if isinstance(event, events.DataReceived):
                self._on_data(event)
            elif isinstance(event, events.RequestReceived):
                self._on_request(event)
                told = event.priority_updated
            elif isinstance(event, events.StreamEnded):
                self._on_end(event.stream_id or 0)
            elif isinstance(event, events.WindowUpdated):
                self._on_window(event.stream_id or 0)
            elif isinstance(event, events.RemoteSettingsChanged):
                self._count_control(self._limits.settings_frames)
                self._window.set()
            elif isinstance(event, events.StreamReset):
                if (call := self._calls.get(event.stream_id or 0)) is not None:
                    self._forget(call)
            elif isinstance(event, events.ConnectionTerminated):
                self._closing = "closed by the client"
            elif isinstance(event, events.PingAckReceived):
                self._life.pong()
            if isinstance(event, _CONTROL) and event is not told:
                self._count_control()

    def _count_control(self, count: int = 1) -> None:
        limits = self._limits
        if not self._control.spend(self._life.last_byte, count) and not self._closing:
            self._closing = f"more than {limits.control_frames} control frames in {limits.control_seconds:g} s"
            self._writing.close(ErrorCodes.ENHANCE_YOUR_CALM)

    def _on_window(self, stream_id: int) -> None:
        """Wake those who wait for room, unless all of many do and there is next to none."""
        if stream_id or len(self._calls) <= _FEW_CALLS or self._h2.outbound_flow_control_window >= _SOME_ROOM_BYTES:
            self._window.set()

    def _on_request(self, event: events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        headers = {http2.text_of(name): http2.text_of(value) for name, value in event.headers or ()}
        self._life.last_call = self._life.last_byte
        refused = refusal(headers, self._methods)
        if refused is not None:
            self._writing.refuse(stream_id, *refused)
            return
        method, timeout = self._methods[headers[":path"]], headers.get("grpc-timeout")
        deadline = None if timeout is None else self._life.last_byte + timeout_seconds(timeout)
        most = min(self._limits.message_bytes, method.most_bytes or self._limits.message_bytes)
        reader = MessageReader(most, headers.get("grpc-encoding", IDENTITY))
        call = self._calls[stream_id] = Call(self, stream_id, method, headers, reader, self._life.last_byte, deadline)
        if not self.held.park(call, self._limits.call_bytes):
            why = "too many calls wait at this server; wait for answers before you call again, or use another server"
            self._end(call, StatusCode.RESOURCE_EXHAUSTED, why)
        elif self._stopping:
            self._end(call, StatusCode.UNAVAILABLE, "the server stops; call again, at another one")
        elif method.streams:
            self._start(call, method.handler)

    def _on_data(self, event: events.DataReceived) -> None:
        call = self._calls.get(event.stream_id or 0)
        size = event.flow_controlled_length or 0
        if call is None:  # of a call that has ended: only the window of all calls is given back
            if size:
                self._writing.give_back(size, event.stream_id or 0)
            return
        if not event.data and event.stream_ended is None:  # many clients end each request by a frame of its own
            self._count_control()
        try:
            messages = call.reader.feed(event.data or b"")
            if call.unread + len(messages) > 1 and not call.method.streams:
                raise RpcError(StatusCode.INTERNAL, "a call of this method has one message")
            call.take(messages)
            self.held.request(call, call.unread_bytes + call.reader.pending_bytes)
            if messages and call.parked is not None:
                self.resume(call)
        except RpcError as error:
            self._writing.give_back(size, call.stream_id)
            self._end(call, error.status, error.message)
            return
        call.unacknowledged_bytes += size
        self.taken(call)

    def taken(self, call: Call) -> None:
        """Give the client's window back, unless too many messages of the call wait."""
        size = call.unacknowledged_bytes
        if size and call.unread <= self._limits.unread_messages and self.holds(call):
            call.unacknowledged_bytes = 0
            self._writing.give_back(size, call.stream_id)

    def _on_end(self, stream_id: int) -> None:
        call = self._calls.get(stream_id)
        if call is None:
            return
        call.end_of_messages()
        if call.method.streams:
            if call.parked is not None:
                self.resume(call)
        elif call.unread:
            self._start(call, call.method.handler)
        else:
            self._end(call, StatusCode.INTERNAL, "the call has no whole message")

    # --- calls -------------------------------------------------------------------------------------------------

    def _start(self, call: Call, handler: Handler) -> None:
        assert self._nursery is not None
        call.started = True
        call.scope = trio.CancelScope()
        self._nursery.start_soon(self._serve, call, call.scope, handler)

    def resume(self, call: Call) -> bool:
        """Go on with a parked call, see :meth:`Call.resume`."""
        if self._nursery is None or self._ended or not self.holds(call):
            return False
        handler = call.goes_on()
        if handler is not None:
            self._start(call, handler)
        return True

    async def _serve(self, call: Call, scope: trio.CancelScope, handler: Handler) -> None:
        status, message = StatusCode.OK, ""
        timeout = call.remaining_seconds()
        with scope, self.clock.move_on_after(math.inf if timeout is None else timeout) as in_time:
            try:
                await handler(call)
            except RpcError as error:
                status, message = error.status, error.message
            except trio.BrokenResourceError:
                return  # the client is gone
            except Exception as error:  # a fault of one call must never end another
                log.error("call failed", exc=error, path=call.metadata.get(":path"), error=repr(error))
                status, message = StatusCode.INTERNAL, "the server failed; its log says why"
        if in_time.cancelled_caught:
            status, message = StatusCode.DEADLINE_EXCEEDED, "no answer within the time that the client has set"
        if call.parked is None:
            self._end(call, status, message)

    def _end(self, call: Call, status: StatusCode, message: str) -> None:
        """Send the end of *call* and forget it; nothing happens when its client has done so before."""
        if not self.holds(call):
            return
        trailers = http2.end_of(status, message)
        headers = trailers if call.headers_sent else [*http2.HEADERS, *trailers]
        self._writing.end(call.stream_id, headers, complete=call.complete)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        if self._calls.pop(call.stream_id, None) is None:
            return
        self.held.release(call)
        if size := call.unacknowledged_bytes:
            self._writing.give_back(size, call.stream_id)
        self._life.last_call = self.clock.monotonic()
        self._window.set()  # who waits for a window or for the last call
        call.stop()

    # --- what goes ---------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, message: bytes, *, more: bool) -> None:
        """Send one message of *call*, see :meth:`Call.send`."""
        await self._writing.message(call, framed(message), self._window)
        self._control.earn()
        if not more:
            self._writing.flush()
