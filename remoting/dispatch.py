"""From a request's code to its handler, with the busy answers of the reference.

Handlers that never wait are plain functions, run in place. Handlers that wait are async functions and belong to a
*lane*: a kind of request with a bound on how many run and how many wait, so that a flood of one kind leaves the others
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import Buffer, encode
from understudy.remoting.limits import LaneLimits
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("remoting.dispatch")

Answer = Command | Buffer | Sequence[Buffer] | None
Handler = Callable[[Connection, Command], Answer]
AsyncHandler = Callable[[Connection, Command], Awaitable[Answer]]

_OVERLOAD = "[OVERLOAD]system busy, too many requests of this kind are waiting; slow down and try again"
_WAITED = "[TIMEOUT_CLEAN_QUEUE]broker busy, the request waited {waited_ms} ms for a handler; try again later"


class Dispatcher:
    """The handlers of one server or client.

    Attributes:
        handed_on: called when all requests of one receive were handed to their handlers, before their answers are sent;
            must not raise.
        answered: called after the answers of one receive were sent; must not raise.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._handlers: dict[int, Handler] = {}
        self._default: Handler = _unsupported
        self._lanes: dict[str, Lane] = {}
        self.handed_on: Callable[[], None] | None = None
        self.answered: Callable[[], None] | None = None

    def register(self, code: int, handler: Handler) -> None:
        """Answer requests of *code* by *handler*, in place; ``None`` from it means answered later or never."""
        self._handlers[int(code)] = handler

    def register_async(self, code: int, handler: AsyncHandler, kind: str = "admin") -> None:
        """Answer requests of *code* by a task in the lane *kind*."""
        lane = self.lane(kind)

        def submit(connection: Connection, command: Command) -> Answer:
            return lane.submit(connection, command, handler)

        self._handlers[int(code)] = submit

    def default(self, handler: Handler) -> None:
        """Answer requests of unregistered codes by *handler* instead of "not supported"."""
        self._default = handler

    def lane(self, kind: str, limits: LaneLimits | None = None) -> Lane:
        """Return the lane *kind*, made on first use; *limits* replace its bounds."""
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = Lane(kind, limits or LaneLimits(), self._clock)
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

    def dispatch(self, connection: Connection, command: Command) -> None:
        """Hand one request to its handler and send what it answers."""
        handler = self._handlers.get(command.code, self._default)
        try:
            answer = handler(connection, command)
        except Exception as error:
            answer = failure(connection, command, error)
        if answer is not None and not command.flag & 2:
            # Most answers are bytes, and isinstance is slow for a class of msgspec's.
            connection.write(encode(answer) if type(answer) is not bytes and isinstance(answer, Command) else answer)


class Lane:
    """One kind of request: how many handlers run, how many requests wait."""

    def __init__(self, kind: str, limits: LaneLimits, clock: Clock) -> None:
        self.kind = kind
        self.limits = limits
        self.running = 0
        self.refused = 0
        self._clock = clock
        self._waiting: deque[tuple[float, Connection, Command, AsyncHandler]] = deque()
        self._waiting_bytes = 0
        self._watching = False

    @property
    def waiting(self) -> int:
        """Requests that wait for a handler."""
        return len(self._waiting)

    def submit(self, connection: Connection, command: Command, handler: AsyncHandler) -> Answer:
        """Run *handler* for *command* now, later, or refuse it."""
        if self.running < self.limits.running:
            self._start(connection, command, handler)
            return None
        held = self._waiting_bytes + len(command.body)
        if len(self._waiting) >= self.limits.waiting or held > self.limits.waiting_bytes:
            self.refused += 1
            return response(command, ResponseCode.SYSTEM_BUSY, _OVERLOAD)
        self._waiting_bytes = held
        self._waiting.append((self._clock.monotonic(), connection, command, handler))
        if not self._watching:
            self._watching = connection.start_soon(self._watch)
        return None

    def _start(self, connection: Connection, command: Command, handler: AsyncHandler) -> bool:
        if connection.start_soon(self._run, connection, command, handler):
            self.running += 1
            return True
        return False

    async def _run(self, connection: Connection, command: Command, handler: AsyncHandler) -> None:
        try:
            answer = await handler(connection, command)
        except Exception as error:
            answer = failure(connection, command, error)
        finally:
            self.running -= 1
            self._next()
        if answer is not None and not command.flag & 2:
            connection.write(encode(answer) if isinstance(answer, Command) else answer)

    def _next(self) -> None:
        while self._waiting and self.running < self.limits.running:
            since, connection, command, handler = self._waiting.popleft()
            self._waiting_bytes -= len(command.body)
            if not connection.alive:
                continue
            waited = self._clock.monotonic() - since
            if waited > self.limits.wait_seconds:
                self._refuse_waited(connection, command, waited)
            else:
                self._start(connection, command, handler)

    async def _watch(self) -> None:
        """Refuse requests that waited too long although no handler came free; lives while something waits."""
        try:
            while self._waiting:
                since, connection, command, _ = self._waiting[0]
                waited = self._clock.monotonic() - since
                if waited < self.limits.wait_seconds:
                    await self._clock.sleep(self.limits.wait_seconds - waited)
                    continue
                self._waiting.popleft()
                self._waiting_bytes -= len(command.body)
                self._refuse_waited(connection, command, waited)
        finally:
            self._watching = False
            for _, connection, _, _ in self._waiting:  # our connection ended: another one watches on
                if connection.start_soon(self._watch):
                    self._watching = True
                    break

    def _refuse_waited(self, connection: Connection, command: Command, waited_seconds: float) -> None:
        self.refused += 1
        remark = _WAITED.format(waited_ms=round(waited_seconds * 1000))
        connection.respond(command, response(command, ResponseCode.SYSTEM_BUSY, remark))


def failure(connection: Connection, command: Command, error: Exception) -> Command:
    """Return the answer to a request whose handler raised *error*, and log what is not the peer's fault."""
    if isinstance(error, CommandError):
        return response(command, error.code, error.remark, error.ext)
    if isinstance(error, trio.BrokenResourceError):
        return response(command, ResponseCode.SYSTEM_ERROR, "connection broken")
    description = f"{type(error).__name__}: {error}"
    log.error("request failed", exc=error, code=command.code, peer=connection.address, error=description)
    return response(command, ResponseCode.SYSTEM_ERROR, description)


def _unsupported(connection: Connection, command: Command) -> Answer:
    remark = f" request type {command.code} not supported"
    return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
