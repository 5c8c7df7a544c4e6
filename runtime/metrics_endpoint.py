"""``GET /metrics`` over HTTP, for Prometheus to scrape. Off unless the settings ask for it, and imported only then."""

from __future__ import annotations

from http import HTTPStatus

import trio

from understudy.runtime.exposition import CONTENT_TYPE, exposition_pieces
from understudy.runtime.http_server import Answer, HttpLimits, HttpServer, Request
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import MetricsSettings, Pieces
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

log = get_logger("runtime.metrics")

MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8 << 10
REQUEST_SECONDS = 5.0
_LIMITS = HttpLimits(MAX_CONNECTIONS, MAX_HEAD_BYTES, request_seconds=REQUEST_SECONDS)
_PATHS = frozenset({"/", "/metrics"})
_METHODS = frozenset({"GET", "HEAD"})


class MetricsEndpoint:
    """One listening port.

    Args:
        world: network.
        settings: where.
        collect: makes the families, in pieces; called for every scrape, but once for those that ask meanwhile.
    """

    def __init__(self, world: World, settings: MetricsSettings, collect: Pieces) -> None:
        self._world = world
        self._settings = settings
        self._collect = collect
        self._making = trio.Lock()
        self._begun = 0
        self._made = 0, b""
        self._server = HttpServer(world, settings.host, settings.port, self._answer, _LIMITS)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the real port once bound."""
        return self._server.address

    async def bind(self) -> None:
        """Take the port. Raises ``ListenError``."""
        await self._server.bind()
        log.info("metrics served", address="http://{}:{}/metrics".format(*self.address))

    async def unbind(self) -> None:
        """Give back the port."""
        await self._server.unbind()

    async def serve(self) -> None:
        """Serve until cancelled, and keep the port; :meth:`bind` first."""
        await self._server.serve()

    async def _answer(self, request: Request) -> Answer:
        if request.method not in _METHODS:
            allow = (("Allow", "GET, HEAD"),)
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET is answered\n", CONTENT_TYPE, allow)
        if request.path not in _PATHS:
            return Answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", CONTENT_TYPE)
        return Answer(HTTPStatus.OK, await self._text(), CONTENT_TYPE)

    async def _text(self) -> bytes:
        """Return a text whose making has not begun before this; those that ask while one is made share the next."""
        wanted = self._begun + 1
        async with self._making:
            number, text = self._made
            if number < wanted:
                self._begun = number = self._begun + 1
                text = await self._make()
                self._made = number, text
            return text

    async def _make(self) -> bytes:
        pieces: list[bytes] = []
        async with Pace(self._world) as pace:
            for piece in exposition_pieces(self._collect(), self._settings.labels):
                pieces.append(piece)
                await pace.breathe()
        return b"".join(pieces)
