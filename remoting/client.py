"""Calls to servers: one shared connection per address, made when needed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher, Handler
from understudy.remoting.errors import ConnectFailedError, ConnectionLostError, RemotingError
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.background import ShieldedTasks, open_shielded
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.tls_server import dial_tls
from understudy.runtime.world import World

log = get_logger("remoting.client")

CLOSED = "the client is closed: its block was left"


@attrs.define(eq=False)
class _Attempt:
    """A connection that is being made, for all who want it."""

    done: trio.Event = attrs.field(factory=trio.Event)
    error: ConnectFailedError | None = None


class RemotingClient(Dispatcher):
    """Connections to any number of servers. Make it with :func:`open_client`.

    Handlers registered here answer requests that servers send on these connections.

    Attributes:
        on_close: called with the address and the connection when one has ended.
        closed: its block was left: it makes no connection any more.
        sign: signs each request before it is sent; ``None``: they are not signed.
        tls: secures each new connection; ``None``: they are plain.
    """

    def __init__(self, world: World, tasks: ShieldedTasks, limits: ConnectionLimits) -> None:
        super().__init__(world.clock, world.load)
        self._threads = world.threads
        self._world = world
        self._tasks = tasks
        self._limits = limits
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, _Attempt] = {}
        self._name_servers: list[str] = []
        self._chosen: str | None = None
        self.on_close: list[Callable[[str, Connection], None]] = []
        self.closed = False
        self.sign: Callable[[Command], None] | None = None
        self.tls: ssl.SSLContext | None = None

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        """Send *command* to *address* and return the answer, whatever its code.

        Args:
            address: ``host:port``.
            command: the request.
            timeout_ms: longest wait in milliseconds, connecting included.

        Raises:
            ConnectFailedError: no connection; the request was not sent.
            ConnectionLostError, InvokeTimeoutError: see there.
        """
        start = self._world.clock.monotonic()
        connection = await self.connection(address, timeout_ms)
        left = timeout_ms - (self._world.clock.monotonic() - start) * 1000
        return await connection.invoke(command, max(left, 0.0))

    async def invoke_repeatable(self, address: str, question: Command, timeout_ms: float) -> Command:
        """Do as :meth:`invoke` for a *question*, which may be executed twice.

        A connection that was there before may have ended long ago without a sign, as when the peer lost power: then the
        first request over it tells so, and says nothing of the peer. The question is sent once more over a new one.

        Args:
            address: ``host:port``.
            question: a request that changes nothing, or nothing more when it is executed again.
            timeout_ms: longest wait in milliseconds, connecting and both attempts included.

        Raises:
            ConnectFailedError: no connection.
            ConnectionLostError: a new connection ended, too.
            InvokeTimeoutError: see there.
        """
        start, before = self._world.clock.monotonic(), self.current(address)
        try:
            return await self.invoke(address, question, timeout_ms)
        except ConnectionLostError:
            left = timeout_ms - (self._world.clock.monotonic() - start) * 1000
            if before is None or before.alive or left <= 0:
                raise
        return await self.invoke(address, question, left)

    async def invoke_oneway(self, address: str, command: Command, timeout_ms: float) -> None:
        """Send *command* to *address* without an answer. Raises :class:`ConnectFailedError`."""
        connection = await self.connection(address, timeout_ms)
        connection.notify(command)

    def current(self, address: str) -> Connection | None:
        """Return the open connection to *address*, as far as is known here; ``None``: there is none."""
        current = self._connections.get(address)
        return current if current is not None and current.alive else None

    async def connection(self, address: str, timeout_ms: float) -> Connection:
        """Return the open connection to *address*, made within *timeout_ms* if there is none.

        Raises:
            ConnectFailedError: it cannot be made in time.
        """
        clock = self._world.clock
        timeout_seconds = min(timeout_ms / 1000, self._limits.connect_timeout_seconds)
        deadline = clock.monotonic() + timeout_seconds
        while True:
            if self.closed:
                raise ConnectFailedError(address, CLOSED)
            current = self.current(address)
            if current is not None:
                return current
            left_seconds = max(deadline - clock.monotonic(), 0.0)
            under_way = self._connecting.get(address)
            if under_way is None:
                return await self._attempt(address, left_seconds)
            with clock.move_on_after(left_seconds) as scope:
                await under_way.done.wait()
            if scope.cancelled_caught:
                raise ConnectFailedError(address, f"no connection to {address}: no answer within {timeout_seconds:g} s")
            if under_way.error is not None:
                raise ConnectFailedError(address, str(under_way.error)) from under_way.error
            # Who began it was cancelled: another one of those who wait goes on.

    async def _attempt(self, address: str, timeout_seconds: float) -> Connection:
        attempt = self._connecting[address] = _Attempt()
        try:
            return await self._connect(address, timeout_seconds)
        except ConnectFailedError as error:
            attempt.error = error
            raise
        finally:
            del self._connecting[address]
            attempt.done.set()

    async def _connect(self, address: str, timeout_seconds: float) -> Connection:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConnectFailedError(address, f"{address!r} is not an address of the form host:port")
        try:
            stream = await self._world.network.connect(host.strip("[]"), int(port), timeout_seconds)
            if self.tls is not None:
                stream = await self._secure(stream, self.tls, timeout_seconds)
        except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: a host that is no name at all
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise ConnectFailedError(address, f"no connection to {address}: {reason}") from error
        connection = Connection(stream, self._world.clock, self._limits, self._world.load)
        connection.sign = self.sign
        self._connections[address] = connection
        started = trio.Event()
        self._tasks.start_soon(self._serve, address, connection, started)
        await started.wait()
        return connection

    async def _secure(self, stream: ByteStream, context: ssl.SSLContext, timeout_seconds: float) -> ByteStream:
        """Return *stream* under TLS. Raises ``ConnectionError``; it is closed then."""
        try:
            with self._world.clock.move_on_after(timeout_seconds):
                return await dial_tls(stream, context)
            raise ConnectionError(f"no TLS handshake within {timeout_seconds:g} s")
        except BaseException:
            with trio.CancelScope(shield=True):
                await stream.aclose()
            raise

    async def _serve(self, address: str, connection: Connection, started: trio.Event) -> None:
        try:
            started.set()
            await connection.run(self.dispatch)
        except Exception as error:  # one connection must never end the client
            log.error("connection failed", exc=error, peer=address, error=repr(error))
        finally:
            if self._connections.get(address) is connection:
                del self._connections[address]
            log.debug("connection ended", peer=address, why=connection.close_reason)
            for callback in self.on_close:
                callback(address, connection)

    def open_connection(self, address: str) -> Connection | None:
        """Return the open connection to *address*, or ``None``."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.alive else None

    # --- name servers ------------------------------------------------------------------------------------------

    @property
    def name_servers(self) -> list[str]:
        """The configured name servers, ``host:port`` each."""
        return list(self._name_servers)

    def set_name_servers(self, addresses: Sequence[str]) -> None:
        """Replace the list of name servers; the chosen one is kept when it is still in it."""
        self._name_servers = [address.strip() for address in addresses if address.strip()]
        if self._chosen not in self._name_servers:
            self._chosen = None

    async def invoke_name_server(self, command: Command, timeout_ms: float) -> Command:
        """Ask one name server: the chosen one until it fails, then the others in turn.

        Raises:
            RemotingError: none answered; the last error.
        """
        if not self._name_servers:
            raise ConnectFailedError("", "no name server is configured")
        if self._chosen is None:
            self._chosen = self._world.random.choice(self._name_servers)
        first = self._name_servers.index(self._chosen)
        order = self._name_servers[first:] + self._name_servers[:first]
        last: RemotingError | None = None
        for address in order:
            try:
                answer = await self.invoke(address, command, timeout_ms)
            except RemotingError as error:
                last = error
                log.warning("name server does not answer", address=address, error=error)
                continue
            self._chosen = address
            return answer
        assert last is not None
        self._chosen = None
        raise last


@asynccontextmanager
async def open_client(
    world: World,
    *,
    handlers: Mapping[int, Handler] | None = None,
    limits: ConnectionLimits | None = None,
    like: RemotingClient | None = None,
) -> AsyncIterator[RemotingClient]:
    """Open a client; leaving the block ends its connections, after the clean-up of what is in it, also when cancelled.

    Args:
        world: clock, network and randomness.
        handlers: answers to requests that servers send, by code.
        limits: bounds of each connection.
        like: signs and secures as this one does.
    """
    async with open_shielded() as tasks:
        client = RemotingClient(world, tasks, limits or ConnectionLimits())
        if like is not None:
            client.sign, client.tls = like.sign, like.tls
        for code, handler in (handlers or {}).items():
            client.register(code, handler)
        try:
            yield client
        finally:
            client.closed = True
