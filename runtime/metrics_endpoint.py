"""``GET /metrics`` over HTTP: the smallest server that Prometheus can scrape. Off unless the settings ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import trio

from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Family, Labels, exposition
from understudy.runtime.network import ByteStream, Listener, accept_loop
from understudy.runtime.world import World

log = get_logger("runtime.metrics")

MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8 << 10
REQUEST_SECONDS = 5.0
SEND_SECONDS = 10.0

Collect = Callable[[], Iterable[Family]]

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PATHS = frozenset({"/", "/metrics"})


@attrs.frozen
class MetricsSettings:
    """Where metrics are served.

    Args:
        host, port: where to listen.
        labels: added to every sample.
    """

    host: str
    port: int
    labels: Labels


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
        try:
            answer: bytes | None = None
            with trio.move_on_after(REQUEST_SECONDS):
                answer = self._answer(await _head(stream))
            if answer is not None:
                with trio.move_on_after(SEND_SECONDS):
                    await stream.send_all(answer)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            return  # whoever asked is gone
        finally:
            self._connections -= 1
            await _close(stream)

    def _answer(self, head: bytes | None) -> bytes:
        if head is None:
            return _response("431 Request Header Fields Too Large", b"the request is too long\n")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is no HTTP/1 request\n")
        method, target = words[0], words[1].split(b"?", 1)[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET is answered\n", "Allow: GET, HEAD\r\n")
        if target not in _PATHS:
            return _response("404 Not Found", b"metrics are at /metrics\n")
        try:
            body = exposition(self._collect(), self._settings.labels)
        except Exception as error:
            # a scrape must never end the server whose numbers it asks for
            log.error("metrics could not be collected", exc=error)
            return _response("500 Internal Server Error", f"{type(error).__name__}: see the log\n".encode())
        return _response("200 OK", body, with_body=method == b"GET")


def _response(status: str, body: bytes, more: str = "", *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")


async def _head(stream: ByteStream) -> bytes | None:
    """Read up to the end of the header fields; ``None`` when they are too long."""
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > MAX_HEAD_BYTES:
            return None
        part = await stream.receive_some(4096)
        if not part:
            raise trio.BrokenResourceError
        data += part
    return data


async def _close(stream: ByteStream) -> None:
    with trio.CancelScope(shield=True):
        await stream.aclose()
