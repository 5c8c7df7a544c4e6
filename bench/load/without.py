"""A server without one of the bounds that attacks are judged by: a row of ``bench chaos`` must fail at it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from understudy.broker import parked_pulls
from understudy.remoting.command import Command, held_bytes
from understudy.remoting.connection import Connection
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.load import Budget, Load

NO_LIMIT = 1 << 60


def totals() -> None:
    """Whatever waits in the process has no total."""
    make: Callable[..., None] = Budget.__init__

    def made(budget: Budget, limit: int) -> None:
        make(budget, NO_LIMIT)

    Budget.__init__ = made  # type: ignore[method-assign]
    Load.limit = lambda load, settings: None  # type: ignore[method-assign]


def pauses() -> None:
    """A peer that reads nothing is answered on and on."""
    make: Callable[..., None] = Connection.__init__

    def made(connection: Connection, stream: object, clock: object, limits: ConnectionLimits, *more: object) -> None:
        make(connection, stream, clock, attrs.evolve(limits, pause_bytes=NO_LIMIT, outbox_bytes=NO_LIMIT), *more)

    Connection.__init__ = made  # type: ignore[assignment]


def small_headers() -> None:
    """A parked pull keeps its header as it came."""

    def whole(command: Command, ext: dict[str, str]) -> tuple[Command, int]:
        return command, held_bytes(command)

    parked_pulls.only_needed = whole


WITHOUT: dict[str, Callable[[], None]] = {each.__name__: each for each in (totals, pauses, small_headers)}


def leave_out(names: str) -> None:
    """Take from this process what *names*, keys of :data:`WITHOUT` with spaces between them, say."""
    for name in names.split():
        WITHOUT[name]()
