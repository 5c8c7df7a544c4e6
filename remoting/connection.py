"""One connection: frames in both directions, requests of both sides, bounded buffers.

The laws:

* Everything that one receive brought is decoded and handed on before anything is sent; what the handlers answered goes
  out in one vectored write, after those on other connections who waited for just that were answered.
* ``write`` never waits. What the network does not take at once is kept in the outbox and sent by a task that lives only
  as long as there is something to send.
* A peer that does not read its answers is not read from (:attr:`ConnectionLimits.pause_bytes`), and is disconnected
  when it stalls or its outbox overflows. Nothing about it touches another connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from understudy.remoting import proxy_protocol
from understudy.remoting.command import Command
from understudy.remoting.errors import ConnectionLostError, InvokeTimeoutError
from understudy.remoting.frame import Buffer, FrameError, FrameReader, encode
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream

log = get_logger("remoting.connection")

_SEND_CHUNK_BYTES = 256 * 1024
_CLOSE_GRACE_SECONDS = 1.0

Dispatch = Callable[["Connection", Command], None]


class Connection:
    """One established connection, the same for the side that opened it and the side that accepted it.

    Attributes:
        local: this side's host and port.
        peer: the other side's host and port (as a PROXY preamble named it, if one came).
        opened_ms: wall time of the start.
        last_active: monotonic seconds of the last byte received or queued.
        closed: set when the connection has ended, before the owners are told.
        close_reason: why it ended, for people.
        state: a place where owners keep what they know of the peer; dies with the connection.
    """

    def __init__(self, stream: ByteStream, clock: Clock, limits: ConnectionLimits) -> None:
        self.local = stream.local
        self.peer = stream.peer
        self.opened_ms = clock.wall_ms()
        self.last_active = clock.monotonic()
        self.closed = trio.Event()
        self.close_reason = ""
        self.state: dict[str, object] = {}
        self._stream = stream
        self._clock = clock
        self._limits = limits
        self._cork: list[Buffer] | None = None
        self._outbox: list[Buffer] = []
        self._outbox_bytes = 0
        self._drained: trio.Event | None = None
        self._pending: dict[int, _Pending] = {}
        self._nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        return f"<connection {self.address}>"

    @property
    def address(self) -> str:
        """The peer as ``host:port``."""
        return f"{self.peer[0]}:{self.peer[1]}"

    @property
    def alive(self) -> bool:
        """Whether the connection can still carry a frame."""
        return not self.closed.is_set()

    # --- sending -----------------------------------------------------------------------------------------------

    def write(self, frame: Buffer | Sequence[Buffer]) -> None:
        """Send one or more whole frames, in order, without waiting; nothing happens on an ended connection.

        Args:
            frame: bytes of whole frames; views into mapped files are sent without a copy when the network takes them.
        """
        cork = self._cork
        if cork is not None:  # only while the connection is open
            if isinstance(frame, (bytes, bytearray, memoryview)):
                cork.append(frame)
            else:
                cork.extend(frame)
        elif not self.closed.is_set():
            self.last_active = self._clock.monotonic()
            self._send((frame,) if isinstance(frame, (bytes, bytearray, memoryview)) else frame)

    def respond(self, request: Command, answer: Command) -> None:
        """Send *answer* to *request*, unless the request was one-way."""
        if not request.flag & 2:
            self.write(encode(answer))

    def notify(self, command: Command) -> None:
        """Send a request of ours that is not answered."""
        command.flag |= 2
        self.write(encode(command))

    async def invoke(self, command: Command, timeout_ms: float) -> Command:
        """Send a request of ours and wait for its answer.

        Args:
            command: the request; its correlation number must be unused on this connection.
            timeout_ms: longest wait in milliseconds.

        Raises:
            InvokeTimeoutError: no answer in time.
            ConnectionLostError: the connection ended first.
        """
        if self.closed.is_set():
            raise ConnectionLostError(self.address, f"connection to {self.address} is closed: {self.close_reason}")
        opaque = command.opaque or 0
        pending = self._pending[opaque] = _Pending()
        try:
            self.write(encode(command))
            with self._clock.move_on_after(timeout_ms / 1000):
                await pending.done.wait()
        finally:
            del self._pending[opaque]
        if pending.answer is not None:
            return pending.answer
        if self.closed.is_set():
            reason = f"connection to {self.address} ended before the answer: {self.close_reason}"
            raise ConnectionLostError(self.address, reason)
        message = f"no answer from {self.address} to request {command.code} within {timeout_ms:g} ms"
        raise InvokeTimeoutError(self.address, message)

    def close(self, reason: str) -> None:
        """End the connection now; what is still unsent is dropped."""
        if not self.close_reason:
            self.close_reason = reason
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def _send(self, parts: Sequence[Buffer]) -> None:
        if self._outbox:
            self._keep(parts, 0)
            return
        sent = self._stream.send_nowait(parts)
        if sent < sum(map(len, parts)):
            self._keep(parts, sent)
            if self._nursery is not None:
                self._nursery.start_soon(self._drain)

    def _keep(self, parts: Sequence[Buffer], skip: int) -> None:
        for part in parts:
            size = len(part)
            if skip >= size:
                skip -= size
                continue
            self._outbox.append(memoryview(part)[skip:] if skip else part)
            self._outbox_bytes += size - skip
            skip = 0
        if self._outbox_bytes > self._limits.outbox_bytes:
            self.close(f"slow reader: {self._outbox_bytes} bytes wait for it, limit {self._limits.outbox_bytes}")

    async def _drain(self) -> None:
        """Send the outbox; the only task that may wait for the network to take bytes."""
        while self._outbox:
            count = size = 0
            for part in self._outbox:
                count += 1
                size += len(part)
                if size >= _SEND_CHUNK_BYTES:
                    break
            chunk = b"".join(self._outbox[:count])
            with self._clock.move_on_after(self._limits.stall_seconds) as scope:
                try:
                    await self._stream.send_all(chunk)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.close("broken by the peer or the network")
                    return
            if scope.cancelled_caught:
                self.close(f"slow reader: took nothing for {self._limits.stall_seconds:g} s")
                return
            self.last_active = self._clock.monotonic()
            del self._outbox[:count]  # only now: until then writes must queue behind the bytes under way
            self._outbox_bytes -= size
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    # --- receiving ---------------------------------------------------------------------------------------------

    async def run(
        self,
        dispatch: Dispatch,
        *,
        proxied: bool = False,
        handed_on: Callable[[], None] | None = None,
        answered: Callable[[], None] | None = None,
    ) -> None:
        """Serve the connection until it ends; never raises for what the peer or the network does.

        Args:
            dispatch: called for each request, in order; answers through :meth:`write`.
            proxied: expect that a PROXY preamble may come first (servers).
            handed_on: called when all requests of one receive were handed on, before their answers are sent.
            answered: called after that, for what nobody waits for.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    self.close_reason = await self._receive(dispatch, proxied, handed_on, answered) or self.close_reason
                finally:
                    self.closed.set()  # before the nursery closes: from here on nobody may start a task in it
                nursery.cancel_scope.cancel()
        finally:
            self.closed.set()
            self.close_reason = self.close_reason or "stopped by this side"
            for pending in self._pending.values():
                pending.done.set()
            self._outbox.clear()
            with trio.move_on_after(_CLOSE_GRACE_SECONDS, shield=True):
                await self._stream.aclose()

    async def _receive(
        self,
        dispatch: Dispatch,
        proxied: bool,
        handed_on: Callable[[], None] | None,
        answered: Callable[[], None] | None,
    ) -> str:
        """Read until the connection ends; return why."""
        reader = FrameReader(self._limits.frame_bytes, self._limits.header_bytes)
        receive, size = self._stream.receive_some, self._limits.receive_bytes
        try:
            first = await self._first_bytes() if proxied else b""
            while True:
                data = first or await receive(size)
                first = b""
                if not data:
                    return "closed by the peer"
                commands = reader.feed(data)
                del data
                cork = self._cork = []
                for command in commands:
                    if command.flag & 1:
                        self._on_response(command)
                    else:
                        dispatch(self, command)
                if handed_on is not None:
                    handed_on()
                self._cork = None
                if cork:
                    self._send(cork)
                self.last_active = self._clock.monotonic()
                if answered is not None:
                    answered()
                if cork and self._outbox_bytes > self._limits.pause_bytes:
                    await self._wait_drained()
                if reader.error is not None:
                    raise reader.error
        except (FrameError, proxy_protocol.PreambleError) as error:
            log.warning("bad frame, connection closed", peer=self.address, why=error)
            return f"bad frame: {error}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "broken by the peer or the network"
        finally:
            self._cork = None

    async def _first_bytes(self) -> bytes:
        """Wait for the first 12 bytes, as the reference does, and take a PROXY preamble off."""
        data = b""
        while len(data) < proxy_protocol.DETECTION_BYTES:
            more = await self._stream.receive_some(self._limits.receive_bytes)
            if not more:
                return b""
            data += more
        while True:
            preamble = proxy_protocol.parse(data)
            if preamble is not None:
                break
            more = await self._stream.receive_some(self._limits.receive_bytes)
            if not more:
                return b""
            data += more
        if preamble.source is not None:
            self.peer = preamble.source
        return data[preamble.length :] or await self._stream.receive_some(self._limits.receive_bytes)

    async def _wait_drained(self) -> None:
        if self._outbox:
            if self._drained is None:
                self._drained = trio.Event()
            await self._drained.wait()

    def _on_response(self, command: Command) -> None:
        pending = self._pending.get(command.opaque or 0)
        if pending is None:
            log.debug("answer to no request", peer=self.address, opaque=command.opaque, code=command.code)
            return
        pending.answer = command
        pending.done.set()

    def start_soon(self, run: Callable[..., object], *args: object) -> bool:
        """Run an async function as a child of this connection; return whether the connection is still there."""
        if self._nursery is None or self.closed.is_set():
            return False
        self._nursery.start_soon(run, *args)  # type: ignore[arg-type]  # an async function, as documented
        return True


class _Pending:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Command | None = None
