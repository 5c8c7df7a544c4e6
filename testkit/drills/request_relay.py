"""Relays in front of servers: what these are asked, and when, all in one order.

A server listens at 127.0.0.1 and is known to others by another address of this machine, where its relay listens at the
same port. Bytes pass as they are; a drill or a test looks at the requests among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs
import trio

from understudy.remoting.frame import FrameError, FrameReader
from understudy.runtime.network import ByteStream, accept_loop
from understudy.runtime.world import World

RELAYED_HOST = "127.0.0.2"
_SERVER_HOST = "127.0.0.1"
_RECEIVE_BYTES = 65_536
_CONNECT_SECONDS = 5.0


@attrs.frozen
class Asked:
    """One request as it passed.

    Args:
        at: when (monotonic seconds).
        connection: number of the connection it came on.
        port: of the server.
        code: of the request.
        ext: its header fields.
    """

    at: float
    connection: int
    port: int
    code: int
    ext: dict[str, str]


class Relays:
    """See the module.

    Args:
        world: network and clock.
        codes: which requests are remembered; all of them when ``None``.

    Attributes:
        asked: every such request, oldest first.
    """

    def __init__(self, world: World, codes: Collection[int] | None = None) -> None:
        self.asked: list[Asked] = []
        self._world = world
        self._codes = codes
        self._connections = 0

    async def start(self, nursery: trio.Nursery, ports: Iterable[int]) -> None:
        """Relay these ports until *nursery* is cancelled. Raises ``ListenError``."""
        for port in ports:
            await nursery.start(self._listen, port)

    async def _listen(self, port: int, task_status: trio.TaskStatus[None]) -> None:
        listener = await self._world.network.listen(RELAYED_HOST, port)
        task_status.started()

        async def relay(client: ByteStream) -> None:
            await self._relay(client, port)

        try:
            async with trio.open_nursery() as nursery:
                await accept_loop(listener, relay, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _relay(self, client: ByteStream, port: int) -> None:
        self._connections += 1
        requests = _Requests(self, self._connections, port)
        try:
            server = await self._world.network.connect(_SERVER_HOST, port, _CONNECT_SECONDS)
        except OSError:
            await client.aclose()  # as the server itself would have refused it
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pass_on, client, server, requests, nursery.cancel_scope)
                nursery.start_soon(_pass_on, server, client, None, nursery.cancel_scope)
        finally:
            with trio.CancelScope(shield=True):
                await client.aclose()
                await server.aclose()

    def note(self, asked: Asked) -> None:
        """Remember a request, when it is of a wanted kind."""
        if self._codes is None or asked.code in self._codes:
            self.asked.append(asked)

    def now(self) -> float:
        """Return the monotonic time."""
        return self._world.clock.monotonic()


class _Requests:
    """The requests among the bytes of one connection."""

    def __init__(self, relays: Relays, connection: int, port: int) -> None:
        self._relays, self._connection, self._port = relays, connection, port
        self._frames: FrameReader | None = FrameReader()

    def look(self, data: bytes) -> None:
        if self._frames is None:
            return
        try:
            commands = self._frames.feed(data)
        except FrameError:
            self._frames = None  # whatever it is passes all the same; the server judges it
            return
        at = self._relays.now()
        for command in commands:
            if not command.is_response:
                self._relays.note(Asked(at, self._connection, self._port, command.code, command.ext or {}))


async def _pass_on(source: ByteStream, target: ByteStream, requests: _Requests | None, scope: trio.CancelScope) -> None:
    try:
        while data := await source.receive_some(_RECEIVE_BYTES):
            if requests is not None:
                requests.look(data)
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # either side went away; the other is told by the end of this connection
    scope.cancel()
