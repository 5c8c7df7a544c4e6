"""HTTP/1.1 by h11 on one listening port with bounds; what is answered is the business of a handler.

Each connection carries one request and is closed after its answer, so that nothing of a peer is kept between two of
them. One that has not said yet what it wants, or does not read, gives way to newcomers (:mod:`.seats`).
Imported only by what serves HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from http import HTTPStatus

import attrs
import h11
import trio

from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream, Listener, accept_loop
from understudy.runtime.seats import Seat, Seats
from understudy.runtime.world import World

log = get_logger("runtime.http")

_RECEIVE_BYTES = 4 << 10
_SHOWN_CHARACTERS = 200
_PIECE_BYTES = 64 << 10  # of an answer in one write; one of less is copied to be one with its head
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)  # whoever asked
TEXT = "text/plain; charset=utf-8"


@attrs.frozen
class HttpLimits:
    """Bounds of one port.

    Attributes:
        connections: most of them at a time, half of them of one host.
        head_bytes: of a request's line and headers.
        body_bytes: of a request's body; 0: bodies are not read at all.
        request_seconds: for a request to arrive.
        answer_seconds: for its handler.
        send_seconds: for each write of an answer.
    """

    connections: int = 16
    head_bytes: int = 8 << 10
    body_bytes: int = 0
    request_seconds: float = 5.0
    answer_seconds: float = 30.0
    send_seconds: float = 10.0


@attrs.frozen
class Request:
    """One request.

    Attributes:
        method: in capitals.
        path: of the target, as it was sent: nothing in it is decoded.
        query: behind the question mark, as it was sent.
        headers: by name in small letters; of several of one name the last.
        body: all of it.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""


@attrs.frozen
class Answer:
    """What is answered.

    Attributes:
        status: its code.
        body: the content, all of it.
        content_type: of the content.
        headers: further ones.
        parts: instead of a body, what follows for as long as the peer listens; closed when it leaves.
    """

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    parts: Callable[[], AsyncGenerator[bytes, None]] | None = None


Handler = Callable[[Request], Awaitable[Answer]]


class HttpServer:
    """One listening port.

    Args:
        world: network and clock.
        host: address to listen on.
        port: 0 for a free one.
        handler: makes the answer of a request; when it raises, the peer is told to look into the log.
        limits: bounds.

    Attributes:
        address: host and port; the real port once bound.
    """

    def __init__(self, world: World, host: str, port: int, handler: Handler, limits: HttpLimits | None = None) -> None:
        self._world = world
        self._handler = handler
        self._limits = limits or HttpLimits()
        self._listener: Listener | None = None
        self._seats = Seats(self._limits.connections)
        self.address = (host, port)

    async def bind(self) -> None:
        """Take the port. Raises ``ListenError``."""
        self._listener = await self._world.network.listen(*self.address)
        self.address = self._listener.address

    async def unbind(self) -> None:
        """Give back a port whose :meth:`run` never began, or that was kept."""
        if self._listener is not None:
            await self._listener.aclose()

    async def run(self) -> None:
        """Serve until cancelled, and give the port back; :meth:`bind` first."""
        assert self._listener is not None
        try:
            await self.serve()
        finally:
            with trio.CancelScope(shield=True):
                await self._listener.aclose()

    async def serve(self) -> None:
        """Serve until cancelled, and keep the port; :meth:`bind` first."""
        assert self._listener is not None
        async with trio.open_nursery() as nursery:
            await accept_loop(self._listener, self._serve, nursery)

    async def _serve(self, stream: ByteStream) -> None:
        scope = trio.CancelScope()
        seat = self._seats.take(stream.peer[0], scope.cancel)
        if seat is None:
            await _close(stream)
            return
        try:
            with scope:
                moved = partial(self._seats.moved, seat)
                await _Exchange(self._world, stream, self._handler, self._limits, seat, moved).run()
        except _GONE:
            return
        finally:
            self._seats.give_back(seat)
            await _close(stream)


class _Exchange:
    """The one request of a connection, and its answer."""

    def __init__(
        self,
        world: World,
        stream: ByteStream,
        handler: Handler,
        limits: HttpLimits,
        seat: Seat,
        moved: Callable[[], None],
    ) -> None:
        self._seat = seat
        self._moved = moved
        self._clock = world.clock
        self._stream = stream
        self._handler = handler
        self._limits = limits
        self._peer = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._bodiless = False

    async def run(self) -> None:
        request: Request | Answer | None = None
        with self._clock.move_on_after(self._limits.request_seconds):
            request = await self._receive()
        if request is None:
            return  # its peer left before, or was too slow
        self._seat.kept = True
        answer = request if isinstance(request, Answer) else await self._answer(request)
        self._seat.kept = answer.parts is not None
        if answer.parts is None:
            await self._send_whole(answer)
        else:
            await self._send_parts(answer, answer.parts)

    async def _receive(self) -> Request | Answer | None:
        """Return the request; an answer that refuses it; ``None`` when its peer leaves before it is complete."""
        try:
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            self._bodiless = head.method == b"HEAD"
            body = bytearray()
            if self._limits.body_bytes:
                while isinstance(event := await self._next_event(), h11.Data):
                    body += event.data
                    if len(body) > self._limits.body_bytes:
                        text = f"a request has at most {self._limits.body_bytes} bytes\n"
                        return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text.encode())
                if not isinstance(event, h11.EndOfMessage):
                    return None
        except h11.RemoteProtocolError as error:
            return Answer(HTTPStatus(error.error_status_hint), f"{str(error)[:_SHOWN_CHARACTERS]}\n".encode())
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return Request(head.method.decode("ascii"), path, query, headers, bytes(body))

    async def _next_event(self) -> object:
        while (event := self._peer.next_event()) is h11.NEED_DATA:
            if self._peer.they_are_waiting_for_100_continue:
                await self._send(self._peer.send(h11.InformationalResponse(status_code=100, headers=[])))
            self._peer.receive_data(await self._stream.receive_some(_RECEIVE_BYTES))
            await trio.lowlevel.checkpoint()  # a body may come in very many parts
        return event

    async def _answer(self, request: Request) -> Answer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_leaving)
            answer = await self._handled(request)
            nursery.cancel_scope.cancel()
        return answer

    async def _notice_leaving(self) -> None:
        """Have newcomers take the seat of a peer that sends no more; it may still wait for its answer."""
        await self._listen_until_left()
        self._seat.kept = False

    async def _handled(self, request: Request) -> Answer:
        try:
            with self._clock.move_on_after(self._limits.answer_seconds):
                return await self._handler(request)
        except Exception as error:
            # one request must never end the server
            log.error("a request could not be answered", exc=error, path=request.path[:_SHOWN_CHARACTERS])
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: see the log\n".encode())
        text = f"no answer within {self._limits.answer_seconds:g} s\n"
        return Answer(HTTPStatus.GATEWAY_TIMEOUT, text.encode())

    def _head(self, answer: Answer, *more: tuple[str, str]) -> bytes:
        headers = [("Content-Type", answer.content_type), *more, ("Connection", "close"), *answer.headers]
        response = h11.Response(status_code=answer.status, reason=answer.status.phrase, headers=headers)
        return self._peer.send(response) or b""

    async def _send_whole(self, answer: Answer) -> None:
        head = self._head(answer, ("Content-Length", str(len(answer.body))))
        if self._bodiless:
            await self._send(head)
            return
        if len(answer.body) <= _PIECE_BYTES:
            await self._send(head + answer.body)
            return
        # In pieces: a reader that takes them keeps its seat longer than those that do not.
        rest = memoryview(answer.body)
        pieces = [rest[at : at + _PIECE_BYTES] for at in range(0, len(rest), _PIECE_BYTES)]
        for piece in (memoryview(head), *pieces):
            if not await self._send(piece):
                return
            self._moved()

    async def _send_parts(self, answer: Answer, parts: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        if not await self._send(self._head(answer)) or self._bodiless:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._await_leaving, nursery.cancel_scope)
            try:
                async with aclosing(parts()) as following:
                    async for part in following:
                        if not await self._send(self._peer.send(h11.Data(data=part))):
                            break  # it does not read
            except _GONE:
                pass
            except Exception as error:
                log.error("an answer was broken off", exc=error)
            nursery.cancel_scope.cancel()

    async def _await_leaving(self, scope: trio.CancelScope) -> None:
        """End the answer when its peer closes."""
        await self._listen_until_left()
        scope.cancel()

    async def _listen_until_left(self) -> None:
        """Wait until the peer closes its side; what it sends meanwhile is of no interest."""
        try:
            while await self._stream.receive_some(_RECEIVE_BYTES):
                await trio.lowlevel.checkpoint()
        except _GONE:
            pass

    async def _send(self, data: bytes | memoryview | None) -> bool:
        """Send *data*; return whether its peer took it in time."""
        with self._clock.move_on_after(self._limits.send_seconds) as scope:
            await self._stream.send_all(data or b"")
        return not scope.cancelled_caught


async def _close(stream: ByteStream) -> None:
    with trio.CancelScope(shield=True):
        await stream.aclose()
