"""One HTTP/2 connection and the calls on it.

The laws:

* ``protocol.py`` is the whole state of HTTP/2; bytes go in by one task, and what they say is dealt with in place. A
  call with one request gets a task when the request is complete, unless its method begins what it takes at once: what
  is only begun, and what waits for somebody else's answer alone, is a row in a table.
* Nothing here waits to write. Answers go through an :class:`~understudy.runtime.outbox.Outbox`; a client that does not
  read is not read from, and is disconnected when it stalls.
* What a client may hold is bounded: messages by size, calls by number, unread data by its window, control frames by
  rate, and the bodies of all requests of the process by one budget.
* A fault of one call ends that call; a fault of the protocol ends the connection with a GOAWAY that says why.
"""

from __future__ import annotations

import math
from functools import partial

import trio

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.call import Call, Handler
from understudy.proxy.grpc.frames import ErrorCode
from understudy.proxy.grpc.framing import IDENTITY, MessageReader, framed, refusal, timeout_seconds
from understudy.proxy.grpc.held import Held
from understudy.proxy.grpc.liveness import Attention, Liveness
from understudy.proxy.grpc.protocol import ProtocolError, ServerProtocol
from understudy.proxy.grpc.shared import Shared
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.grpc.writing import Writing
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.outbox import Outbox
from understudy.runtime.signal import Signal

log = get_logger("proxy.grpc")

_CLOSE_GRACE_SECONDS = 1.0
_FEW_CALLS, _SOME_ROOM_BYTES = 16, 1024
_ENDED_AT_ONCE = 16
"""Calls of a connection that end in one turn of the event loop: each may have a task."""
_FRAMES_AT_ONCE = 16
"""Frames that are dealt with between two looks at the clock: half a millisecond."""


class GrpcConnection:
    """One client.

    Args:
        stream: its bytes; TLS and preambles are off.
        shared: of its server.
        peer: the client's host and port, if a preamble named another than *stream* has.

    Attributes:
        peer, local: addresses of both sides.
        source: the host at the other end of the wire, whatever a preamble says: what trust is measured by.
        clock, threads: as given.
        held: what its calls hold.
    """

    def __init__(self, stream: ByteStream, shared: Shared, peer: tuple[str, int] | None = None) -> None:
        self.peer, self.source = peer or stream.peer, stream.peer[0]
        self.local = stream.local
        self.clock = shared.clock
        self.threads = shared.threads
        self.held = Held(shared.load, self)
        self._stream = stream
        self._load = shared.load
        self._methods = shared.methods
        self._limits = limits = shared.limits
        self._handed_on = shared.handed_on
        self._outbox = Outbox(stream, self.clock, limits, self._load.outgoing, self.close)
        self._protocol = ServerProtocol(limits, self)
        self._calls: dict[int, Call] = {}
        self._writing = Writing(self._protocol, self._outbox, shared.later)
        self._call_ended = Signal()
        self._nursery: trio.Nursery | None = None
        self._receiving = trio.CancelScope()
        self._stopping = self._ended = False
        self._closing = ""
        self._life = Liveness(limits, self.clock.monotonic())
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
        self._writing.flush()
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
                if self._deals_with(data):
                    await self._take_turns()
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

    def _deals_with(self, data: bytes = b"", until: float = -math.inf) -> bool:
        """Deal with *data*, and what was left before it, and send what that leads to; return whether something is left.

        Args:
            data: bytes of the client.
            until: monotonic seconds after which only a few frames more are dealt with.
        """
        writing, clock = self._writing, self.clock
        writing.corked = True
        try:
            left = self._protocol.receive(data, _FRAMES_AT_ONCE)
            while left and not self._closing and clock.monotonic() < until:
                left = self._protocol.receive(b"", _FRAMES_AT_ONCE)
        except ProtocolError as error:
            self._closing, left = f"protocol error: {error}", False
        finally:
            writing.corked = False
            self._handed_on()
        writing.flush()
        return left and not self._closing

    async def _take_turns(self) -> None:
        """Deal with what is left; connections with much to do work one after the other."""
        left = True
        while left:
            async with self._load.turn:
                left = self._deals_with(until=self.clock.monotonic() + self._limits.turn_seconds)

    async def _last_words(self) -> None:
        """Wait until what was said is sent, but not for long."""
        self._writing.flush()
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
            self._protocol.ping()
            self._writing.flush()
        return due

    def goodbye(self) -> None:
        """Tell the client to open no more calls here; those that are open go on."""
        if not self._stopping:
            self._stopping = True
            self._protocol.goodbye()
            self._writing.flush()

    async def drain(self) -> None:
        """Say goodbye, end calls that have no end, and wait a little for the others."""
        self.goodbye()
        for call in list(self._calls.values()):
            if call.method.endless or not call.started:
                self._end(call, StatusCode.UNAVAILABLE, "the server stops; call again, at another one")
        with self.clock.move_on_after(self._limits.drain_seconds):
            while self._calls:
                await self._call_ended.wait()
            self._writing.flush()
            await self._outbox.wait_drained()

    # --- what comes --------------------------------------------------------------------------------------------

    def on_control(self, count: int = 1) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        limits = self._limits
        if not self._control.spend(self._life.last_byte, count) and not self._closing:
            self._closing = f"more than {limits.control_frames} control frames in {limits.control_seconds:g} s"
            self._protocol.close(ErrorCode.ENHANCE_YOUR_CALM)

    def on_settings(self) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        self.on_control(self._limits.settings_frames)
        self._writing.wake_all()

    def on_room(self, stream_id: int) -> None:
        """Wake who waits for room on the stream, or all who do unless they are many and there is next to none."""
        if stream_id:
            self._writing.wake(stream_id)
        elif len(self._calls) <= _FEW_CALLS or self._protocol.window >= _SOME_ROOM_BYTES:
            self._writing.wake_all()

    def on_pong(self) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        self._life.pong()

    def on_goodbye(self) -> None:
        """See there; calls that are open go on, but for those without end."""
        for call in [each for each in self._calls.values() if each.method.endless]:
            self._end(call, StatusCode.OK, "")
        if not self._calls:
            self._closing = self._closing or "closed by the client"

    def on_reset(self, stream_id: int) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        if (call := self._calls.get(stream_id)) is not None:
            self._forget(call)

    def on_request(self, stream_id: int, fields: dict[str, str]) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        now = self._life.last_call = self._life.last_byte
        refused = refusal(fields, self._methods)
        if refused is not None:
            self._writing.end(stream_id, http2.refusal_of(*refused))
            return
        method, timeout = self._methods[fields[":path"]], fields.get("grpc-timeout")
        deadline = None if timeout is None else now + timeout_seconds(timeout)
        most = min(self._limits.message_bytes, method.most_bytes or self._limits.message_bytes)
        reader = MessageReader(most, fields.get("grpc-encoding", IDENTITY))
        call = self._calls[stream_id] = Call(self, stream_id, method, fields, reader, now, deadline)
        if not self.held.park(call, self._limits.call_bytes):
            why = "too many calls wait at this server; wait for answers before you call again, or use another server"
            self._end(call, StatusCode.RESOURCE_EXHAUSTED, why)
        elif self._stopping:
            self._end(call, StatusCode.UNAVAILABLE, "the server stops; call again, at another one")
        elif method.streams:
            self._start(call, method.handler)

    def on_data(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        """See there.

        Args:
            stream_id, data, size, ended: as there.
        """
        call = self._calls.get(stream_id)
        if call is None:  # of a call that has ended: only the window of all calls is given back
            self._writing.give_back(size, stream_id)
            return
        if not data and not ended:  # many clients end each request by a frame of its own
            self.on_control()
        try:
            messages = call.reader.feed(data)
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

    def on_end(self, stream_id: int) -> None:
        """See :class:`~understudy.proxy.grpc.protocol.Receiver`."""
        call = self._calls.get(stream_id)
        if call is None:
            return
        call.end_of_messages()
        if call.method.streams:
            if call.parked is not None:
                self.resume(call)
        elif call.unread:
            if not call.begins_at_once():
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
        self._writing.end(call.stream_id, trailers if call.headers_sent else http2.HEADERS + trailers)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        if self._calls.pop(call.stream_id, None) is None:
            return
        self.held.release(call)
        if size := call.unacknowledged_bytes:
            self._writing.give_back(size, call.stream_id)
        self._life.last_call = self.clock.monotonic()
        self._call_ended.set()
        self._writing.wake(call.stream_id)
        call.stop()

    # --- what goes ---------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, message: bytes, *, more: bool) -> None:
        """Send one message of *call*, see :meth:`Call.send`."""
        await self._writing.message(call, framed(message))
        self._control.earn()
        if not more:
            self._writing.flush_later()

    def answer(self, call: Call, message: bytes) -> None:
        """Answer a parked call and end it, see :meth:`Call.answer`."""
        if not self.holds(call):
            return
        if self._writing.whole(call, framed(message)):
            call.goes_on()
            self._control.earn()
            self._end(call, StatusCode.OK, "")
        else:  # a task waits for room
            call.park(partial(Call.send, message=message, more=True))
            self.resume(call)
