"""A listening port that answers requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream, Listener, accept_loop
from understudy.runtime.pace import Pace
from understudy.runtime.tls_server import NoTlsError, ServerTls
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.remoting.latencies import Latencies

log = get_logger("remoting.server")


class RemotingServer(Dispatcher):
    """One listening port with its handlers.

    Args:
        world: clock and network.
        host: address to listen on.
        port: port, 0 for a free one.
        name: for logs.
        limits: bounds of each connection.

    Attributes:
        on_connect: called with each new connection.
        on_close: called with each connection after it ended, however it ended; must not raise.
        connections: the open connections.
        latencies: measures how long requests take; ``None``: nobody wants to know. For connections from then on.
        tls: secures connections that begin with a handshake; ``None``: all are plain.
    """

    def __init__(
        self, world: World, host: str, port: int, *, name: str = "server", limits: ConnectionLimits | None = None
    ) -> None:
        super().__init__(world.clock, world.load)
        self._threads = world.threads
        self._world = world
        self._bind_to = (host, port)
        self._name = name
        self._limits = limits or ConnectionLimits()
        self._listener: Listener | None = None
        self._refused = 0  # by listeners that were given back
        self.on_connect: list[Callable[[Connection], None]] = []
        self.on_close: list[Callable[[Connection], None]] = []
        self.connections: set[Connection] = set()
        self.latencies: Latencies | None = None
        self.tls: ServerTls | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host and the real port, after :meth:`bind`."""
        if self._listener is None:
            return self._bind_to
        return self._listener.address

    @property
    def refused_connections(self) -> int:
        """Connections closed as soon as they came, because descriptors were short."""
        return self._refused + (self._listener.refused if self._listener is not None else 0)

    async def bind(self) -> tuple[str, int]:
        """Take the port; connections are answered once :meth:`run` runs.

        Returns:
            Host and real port.

        Raises:
            ListenError: the port cannot be had.
        """
        if self._listener is None:
            self._listener = await self._world.network.listen(*self._bind_to)
        return self._listener.address

    async def run(self) -> None:
        """Serve until cancelled; gives the port back and ends every connection then."""
        await self.bind()
        listener = self._listener
        assert listener is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._close_idle)
                await accept_loop(listener, self._serve, nursery)
        finally:
            await self.unbind()

    async def unbind(self) -> None:
        """Give the port back; open connections live on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._bind_to = listener.address
            self._refused += listener.refused
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _serve(self, stream: ByteStream) -> None:
        if self.tls is not None:
            await self._secure(stream, self.tls)
        else:
            await self.serve(stream)

    async def _secure(self, stream: ByteStream, tls: ServerTls) -> None:
        try:
            secured = await tls.accept(stream)
        except (NoTlsError, trio.BrokenResourceError) as error:
            self._world.tell(
                log.warning, "connection refused", server=self._name, peer="{}:{}".format(*stream.peer), why=error
            )
            with trio.CancelScope(shield=True):
                await stream.aclose()
            return
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.aclose()
            raise
        await self.serve(secured)

    async def serve(self, stream: ByteStream) -> None:
        """Answer the requests of one connection, TLS off, until it ends; never raises for what its peer does."""
        connection = self._open(stream)
        self.connections.add(connection)
        try:
            for callback in self.on_connect:
                callback(connection)
            await connection.run(self.dispatch, proxied=True, handed_on=self.handed_on, answered=self.answered)
        except Exception as error:  # one connection must never end the server
            self._world.tell(
                log.error, "connection failed", exc=error, server=self._name, peer=connection.address, error=repr(error)
            )
        finally:
            self.connections.discard(connection)
            for callback in self.on_close:
                try:
                    callback(connection)
                except Exception as error:
                    log.error("close callback failed", exc=error, server=self._name, error=repr(error))

    def _open(self, stream: ByteStream) -> Connection:
        world, limits = self._world, self._limits
        if self.latencies is None:
            return Connection(stream, world.clock, limits, world.load)
        return self.latencies.connection(stream, world.clock, limits, world.load, self.handlers)

    async def _close_idle(self) -> None:
        """Close connections without traffic; asleep until the oldest one could be due."""
        clock, limit = self._world.clock, self._limits.idle_seconds
        while True:
            now = clock.monotonic()
            due = now + limit
            async with Pace(self._world) as pace:
                for connection in list(self.connections):
                    expires = connection.last_active + limit
                    if expires <= now:
                        connection.close(f"idle for {limit:g} s")
                    else:
                        due = min(due, expires)
                    await pace.breathe()
            await clock.sleep(max(1.0, due - now))
