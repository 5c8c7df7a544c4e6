"""From a request's code to its handler, with the busy answers of the reference.

Handlers that never wait are plain functions, run in place. Handlers that wait are async functions and belong to a
*lane*: a kind of request with a bound on how many run and how many wait, so that a flood of one kind leaves the others
alone. A lane makes no answers for a peer that does not read those it has; its requests wait meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from understudy.remoting import access, bodies
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, held_bytes, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional_bool
from understudy.remoting.frame import Buffer, buffers_of, encode
from understudy.remoting.limits import LaneLimits
from understudy.runtime.clock import Clock
from understudy.runtime.load import Budget, Load
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.threads import InPlace, Threads

log = get_logger("remoting.dispatch")

LARGE_BODIES = "large bodies"
"""The lane of requests whose bodies take long."""

Answer = Command | Buffer | Sequence[Buffer] | None
Handler = Callable[[Connection, Command], Answer]
AsyncHandler = Callable[[Connection, Command], Awaitable[Answer]]


class Gate(Protocol):
    """What each request of a server must pass; all raise :class:`CommandError` for those that do not."""

    def authenticate(self, command: Command, address: str) -> None:
        """Check, before anything in it is read, who sent a request from the IP address *address*."""
        ...

    def authorize(self, command: Command, address: str) -> None:
        """Check, once its body is read, whether its sender may ask it."""
        ...

    def authorize_in_steps(self, command: Command, address: str) -> Generator[None, None, None]:
        """Check the same in short steps."""
        ...

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return *handler* for requests of *code* that pass both checks, one right behind the other."""
        ...


_OVERLOAD = "[OVERLOAD]system busy, too many requests of this kind are waiting; slow down and try again"
_WAITED = "[TIMEOUT_CLEAN_QUEUE]broker busy, the request waited {waited_ms} ms for a handler; try again later"


class Dispatcher:
    """The handlers of one server or client.

    Args:
        clock: for the age of waiting requests.
        load: where waiting requests are counted.

    Attributes:
        handed_on: called when all requests of one receive were handed to their handlers, before their answers are sent;
            must not raise.
        answered: called after the answers of one receive were sent; must not raise.
        administrators: whose requests of the class administration are answered; ``None`` for everybody's.
        gate: what each request must pass; handlers pass by it that were registered before it is set. ``None``: nothing.
    """

    def __init__(self, clock: Clock, load: Load | None = None) -> None:
        self._clock = clock
        self._shared = _Shared(clock, load or Load())
        self._incoming = self._shared.load.incoming
        self._threads: Threads = InPlace()
        self._handlers: dict[int, Handler] = {}
        self._default: Handler = self._unregistered
        self._of_others: Handler = unsupported
        self._lanes: dict[str, Lane] = {}
        self.handed_on: Callable[[], None] | None = None
        self.answered: Callable[[], None] | None = None
        self.administrators: access.AddressRanges | None = None
        self.gate: Gate | None = None

    def register(self, code: int, handler: Handler, reading: bodies.Reading | None = None) -> None:
        """Answer requests of *code* by *handler*, in place; ``None`` from it means answered later or never.

        Args:
            code: the request code.
            handler: called for each request.
            reading: how the body is read, when that may take long; the JSON of codes whose body is JSON by itself.
        """
        if reading is None and code in bodies.JSON_BODIES:
            reading = bodies.JSON
        gate = self.gate
        field = access.ADMINISTRATION_BY_FIELD.get(code)
        administration = code in access.ADMINISTRATION or field is not None
        if reading is None and gate is not None and not administration:
            self._handlers[int(code)] = gate.guarded(int(code), handler)
            return
        if reading is not None:
            handler = self._after_reading(handler, reading, gate)
        elif gate is not None:
            handler = _behind(gate.authorize, handler)
        if administration:
            handler = self._for_administrators(handler, field)
        self._handlers[int(code)] = handler if gate is None else _behind(gate.authenticate, handler)

    def register_async(
        self, code: int, handler: AsyncHandler, kind: str = "admin", reading: bodies.Reading | None = None
    ) -> None:
        """Answer requests of *code* by a task.

        Args:
            code: the request code.
            handler: called for each request.
            kind: its lane.
            reading: as for :meth:`register`.
        """
        lane = self.lane(kind)

        def submit(connection: Connection, command: Command) -> Answer:
            return lane.submit(connection, command, handler)

        self.register(code, submit, reading)

    def _for_administrators(self, handler: Handler, field: str | None) -> Handler:
        def handle(connection: Connection, command: Command) -> Answer:
            if field is not None and not optional_bool(command, field):
                return handler(connection, command)
            if self.administrators is not None and not self.administrators.holds(connection.source):
                told, now = self._shared.load.lines, self._clock.monotonic()
                told.tell(log.warning, "administration refused", now, peer=connection.address, code=command.code)
                remark = f"{access.ADMIN_KEY} of this server does not name {connection.source}: request {command.code}"
                return response(command, ResponseCode.NO_PERMISSION, f"{remark} is administration")
            return handler(connection, command)

        return handle

    def _after_reading(self, handler: Handler, reading: bodies.Reading, gate: Gate | None) -> Handler:
        lane = self.lane(LARGE_BODIES, bodies.LARGE_BODY_LANE)
        behind = handler if gate is None else _behind(gate.authorize, handler)

        async def read_first(connection: Connection, command: Command) -> Answer:
            await bodies.read_ahead(self._threads, command, reading.read)
            if gate is not None:  # what a large body needs may be much, too
                async with Pace(self._shared) as pace:
                    await pace.run(gate.authorize_in_steps(command, connection.source))
            bodies.only(command, reading.read)
            return handler(connection, command)

        def handle(connection: Connection, command: Command) -> Answer:
            if reading.ahead(command):
                return lane.submit(connection, command, read_first)
            return behind(connection, command)

        return handle

    def watch(self, code: int, watcher: Callable[[Connection, Command], None]) -> None:
        """Have *watcher*, which must not raise, see each request of *code* that its handler has taken, signed where it
        must be."""
        handler = self._handlers[int(code)]

        def handle(connection: Connection, command: Command) -> Answer:
            answer = handler(connection, command)
            watcher(connection, command)
            return answer

        self._handlers[int(code)] = handle

    def default(self, handler: Handler) -> None:
        """Answer requests of unregistered codes by *handler* instead of "not supported"."""
        self._of_others = handler

    def _unregistered(self, connection: Connection, command: Command) -> Answer:
        if self.gate is not None:  # not even which codes there are is told to who may not ask
            self.gate.authenticate(command, connection.source)
            self.gate.authorize(command, connection.source)
        return self._of_others(connection, command)

    def lane(self, kind: str, limits: LaneLimits | None = None) -> Lane:
        """Return the lane *kind*, made on first use; *limits* replace its bounds."""
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = Lane(kind, limits or LaneLimits(), self._clock, self._incoming)
        elif limits is not None:
            lane.limits = limits
        return lane

    @property
    def lanes(self) -> dict[str, Lane]:
        """The lanes by kind."""
        return self._lanes

    @property
    def codes(self) -> frozenset[int]:
        """The registered request codes."""
        return frozenset(self._handlers)

    def handler(self, code: int) -> Handler | None:
        """Return the handler of *code* as it is called for requests, or ``None``."""
        return self._handlers.get(int(code))

    def copy_to(self, other: Dispatcher, *, without: frozenset[int] = frozenset()) -> None:
        """Give every handler of this dispatcher, but those of codes *without*, to *other* too, lanes shared."""
        other.handed_on, other.answered = self.handed_on, self.answered
        for code, handler in self._handlers.items():
            if code not in without:
                other._handlers[code] = handler
        other._default = self._default

    @property
    def handlers(self) -> tuple[Mapping[int, Handler], Handler]:
        """The handlers by code as they are called for requests, and that of all other codes."""
        return self._handlers, self._default

    def dispatch(self, connection: Connection, command: Command) -> None:
        """Hand one request to its handler and send what it answers."""
        handler = self._handlers.get(command.code, self._default)
        try:
            answer = handler(connection, command)
        except Exception as error:
            answer = failure(connection, command, error)
        if answer is not None and not command.flag & ONEWAY_BIT:
            # Most answers are bytes, and isinstance is slow for a class of msgspec's.
            connection.write(encode(answer) if type(answer) is not bytes and isinstance(answer, Command) else answer)


def _behind(check: Callable[[Command, str], None], handler: Handler) -> Handler:
    """Return *handler* for requests that pass *check*; it raises :class:`CommandError` for others."""

    def handle(connection: Connection, command: Command) -> Answer:
        check(command, connection.source)
        return handler(connection, command)

    return handle


@attrs.frozen
class _Shared:
    clock: Clock
    load: Load


class _Request:
    """A request that waits for a handler."""

    __slots__ = ("command", "connection", "handler", "size_bytes", "waits_since")

    def __init__(
        self, connection: Connection, command: Command, handler: AsyncHandler, waits_since: float, size_bytes: int
    ) -> None:
        self.connection = connection
        self.command = command
        self.handler = handler
        self.waits_since = waits_since
        self.size_bytes = size_bytes


class Lane:
    """One kind of request: how many handlers run, how many requests wait."""

    def __init__(self, kind: str, limits: LaneLimits, clock: Clock, incoming: Budget) -> None:
        self.kind = kind
        self.limits = limits
        self.running = 0
        self.refused = 0
        self._clock = clock
        self._incoming = incoming
        self._waiting: deque[_Request] = deque()
        self._choked: dict[Connection, deque[_Request]] = {}
        self._count = 0
        self._waiting_bytes = 0
        self._watching = False

    @property
    def waiting(self) -> int:
        """Requests that wait for a handler, or until their peer reads the answers it has."""
        return self._count

    def submit(self, connection: Connection, command: Command, handler: AsyncHandler) -> Answer:
        """Run *handler* for *command* now, later, or refuse it."""
        if self.running < self.limits.running and not connection.choked:
            self._start(connection, command, handler)
            return None
        size = held_bytes(command)
        too_much = not self._incoming.allows(connection, size)
        if too_much or self._count >= self.limits.waiting or self._waiting_bytes + size > self.limits.waiting_bytes:
            self.refused += 1
            self._incoming.refused += too_much
            return response(command, ResponseCode.SYSTEM_BUSY, _OVERLOAD)
        request = _Request(connection, command, handler, self._clock.monotonic(), size)
        self._count += 1
        self._waiting_bytes += size
        self._incoming.change(connection, size)
        self._wait(request)
        return None

    def _wait(self, request: _Request) -> None:
        connection = request.connection
        if not connection.choked:
            self._waiting.append(request)
            if not self._watching:
                self._watching = connection.start_soon(self._watch)
            return
        held = self._choked.get(connection)
        if held is None:
            held = self._choked[connection] = deque()
            connection.when_drained(partial(self._drained, connection))
        held.append(request)

    def _drained(self, connection: Connection) -> None:
        """Let the requests of a peer that has read its answers, or is gone, wait as the others do."""
        self._waiting.extend(self._choked.pop(connection, ()))
        self._next()
        if self._waiting and not self._watching:
            self._watching = self._waiting[0].connection.start_soon(self._watch)

    def _start(self, connection: Connection, command: Command, handler: AsyncHandler) -> bool:
        if connection.start_soon(self._run, connection, command, handler):
            self.running += 1
            return True
        return False

    @trio.lowlevel.enable_ki_protection
    async def _run(self, connection: Connection, command: Command, handler: AsyncHandler) -> None:
        try:
            answer = await handler(connection, command)
        except Exception as error:
            answer = failure(connection, command, error)
        finally:
            self.running -= 1
            self._next()
        if answer is not None and not command.flag & ONEWAY_BIT:
            connection.write(buffers_of(answer) if isinstance(answer, Command) else answer)

    def _next(self) -> None:
        while self._waiting and self.running < self.limits.running:
            request = self._waiting.popleft()
            if request.connection.alive and request.connection.choked:
                self._wait(request)
                continue
            self._leaves(request)
            if not request.connection.alive:
                continue
            waited = self._clock.monotonic() - request.waits_since
            if waited > self.limits.wait_seconds:
                self._refuse_waited(request, waited)
            else:
                self._start(request.connection, request.command, request.handler)

    def _leaves(self, request: _Request) -> None:
        self._count -= 1
        self._waiting_bytes -= request.size_bytes
        self._incoming.change(request.connection, -request.size_bytes)

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        """Refuse requests that waited too long although no handler came free; lives while something waits."""
        try:
            while self._waiting:
                request = self._waiting[0]
                waited = self._clock.monotonic() - request.waits_since
                if waited < self.limits.wait_seconds:
                    await self._clock.sleep(self.limits.wait_seconds - waited)
                    continue
                self._waiting.popleft()
                self._leaves(request)
                self._refuse_waited(request, waited)
        finally:
            self._watching = False
            for request in self._waiting:  # our connection ended: another one watches on
                if request.connection.start_soon(self._watch):
                    self._watching = True
                    break

    def _refuse_waited(self, request: _Request, waited_seconds: float) -> None:
        self.refused += 1
        remark = _WAITED.format(waited_ms=round(waited_seconds * 1000))
        request.connection.respond(request.command, response(request.command, ResponseCode.SYSTEM_BUSY, remark))


def failure(connection: Connection, command: Command, error: Exception) -> Command:
    """Return the answer to a request whose handler raised *error*, and log what is not the peer's fault."""
    if isinstance(error, CommandError):
        return response(command, error.code, error.remark, error.ext)
    if isinstance(error, trio.BrokenResourceError):
        return response(command, ResponseCode.SYSTEM_ERROR, "connection broken")
    description = f"{type(error).__name__}: {error}"
    log.error("request failed", exc=error, code=command.code, peer=connection.address, error=description)
    return response(command, ResponseCode.SYSTEM_ERROR, description)


def unsupported(connection: Connection, command: Command) -> Answer:
    remark = f" request type {command.code} not supported"
    return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
