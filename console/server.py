"""The console as one HTTP port: its own files, what was gathered as JSON, and a stream of it while somebody looks."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import attrs
import trio

from understudy.console import asset_files
from understudy.console.asset_files import Asset
from understudy.console.gatherer import Gatherer, Pace
from understudy.console.guard import Guard, Refusal
from understudy.console.queries import QueryError
from understudy.console.report_files import ReportFiles
from understudy.console.users import SignInError, Users
from understudy.console.view import Sources, View, open_view
from understudy.mqclient.session import SessionOptions
from understudy.runtime.http_server import Answer, HttpLimits, HttpServer, Request
from understudy.runtime.log import get_logger
from understudy.runtime.network import is_loopback
from understudy.runtime.world import World

log = get_logger("console")

LIMITS = HttpLimits(connections=128, head_bytes=16 << 10, body_bytes=256 << 10)
MOST_LIVE = 48
"""Pages that are kept up to date at a time; one more is told to wait."""
JSON = "application/json; charset=utf-8"
_EVENTS = "text/event-stream; charset=utf-8"
_QUIET_SECONDS = 15.0
_MOST_FIELDS = 20
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class RefusedError(Exception):
    """A request cannot be answered; the message is one sentence for whoever sits before the page."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@attrs.frozen
class ConsoleOptions:
    """How a console is served.

    Attributes:
        host, port: where it listens; port 0 for a free one.
        name_servers: of the cluster that is shown, ``host:port`` separated by semicolons.
        token: who gives it may change something; ``""``: nobody may.
        names: further names the page is called by.
        session: what requests to servers are signed and secured with.
        users: whoever wants to see anything signs in as a user of the cluster, who signs instead; there is no token.
        spark_reports: reports of the Spark jobs; ``None``: there are none.
    """

    host: str
    port: int
    name_servers: str
    token: str = ""
    names: tuple[str, ...] = ()
    session: SessionOptions | None = None
    users: bool = False
    spark_reports: ReportFiles | None = None


class Console:
    """One page for one cluster.

    Args:
        world: clock, network and threads.
        options: how it is served.
    """

    def __init__(self, world: World, options: ConsoleOptions) -> None:
        self._world = world
        self._options = options
        self._assets = asset_files.load()
        self._server = HttpServer(world, options.host, options.port, self.answer, LIMITS)
        closed = options.users or others_reach(options.host, options.names)
        now = world.clock.monotonic
        self._guard = Guard(options.host, options.port, options.token, options.names, closed=closed, now=now)
        self._sources = Sources(options.name_servers, options.session or SessionOptions(), options.spark_reports)
        self._users = Users(world, self._sources, self._guard.sign_ins) if options.users else None
        self._own: View | None = None  # what the console sees by itself
        whom = "as a user of the cluster" if options.users else "with the token that the console was started with"
        self._sign_in_first = f"sign in {whom}"
        self._live = 0

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host, port = self._server.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    async def bind(self) -> None:
        """Take the port. Raises ``ListenError``."""
        await self._server.bind()
        self._guard.port = self._server.address[1]

    async def run(self) -> None:
        """Serve until cancelled; :meth:`bind` first."""
        if self._users is None:
            async with open_view(self._world, self._sources, Pace()) as self._own:
                await self._server.run()
            return
        async with trio.open_nursery() as nursery:
            await nursery.start(self._users.run)
            nursery.start_soon(self._server.run)

    # --- requests ----------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Answer:
        """Return the answer to one request, with what browsers are told of all of them."""
        refusal = self._guard.refuses(request.method, request.path, request.headers)
        if refusal is not None:
            found = _refused(refusal)
        else:
            try:
                found = await self._route(request)
            except RefusedError as error:
                found = _refused(Refusal(error.status, str(error)))
        return attrs.evolve(found, headers=(*found.headers, *_HEADERS))

    async def _route(self, request: Request) -> Answer:
        asset = self._assets.get(request.path)
        if asset is not None:
            return _asset(request, asset)
        if not request.path.startswith("/api/"):
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        if request.path == "/api/session":
            return await self._session(request)
        view = self._view(request)
        if view is None:
            raise RefusedError(HTTPStatus.UNAUTHORIZED, self._sign_in_first)
        if request.method == "POST":
            return await self._change(request, view)
        if request.method != "GET":
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "this is only read")
        if request.path == "/api/live":
            return self._follow(request, view)
        query = view.queries.named(request.path.removeprefix("/api/"))
        if query is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            fields = dict(parse_qsl(request.query, max_num_fields=_MOST_FIELDS))
        except ValueError:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"at most {_MOST_FIELDS} fields are taken") from None
        return await self._asked(view, partial(query, fields))

    def _view(self, request: Request) -> View | None:
        """Return what whoever asks may see; ``None`` for nothing."""
        if not self._guard.may_read(request.headers):
            return None
        return self._own if self._users is None else self._users.view_of(self._guard.cookie_of(request.headers))

    async def _change(self, request: Request, view: View) -> Answer:
        change = view.queries.change(request.path.removeprefix("/api/"))
        if change is None:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "this is only read")
        if not self._guard.may_change(request.headers):
            raise RefusedError(HTTPStatus.FORBIDDEN, self._sign_in_first)
        return await self._asked(view, partial(change, json_object(request.body)))

    async def _asked(self, view: View, question: Callable[[], Awaitable[Any]]) -> Answer:
        with view.gatherer.watching():
            await view.gatherer.not_old()
            try:
                return _json(await question())
            except QueryError as error:
                raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    async def _session(self, request: Request) -> Answer:
        guard = self._guard
        if request.method == "GET":
            view = self._view(request)
            return _json(
                {
                    "token": bool(guard.token),
                    "users": self._users is not None,
                    "user": view.user if view is not None and self._users is not None else "",
                    "signedIn": guard.may_change(request.headers),
                    "closed": guard.closed,
                    "nameServers": self._options.name_servers if view is not None else "",
                }
            )
        if request.method == "DELETE":
            cookie = guard.sign_out(request.headers)
            if self._users is not None:
                self._users.left()
        elif request.method == "POST":
            cookie = await self._sign_in(json_object(request.body), request.headers)
            if self._users is not None:
                self._users.left()
        else:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "sign in with POST, out with DELETE")
        return attrs.evolve(_json({}), headers=(("Set-Cookie", cookie),))

    async def _sign_in(self, given: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        """Return the cookie header of whoever gave the token, or the password of a user."""
        if self._users is not None:
            try:
                secret = await self._users.sign_in(str(given.get("user") or ""), str(given.get("password") or ""))
            except SignInError as error:
                if error.wrong:
                    self._world.tell(log.warning, "somebody gave a wrong password to the console")
                raise RefusedError(error.status, str(error)) from None
            return self._guard.cookie_for(secret, headers)
        if not self._guard.token:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this console was started without a token: nothing can be changed")
        cookie = self._guard.sign_in(str(given.get("token") or ""), secrets.token_urlsafe(32), headers)
        if cookie is None:
            self._world.tell(log.warning, "somebody gave a wrong token to the console")
            raise RefusedError(HTTPStatus.FORBIDDEN, "that is not the token")
        return cookie

    # --- live --------------------------------------------------------------------------------------------------

    def _follow(self, request: Request, view: View) -> Answer:
        if self._live >= MOST_LIVE:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_LIVE} pages are open already; close some")
        parts = partial(self._events, request, view.gatherer)
        return Answer(content_type=_EVENTS, headers=(("Cache-Control", "no-store"),), parts=parts)

    async def _events(self, request: Request, gatherer: Gatherer) -> AsyncGenerator[bytes, None]:
        """Send the first screen after each look, and a sign of life when there is none for long, until a sign-out."""
        self._live += 1
        try:
            with gatherer.watching():
                handled = gatherer.looked.count
                if gatherer.known.at_ms:
                    yield _event(gatherer.screen)
                while True:
                    with self._world.clock.move_on_after(_QUIET_SECONDS) as scope:
                        handled = await gatherer.looked.wait(handled)
                    if not self._guard.may_read(request.headers):
                        return
                    yield b": nothing new\n\n" if scope.cancelled_caught else _event(gatherer.screen)
        finally:
            self._live -= 1


def others_reach(host: str, names: Iterable[str]) -> bool:
    """Return whether other hosts reach a page that listens on *host* and is called by *names* beside."""
    return not all(is_loopback(each) for each in (host, *map(_without_port, names)))


def _without_port(name: str) -> str:
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a request. Raises :class:`RefusedError`."""
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request's body is no JSON") from None
    if not isinstance(value, dict):
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the request's body is no JSON object")
    return value


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"  # one line: JSON has no bare line ends


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    body = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    return Answer(status, body, JSON, (("Cache-Control", "no-store"),))


def _refused(refusal: Refusal) -> Answer:
    return _json({"error": refusal.text}, refusal.status)


def _asset(request: Request, asset: Asset) -> Answer:
    if request.method not in ("GET", "HEAD"):
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "this is only read")
    headers = (("ETag", asset.tag), ("Cache-Control", "no-cache"))
    if request.headers.get("if-none-match") == asset.tag:
        return Answer(HTTPStatus.NOT_MODIFIED, b"", asset.content_type, headers)
    return Answer(HTTPStatus.OK, asset.content, asset.content_type, headers)
