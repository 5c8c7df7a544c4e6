"""``GET /metrics`` over HTTP, for Prometheus to scrape. Off unless the settings ask for it, and imported only then.

The protocol is h11's; this is one listening port with bounds: so many connections, so long and so large a request.
"""

from __future__ import annotations

from http import HTTPStatus

import h11
import trio

from understudy.runtime.exposition import CONTENT_TYPE, exposition
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Collect, MetricsSettings
from understudy.runtime.network import ByteStream, Listener, accept_loop
from understudy.runtime.world import World

log = get_logger("runtime.metrics")

MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8 << 10
REQUEST_SECONDS = 5.0
SEND_SECONDS = 10.0
_RECEIVE_BYTES = 4096
_SHOWN_CHARACTERS = 200
_PATHS = frozenset({b"/", b"/metrics"})
_METHODS = frozenset({b"GET", b"HEAD"})


class MetricsEndpoint:
    """One listening port.

    Args:
        world: network.
        settings: where.
        collect: makes the families; called for every scrape, must not wait.

    Attributes:
        address: host and port; the real port once bound.
    """

    def __init__(self, world: World, settings: MetricsSettings, collect: Collect) -> None:
        self._world = world
        self._settings = settings
        self._collect = collect
        self._listener: Listener | None = None
        self._connections = 0
        self.address = (settings.host, settings.port)

    async def bind(self) -> None:
        """Take the port. Raises ``ListenError``."""
        self._listener = await self._world.network.listen(self._settings.host, self._settings.port)
        self.address = self._listener.address
        log.info("metrics served", address="http://{}:{}/metrics".format(*self.address))

    async def unbind(self) -> None:
        """Give back a port whose :meth:`run` never began."""
        if self._listener is not None:
            await self._listener.aclose()

    async def run(self) -> None:
        """Serve until cancelled; :meth:`bind` first."""
        assert self._listener is not None
        try:
            async with trio.open_nursery() as nursery:
                await accept_loop(self._listener, self._serve, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _serve(self, stream: ByteStream) -> None:
        if self._connections >= MAX_CONNECTIONS:
            await _close(stream)
            return
        self._connections += 1
        peer = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        try:
            answer: bytes | None = None
            with trio.move_on_after(REQUEST_SECONDS):
                answer = await self._answer(peer, stream)
            if answer is not None:
                with trio.move_on_after(SEND_SECONDS):
                    await stream.send_all(answer)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            return  # whoever asked is gone
        finally:
            self._connections -= 1
            await _close(stream)

    async def _answer(self, peer: h11.Connection, stream: ByteStream) -> bytes | None:
        """Return the answer to the one request of a connection; ``None`` when its peer leaves before."""
        try:
            while (request := peer.next_event()) is h11.NEED_DATA:
                peer.receive_data(await stream.receive_some(_RECEIVE_BYTES))
        except h11.RemoteProtocolError as error:
            return _response(peer, HTTPStatus(error.error_status_hint), f"{str(error)[:_SHOWN_CHARACTERS]}\n".encode())
        if not isinstance(request, h11.Request):
            return None
        with_body = request.method != b"HEAD"
        if request.method not in _METHODS:
            return _response(peer, HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is answered\n", ("Allow", "GET, HEAD"))
        if request.target.partition(b"?")[0] not in _PATHS:
            return _response(peer, HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", with_body=with_body)
        status = HTTPStatus.OK
        try:
            body = exposition(self._collect(), self._settings.labels)
        except Exception as error:
            # a scrape must never end the server whose numbers it asks for
            log.error("metrics could not be collected", exc=error)
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: see the log\n".encode()
        return _response(peer, status, body, with_body=with_body)


def _response(
    peer: h11.Connection, status: HTTPStatus, body: bytes, *more: tuple[str, str], with_body: bool = True
) -> bytes:
    headers = [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body))), ("Connection", "close"), *more]
    head = peer.send(h11.Response(status_code=status, reason=status.phrase, headers=headers))
    content = peer.send(h11.Data(data=body)) if with_body else b""
    return (head or b"") + (content or b"")


async def _close(stream: ByteStream) -> None:
    with trio.CancelScope(shield=True):
        await stream.aclose()
