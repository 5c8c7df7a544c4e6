"""One connection: frames in both directions, requests of both sides, bounded buffers.

The laws:

* What one receive brought is decoded and handed on before anything is sent; what the handlers answered goes out in one
  vectored write, after those on other connections who waited for just that were answered. A receive that makes too
  many bytes (:attr:`ConnectionLimits.pause_bytes`) or takes too long (``turn_seconds``) is cut: its answers so far go
  out, and the rest waits until they are read and the others had their turn.
* ``write`` never waits. What the network does not take at once waits in the outbox (``runtime/outbox.py``).
* A peer that does not read its answers is not read from (:attr:`ConnectionLimits.pause_bytes`), and is disconnected
  when it stalls or its outbox overflows. Nothing about it touches another connection.
* What waits here counts into the totals of the process (``runtime/load.py``); when they are short, the connections that
  hold most are refused first: a request that is still incomplete is answered busy and skipped, a slow reader is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import ONEWAY_BIT, RESPONSE_BIT, Command, response
from understudy.remoting.errors import ConnectionLostError, InvokeTimeoutError
from understudy.remoting.frame import Buffer, FrameError, FrameReader, encode
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime import proxy_protocol
from understudy.runtime.clock import Clock
from understudy.runtime.load import Load
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.outbox import Outbox

log = get_logger("remoting.connection")

_CLOSE_GRACE_SECONDS = 1.0
_MANY_COMMANDS = 32
"""From so many on, the commands of one receive wait for a turn among those with much work."""
_MUCH_BYTES = 1024 * 1024
"""Of an incomplete request; the rest of it is taken in turns."""
_DECODED_AT_ONCE = 8
"""Commands that are taken from the reader when those before them are handed on."""
_NO_MEMORY = "[OVERLOAD]system busy, requests hold too much memory of this server; slow down and try again"

Dispatch = Callable[["Connection", Command], None]


class Connection:
    """One established connection, the same for the side that opened it and the side that accepted it.

    Attributes:
        local: this side's host and port.
        peer: the other side's host and port (as a PROXY preamble named it, if one came).
        source: the host at the other end of the wire, whatever a preamble says: what trust is measured by.
        closed: set when the connection has ended, before the owners are told.
        close_reason: why it ended, for people.
        state: a place where owners keep what they know of the peer; dies with the connection.
        holds: how often :meth:`hold` has begun, so that owners can tell what came in one receive.
    """

    def __init__(self, stream: ByteStream, clock: Clock, limits: ConnectionLimits, load: Load | None = None) -> None:
        self.local = stream.local
        self.peer = stream.peer
        self.source = stream.peer[0]
        self._last_active = clock.monotonic()
        self.closed = trio.Event()
        self.close_reason = ""
        self.state: dict[str, object] = {}
        self._stream = stream
        self._clock = clock
        self._limits = limits
        self._load = load if load is not None else Load()
        self._cork: list[Buffer] | None = None
        self._outbox = Outbox(stream, clock, limits, self._load.outgoing, self.close)
        self._corked_bytes = self.holds = 0
        self._incoming_bytes = 0
        self._pending: dict[int, _Pending] = {}
        self._asked: dict[int, Callable[[Command | None], None]] = {}
        self._nursery: trio.Nursery | None = None
        self.sign: Callable[[Command], None] | None = None

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

    @property
    def last_active(self) -> float:
        """Monotonic seconds of the last byte received, queued or sent."""
        return max(self._last_active, self._outbox.last_sent)

    @property
    def choked(self) -> bool:
        """Whether so much waits for the peer that no more answers should be made for it; see :meth:`when_drained`."""
        return self._outbox.choked

    def when_drained(self, callback: Callable[[], None]) -> None:
        """Call *callback* once, without arguments, when a choked connection has sent what waited, or has ended."""
        self._outbox.when_drained(callback)

    # --- sending -----------------------------------------------------------------------------------------------

    def write(self, frame: Buffer | Sequence[Buffer]) -> None:
        """Send one or more whole frames, in order, without waiting; nothing happens on an ended connection.

        Args:
            frame: bytes of whole frames; views into mapped files are sent without a copy when the network takes them.
        """
        cork = self._cork
        if cork is not None:  # only while the connection is open
            if type(frame) is bytes or isinstance(frame, (bytes, bytearray, memoryview)):  # nearly always the first
                cork.append(frame)
                self._corked_bytes += len(frame)
            else:
                cork.extend(frame)
                self._corked_bytes += sum(map(len, frame))
        elif not self.closed.is_set():
            self._last_active = self._clock.monotonic()
            parts = (frame,) if isinstance(frame, (bytes, bytearray, memoryview)) else frame
            self._outbox.send(parts, sum(map(len, parts)))

    @property
    def receiving(self) -> bool:
        """Whether requests of one receive are being handed on just now, or what is written is held."""
        return self._cork is not None

    def hold(self) -> bool:
        """Keep what is written until :meth:`release` sends all of it at once; nothing may be awaited between the two.

        Returns:
            Whether it is so now; not when it is kept already, or the connection has ended.
        """
        if self._cork is not None or self.closed.is_set():
            return False
        self._cork, self._corked_bytes, self.holds = [], 0, self.holds + 1
        return True

    def release(self) -> None:
        """Send what was written since :meth:`hold`."""
        cork, self._cork = self._cork, None
        if cork:
            self._last_active = self._clock.monotonic()
            self._outbox.send(cork, self._corked_bytes)

    def respond(self, request: Command, answer: Command) -> None:
        """Send *answer* to *request*, unless the request was one-way."""
        if not request.flag & ONEWAY_BIT:
            self.write(encode(answer))

    def notify(self, command: Command) -> None:
        """Send a request of ours that is not answered."""
        if self.sign is not None:
            self.sign(command)
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
        if self.sign is not None:
            self.sign(command)
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

    def ask(self, command: Command, answered: Callable[[Command | None], None]) -> Callable[[], None]:
        """Send a request of ours whose answer may come late: it waits as a row, without a task.

        Args:
            command: as of :meth:`invoke`.
            answered: called once with the answer, or with ``None`` when the connection ends first; must not raise.

        Returns:
            What withdraws the question: it is not answered any more then.

        Raises:
            ConnectionLostError: the connection has ended.
        """
        if self.closed.is_set():
            raise ConnectionLostError(self.address, f"connection to {self.address} is closed: {self.close_reason}")
        if self.sign is not None:
            self.sign(command)
        opaque, frame = command.opaque or 0, encode(command)
        self._asked[opaque] = answered
        self.write(frame)

        def withdraw() -> None:
            self._asked.pop(opaque, None)

        return withdraw

    def close(self, reason: str) -> None:
        """End the connection now; what is still unsent is dropped."""
        if not self.close_reason:
            self.close_reason = reason
        self._outbox.drop()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

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
                self._nursery = self._outbox.nursery = nursery
                try:
                    self.close_reason = await self._receive(dispatch, proxied, handed_on, answered) or self.close_reason
                    async with self._load.turn:  # when thousands end at once, each has a turn of its own
                        self.closed.set()
                finally:
                    self.closed.set()  # before the nursery closes: from here on nobody may start a task in it
                nursery.cancel_scope.cancel()
        finally:
            self.closed.set()
            self.close_reason = self.close_reason or "stopped by this side"
            for pending in self._pending.values():
                pending.done.set()
            while self._asked:
                self._asked.popitem()[1](None)
            self._outbox.ended()
            self._nursery = None  # nothing of an ended connection is left for a look for garbage
            self._load.incoming.change(self, -self._incoming_bytes)
            self._incoming_bytes = 0
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
        incomplete, unsent, send = reader.incomplete, self._outbox.unsent, self._outbox.send
        monotonic, turn = self._clock.monotonic, self._load.turn
        try:
            data = await self._first_bytes() if proxied else await receive(size)
            async with self._load.newcomers:
                pass  # when thousands come at once, those that are there have their turns
            while data:
                commands = reader.feed(data, _MANY_COMMANDS + 1)
                del data
                if incomplete or self._incoming_bytes:
                    self._count_incoming(reader)
                    if self._incoming_bytes > _MUCH_BYTES and not commands:
                        async with turn:
                            pass  # peers that send much have their turns, too
                done, count = 0, len(commands)
                takes_turn = count > _MANY_COMMANDS  # those behind them are decoded in turns
                while True:
                    if takes_turn:
                        await turn.acquire()
                    try:
                        cork = self._cork = []
                        self._corked_bytes, self.holds = 0, self.holds + 1
                        if count == 1 and not done:  # mostly: no look at the clock is due
                            done = 1
                            if commands[0].flag & RESPONSE_BIT:
                                self._on_response(commands[0])
                            else:
                                dispatch(self, commands[0])
                        else:
                            done = self._hand_on(reader, commands, done, dispatch)
                        if handed_on is not None:
                            handed_on()
                        self._cork = None
                        if cork:
                            send(cork, self._corked_bytes)
                        self._last_active = monotonic()
                        if answered is not None:
                            answered()
                    finally:
                        if takes_turn:
                            turn.release()
                    if unsent and self._outbox.choked:
                        await self._outbox.wait_drained()
                    if done == len(commands) and not reader.left:
                        break
                    takes_turn = True
                if reader.error is not None:
                    raise reader.error
                del commands  # they may be large, and the next bytes far away
                data = await receive(size)
            return "closed by the peer"
        except (FrameError, proxy_protocol.PreambleError) as error:
            self._load.lines.tell(
                log.warning, "bad frame, connection closed", monotonic(), peer=self.address, why=error
            )
            return f"bad frame: {error}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "broken by the peer or the network"
        finally:
            self._cork = None

    def _hand_on(self, reader: FrameReader, commands: list[Command], first: int, dispatch: Dispatch) -> int:
        """Hand on *commands* from number *first*, and those that are left in *reader*, which are added to them.

        Returns:
            How many are handed on; others remain when this took too long, or made too many bytes.
        """
        most, monotonic, done = self._limits.pause_bytes, self._clock.monotonic, first
        until = monotonic() + self._limits.turn_seconds
        while True:
            if done == len(commands):
                if not reader.left:
                    return done
                commands += reader.more(_DECODED_AT_ONCE)
            for command in commands[done : done + _DECODED_AT_ONCE]:
                done += 1
                if command.flag & RESPONSE_BIT:
                    self._on_response(command)
                    continue
                dispatch(self, command)
                if self._corked_bytes > most or monotonic() > until:
                    return done

    def _count_incoming(self, reader: FrameReader) -> None:
        """Count the incomplete frame into what the process holds; refuse its request when that is too much."""
        total = self._load.incoming
        total.change(self, reader.pending_bytes - self._incoming_bytes)
        self._incoming_bytes = reader.pending_bytes
        if total.allows(self):
            return
        total.refused += 1
        refused = reader.skip()
        total.change(self, reader.pending_bytes - self._incoming_bytes)
        self._incoming_bytes = reader.pending_bytes
        if refused is None:
            self.close(f"request header held too much memory: {total.used} bytes wait for all, limit {total.limit}")
        elif not refused.flag & RESPONSE_BIT:
            self.respond(refused, response(refused, ResponseCode.SYSTEM_BUSY, _NO_MEMORY))

    async def _first_bytes(self) -> bytes:
        """Return the first bytes after a PROXY preamble, whose address counts as the peer's."""
        data, source = await proxy_protocol.first_bytes(self._stream, self._limits.receive_bytes)
        if source is not None:
            self.peer = source
        return data

    def _on_response(self, command: Command) -> None:
        opaque = command.opaque or 0
        pending = self._pending.get(opaque)
        if pending is None:
            answered = self._asked.pop(opaque, None)
            if answered is not None:
                answered(command)
                return
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
