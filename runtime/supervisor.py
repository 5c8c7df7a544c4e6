"""Named services of one lifetime, with a roster that says what runs, since when, and why the rest does not.

A supervisor lives inside one ``async with``; every service it starts is a child of its nursery and is gone when the
block ends. A service that returns or fails is entered in the roster; whether a failure ends the whole lifetime is the
starter's choice, never an accident.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from understudy.runtime.background import open_background
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("runtime.supervisor")


@attrs.define
class Service:
    """One line of the roster."""

    name: str
    reason: str
    started_ms: int
    state: str = "running"  # running | stopping | ended | failed
    error: str = ""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    done: trio.Event = attrs.field(factory=trio.Event, repr=False)


class Supervisor:
    """Starts, stops and lists the services of one lifetime. Make it with :func:`open_supervisor`."""

    def __init__(self, nursery: trio.Nursery, clock: Clock, owner: str) -> None:
        self._nursery = nursery
        self._clock = clock
        self._owner = owner
        self._services: dict[str, Service] = {}

    def start(
        self, name: str, run: Callable[[], Awaitable[object]], *, reason: str = "always on", essential: bool = True
    ) -> None:
        """Start *run* as service *name*.

        Args:
            name: unique among running services of this supervisor.
            run: the service; ends by returning, raising, or being cancelled.
            reason: why it runs, for the roster.
            essential: a failure of this service ends the lifetime (the exception leaves the ``async with``); otherwise
                it is logged and entered in the roster.

        Raises:
            ValueError: when a service of that name is running.
        """
        current = self._services.get(name)
        if current is not None and not current.done.is_set():
            raise ValueError(f"{self._owner}: service {name} is already running")
        service = Service(name, reason, self._clock.wall_ms())
        self._services[name] = service
        self._nursery.start_soon(self._run, service, run, essential)

    async def _run(self, service: Service, run: Callable[[], Awaitable[object]], essential: bool) -> None:
        try:
            with service.scope:
                await run()
            service.state = "ended"
        except trio.Cancelled:
            service.state = "ended"
            raise
        except Exception as error:
            service.state = "failed"
            service.error = f"{type(error).__name__}: {error}"
            log.error("service failed", owner=self._owner, service=service.name, error=service.error, exc=error)
            if essential:
                raise
        finally:
            service.done.set()

    async def stop(self, name: str) -> None:
        """Cancel service *name* and wait until it is gone; an unknown or ended one is fine."""
        service = self._services.get(name)
        if service is None or service.done.is_set():
            return
        service.state = "stopping"
        service.scope.cancel()
        await service.done.wait()

    def running(self) -> frozenset[str]:
        """Return the names of running services."""
        return frozenset(name for name, service in self._services.items() if not service.done.is_set())

    def roster(self) -> list[Service]:
        """Return every service ever started here, in order of name, with its state."""
        return [self._services[name] for name in sorted(self._services)]


@asynccontextmanager
async def open_supervisor(clock: Clock, owner: str) -> AsyncIterator[Supervisor]:
    """Open a lifetime for services; leaving the block cancels those that still run."""
    async with open_background() as nursery:
        yield Supervisor(nursery, clock, owner)
