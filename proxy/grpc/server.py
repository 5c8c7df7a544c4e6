"""A listening port that answers calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from understudy.proxy.grpc.call import Method
from understudy.proxy.grpc.connection import GrpcConnection
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.shared import Shared
from understudy.proxy.grpc.writing import Later
from understudy.runtime.background import open_shielded
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream, Listener
from understudy.runtime.pace import Pace
from understudy.runtime.proxy_protocol import PreambleError, first_bytes
from understudy.runtime.tls_server import Continued, NoTlsError, ServerTls
from understudy.runtime.world import World

log = get_logger("proxy.grpc")

_LOOK_SECONDS = 5.0
"""Shortest time between two looks at all connections."""


class GrpcServer:
    """One listening port with its methods.

    Args:
        world: clock and network.
        host: address to listen on.
        port: port, 0 for a free one.
        methods: how calls are answered, by path.
        limits: bounds of each connection.
        tls: connections may, or must, be secured by it; ``None`` for none.
        handed_on: see :class:`~understudy.proxy.grpc.shared.Shared`; ``None``: there is nothing to do then.

    Attributes:
        connections: the open ones.
        on_stop: called when it stops, before calls under way get their time; must not raise.
    """

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        methods: Mapping[str, Method],
        limits: GrpcLimits | None = None,
        tls: ServerTls | None = None,
        handed_on: Callable[[], None] | None = None,
    ) -> None:
        self._world = world
        self._bind_to = (host, port)
        self._limits = limits or GrpcLimits()
        self._shared = Shared(
            world.clock, world.load, world.threads, methods, self._limits, Later(), handed_on or (lambda: None)
        )
        self._tls = tls
        self._listener: Listener | None = None
        self.connections: set[GrpcConnection] = set()
        self.on_stop: list[Callable[[], None]] = []

    @property
    def address(self) -> tuple[str, int]:
        """The host and the real port, after :meth:`bind`."""
        return self._bind_to if self._listener is None else self._listener.address

    @property
    def refused_connections(self) -> int:
        """Connections closed as soon as they came, because descriptors were short."""
        return self._listener.refused if self._listener is not None else 0

    async def bind(self) -> tuple[str, int]:
        """Take the port; calls are answered once :meth:`run` runs.

        Returns:
            Host and real port.

        Raises:
            ListenError: the port cannot be had.
        """
        if self._listener is None:
            self._listener = await self._world.network.listen(*self._bind_to)
        return self._listener.address

    async def run(self) -> None:
        """Serve until cancelled; then say goodbye to every client and give calls under way a little time."""
        await self.bind()
        listener = self._listener
        assert listener is not None
        async with open_shielded() as connections:
            connections.start_soon(self._shared.later.run)
            try:
                async with trio.open_nursery() as looking:
                    looking.start_soon(self._look)
                    while True:
                        connections.start_soon(self.serve, await listener.accept())
            finally:
                for callback in self.on_stop:
                    callback()
                with trio.CancelScope(shield=True):
                    await listener.aclose()
                await self._drain()

    async def _drain(self) -> None:
        with self._world.clock.move_on_after(self._limits.drain_seconds + 1) as scope:
            scope.shield = True
            async with trio.open_nursery() as nursery:
                for connection in self.connections:
                    nursery.start_soon(connection.drain)

    async def serve(self, stream: ByteStream, *, secured: bool = False) -> None:
        """Serve one client until it leaves; never raises for what it does.

        Args:
            stream: its connection.
            secured: TLS, if any, is off already.
        """
        connection: GrpcConnection | None = None
        try:
            with self._world.clock.move_on_after(self._limits.request_seconds):
                data, source = await first_bytes(stream, self._limits.receive_bytes)
                if data and self._tls is not None and not secured:
                    stream = await self._tls.accept(Continued(stream, data))
                    data = await stream.receive_some(self._limits.receive_bytes)
                if data:
                    world = self._world
                    async with world.load.newcomers:
                        pass  # when thousands come at once, those that are there have their turns
                    connection = GrpcConnection(stream, self._shared, source)
            if connection is not None:
                self.connections.add(connection)
                await connection.run(data)
        except (PreambleError, NoTlsError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("gRPC client turned away", peer=stream.peer[0], why=error)
        except Exception as error:  # one client must never end the server
            peer = stream.peer[0]
            self._world.tell(log.error, "gRPC connection failed", exc=error, peer=peer, error=repr(error))
        finally:
            if connection is None:
                with trio.CancelScope(shield=True):
                    await stream.aclose()
            else:
                self.connections.discard(connection)

    async def _look(self) -> None:
        """Look after silent and idle clients."""
        clock = self._world.clock
        while True:
            now = clock.monotonic()
            due = now + self._limits.request_seconds
            async with Pace(self._world) as pace:
                for connection in list(self.connections):
                    due = min(due, connection.look(now))
                    await pace.breathe()
            await clock.sleep(max(_LOOK_SECONDS, due - now))
