"""One call, as its handler sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.proxy.grpc.framing import Inflating, MessageReader, Taken
from understudy.runtime.signal import Signal

if TYPE_CHECKING:
    from understudy.proxy.grpc.connection import GrpcConnection


_DROPPED: Mapping[str, str] = {}


class Call:
    """One call.

    Attributes:
        metadata: header fields by name, in lower case; of several with one name the last.
        connection: where it came from.
        deadline: monotonic seconds at which its client gives up; ``None`` for never.
        scope: what runs it; ended when the client ends the call. ``None`` while nothing does.
        parked: what goes on with it, see :meth:`park`.
        unread_bytes: of messages that wait for the handler.
    """

    __slots__ = (
        "_changed",
        "_ended",
        "_messages",
        "_no_more",
        "_sending",
        "connection",
        "deadline",
        "headers_sent",
        "held_bytes",
        "metadata",
        "method",
        "parked",
        "parked_bytes",
        "reader",
        "received_at",
        "scope",
        "started",
        "stream_id",
        "unacknowledged_bytes",
        "unread_bytes",
    )

    def __init__(
        self,
        connection: GrpcConnection,
        stream_id: int,
        method: Method,
        metadata: Mapping[str, str],
        reader: MessageReader,
        received_at: float,
        deadline: float | None,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.method = method
        self.metadata = metadata
        self.reader = reader
        self.received_at = received_at
        self.deadline = deadline
        self.scope: trio.CancelScope | None = None
        self.parked: Handler | None = None
        self.started = False
        self.headers_sent = False
        self.held_bytes = self.parked_bytes = 0
        self.unacknowledged_bytes = self.unread_bytes = 0
        self._messages: deque[Taken] = deque()
        self._no_more = False
        self._ended: Callable[[], None] | None = None
        self._changed = Signal()
        self._sending = trio.Lock() if method.streams else None

    @property
    def unread(self) -> int:
        """Messages that wait for the handler."""
        return len(self._messages)

    @property
    def complete(self) -> bool:
        """Whether the client has sent everything."""
        return self._no_more

    @property
    def ended(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return not self.connection.holds(self)

    @property
    def sends(self) -> bool:
        """Whether a message is under way that the client has no window for, of a call where the client streams."""
        return self._sending is not None and self._sending.locked()

    def remaining_seconds(self) -> float | None:
        """Return how long the client will wait; ``None`` for ever."""
        return None if self.deadline is None else self.deadline - self.connection.clock.monotonic()

    def park(self, handler: Handler, ended: Callable[[], None] | None = None) -> None:
        """Let the handler return without an end of the call, which is a row without a task from then on.

        Whoever parks a call has read what it needs of its header fields: they are dropped.

        Args:
            handler: goes on, in a task of its own, when :meth:`resume` is called, and where the client streams when it
                sends another message or no more.
            ended: called if the call ends before that; must not raise.
        """
        self.metadata = _DROPPED
        self.scope = None
        self.parked, self._ended = handler, ended

    def resume(self) -> bool:
        """Go on with a parked call; return whether somebody waits for its answer."""
        return self.connection.resume(self)

    def begins_at_once(self) -> bool:
        """Begin what the answer to the one message takes without a task; return whether that was possible."""
        begin, message = self.method.at_once, self._messages[0]
        if begin is None or isinstance(message, Inflating) or not begin(self, message):
            return False
        self.started = True
        self.next()
        return True

    def answer(self, message: bytes) -> None:
        """Answer a parked call with its one message, and end it; no task is needed where the client has room."""
        self.connection.answer(self, message)

    def stop(self) -> None:
        """End what runs the call, or tell who waits for it while it is parked."""
        ended, self.parked, self._ended = self._ended, None, None
        if self.scope is not None:
            self.scope.cancel()
        elif ended is not None:
            ended()

    def goes_on(self) -> Handler | None:
        """Return what goes on with a call that was parked; it is not parked any more then."""
        handler, self.parked, self._ended = self.parked, None, None
        return handler

    def take(self, messages: list[Taken]) -> None:
        """Keep *messages* for the handler."""
        self._messages.extend(messages)
        self.unread_bytes += sum(map(len, messages))
        self._changed.set()

    def end_of_messages(self) -> None:
        """Note that the client sends nothing more."""
        self._no_more = True
        self._changed.set()

    async def receive(self) -> bytes | None:
        """Return the next message, or ``None`` when the client sends no more.

        Raises:
            RpcError: it cannot be inflated, is too large then, or the process holds too much.
        """
        await self.wait()
        if self._messages and isinstance(self._messages[0], Inflating):
            held = len(self._messages[0])
            message = self._messages[0] = await self.connection.threads.run(self._messages[0].whole)
            self.unread_bytes += len(message) - held
            if not self.ended:
                self.connection.held.request(self, self.unread_bytes + self.reader.pending_bytes)
        return self.next()

    async def wait(self) -> None:
        """Wait until there is a message, or the client sends no more."""
        while not self._messages and not self._no_more:
            await self._changed.wait()

    def next(self) -> bytes | None:
        """Return the next message that is there, or ``None``. Raises :class:`RpcError`, as :meth:`receive` does."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self.unread_bytes -= len(message)
        self.connection.taken(self)
        return message.whole() if isinstance(message, Inflating) else message

    def keeps(self, size: int) -> bool:
        """Count *size* bytes that wait for the client's window, until the call ends; False when these are too many.

        Of a call that has ended nothing is counted: nobody would take it off again.
        """
        return self.ended or self.connection.held.park(self, size)

    async def send(self, message: bytes, *, more: bool = False) -> None:
        """Send one message; waits until the client's window has room for it. Several tasks may, where a client streams.

        Args:
            message: its bytes.
            more: another one follows at once, so that they may leave together.

        Raises:
            trio.BrokenResourceError: the client has ended the call.
        """
        if self._sending is None:
            await self.connection.send_message(self, message, more=more)
            return
        async with self._sending:
            await self.connection.send_message(self, message, more=more)


Handler = Callable[[Call], Awaitable[None]]


@attrs.frozen
class Method:
    """How calls of one path are answered.

    Attributes:
        handler: answers a call: reads with :meth:`Call.receive`, answers with :meth:`Call.send`, raises
            :class:`~understudy.proxy.grpc.status.RpcError` to end it with another status than OK.
        streams: the client may send any number of messages; the handler begins before the first.
        most_bytes: largest message of such a call, where the server's limit is not low enough.
        endless: a call lasts as long as its client: when the server stops, nobody waits for its end.
        at_once: of calls with one message: begins what the answer takes, parks the call, and returns True; or returns
            False, and has begun nothing: then the handler answers. Must not raise.
    """

    handler: Handler
    streams: bool = False
    endless: bool = False
    most_bytes: int | None = None
    at_once: Callable[[Call, bytes], bool] | None = None


def unary(
    answer: Callable[[Call, bytes], Awaitable[bytes]],
    most_bytes: int | None = None,
    at_once: Callable[[Call, bytes], bool] | None = None,
) -> Method:
    """Return the method of calls with one request, which *answer* is given, and the one answer that it returns."""

    async def handle(call: Call) -> None:
        request = await call.receive()
        if request is not None:
            await call.send(await answer(call, request), more=True)  # the end of the call follows

    return Method(handle, most_bytes=most_bytes, at_once=at_once)
