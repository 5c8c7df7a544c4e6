"""A console in memory, and a browser reduced to what goes over the wire."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import pytest
import trio

from understudy.console.server import Console, ConsoleOptions
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime.network import ByteStream, Network
from understudy.runtime.world import World

HOST, PORT = "console", 8082
TOKEN = "a long token"
SIGNED_IN = {"Authorization": f"Bearer {TOKEN}"}


@attrs.frozen
class Reply:
    """An answer as a browser has it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Asks one console, as a page of its own unless other headers are given."""

    def __init__(self, network: Network, host: str = HOST, port: int = PORT) -> None:
        self._network = network
        self.host = host
        self.port = port

    async def connect(self) -> ByteStream:
        return await self._network.connect(self.host, self.port, 5)

    async def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET", body: object = None
    ) -> Reply:
        sent = {"Host": f"{self.host}:{self.port}", "Connection": "close", **SIGNED_IN, **(headers or {})}
        content = b""
        if method != "GET":
            content = json.dumps(body if body is not None else {}).encode()
            sent = {"Content-Type": "application/json", "Content-Length": str(len(content)), **sent}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return await self.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)

    async def raw(self, data: bytes) -> Reply:
        """Send *data* as it is; an empty status is an answer that never came."""
        stream = await self.connect()
        with trio.fail_after(60):
            await stream.send_all(data)
            received = b""
            while part := await stream.receive_some(65536):
                received += part
        await stream.aclose()
        return _parsed(received)

    async def live(self, headers: Mapping[str, str] | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """Follow the stream of first screens; to be closed."""
        stream = await self.connect()
        try:
            sent = {"Host": f"{self.host}:{self.port}", **SIGNED_IN, **(headers or {})}
            head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
            await stream.send_all(f"GET /api/live HTTP/1.1\r\n{head}\r\n".encode())
            peer = h11.Connection(h11.CLIENT)
            peer.send(h11.Request(method="GET", target="/api/live", headers=[("Host", self.host)]))
            text = b""
            while True:
                event = peer.next_event()
                if event is h11.NEED_DATA:
                    if not (data := await stream.receive_some(65536)):
                        return
                    peer.receive_data(data)
                elif isinstance(event, h11.Data):
                    text += event.data
                    while b"\n\n" in text:
                        message, _, text = text.partition(b"\n\n")
                        if message.startswith(b"data: "):
                            yield json.loads(message[6:])
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()


def _parsed(received: bytes) -> Reply:
    if not received:
        return Reply(0, {}, b"")
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    peer.receive_data(received)
    peer.receive_data(b"")
    head = peer.next_event()
    assert isinstance(head, h11.Response), received[:200]
    body = b""
    while isinstance(event := peer.next_event(), h11.Data):
        body += event.data
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Reply(head.status_code, headers, body)


@asynccontextmanager
async def serving(world: World, name_servers: str, host: str = HOST, **options: Any) -> AsyncIterator[Console]:
    """Run a console on *host* of a network in memory; other hosts reach it, so it has a token."""
    console = Console(world, ConsoleOptions(host, PORT, name_servers, **{"token": TOKEN, **options}))
    await console.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        yield console
        nursery.cancel_scope.cancel()


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how often each request code was sent over any connection, counted from now on."""
    asked, invoke = Counter[int](), Connection.invoke

    async def counted(self: Connection, command: Command, *arguments: Any) -> Command:
        asked[command.code] += 1
        return await invoke(self, command, *arguments)

    monkeypatch.setattr(Connection, "invoke", counted)
    return asked
