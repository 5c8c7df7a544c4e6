"""Hosts that may copy a led master's log, where its file asks for that: those of replicas that the controllers know."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping

from understudy.broker.led.controllers import RefusedError, UnansweredError
from understudy.remoting.access import AddressRanges
from understudy.runtime.clock import Clock
from understudy.runtime.signal import Signal

AGAIN_SECONDS = 0.5
"""At least between two questions, however many strangers come."""


class RegisteredReplicas:
    """Where the replicas of a group are; what was known counts for as long as no controller answers.

    Args:
        clock: monotonic time.
        ask: asks the leader of the controllers for the replicas' addresses, by id; raises ``UnansweredError`` and
            ``RefusedError``.
        period_s: between two questions while nobody unknown comes, in seconds; read anew each time.
    """

    def __init__(
        self, clock: Clock, ask: Callable[[], Awaitable[Mapping[int, str]]], period_s: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._period_s = period_s
        self._known = AddressRanges("")
        self._stranger = Signal()

    def holds(self, host: str) -> bool:
        """Return whether a replica is registered at *host*, an IP address; if none is, look again soon."""
        known = self._known.holds(host)
        if not known:
            self._stranger.set()
        return known

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            handled = self._stranger.count
            with contextlib.suppress(UnansweredError, RefusedError):
                addresses = await self._ask()
                if addresses:  # none of a group that was removed, until its brokers have registered again
                    self._known = AddressRanges(";".join(host for host in map(_host_of, addresses.values()) if host))
            await self._clock.sleep(AGAIN_SECONDS)
            with self._clock.move_on_after(self._period_s()):
                await self._stranger.wait(handled)


def _host_of(address: str) -> str:
    """Return the IP address in ``host:port``; empty where a name stands instead."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
