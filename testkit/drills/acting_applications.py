"""The applications of a drill beside its usual senders and readers: half messages, pops, pops in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs
import trio

from understudy.runtime.world import World
from understudy.testkit.drills.acting_kinds import Kind
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.acting_traffic import hold_open
from understudy.testkit.drills.half_traffic import BROKER_KEYS, HalfTraffic
from understudy.testkit.drills.met_faults import Met
from understudy.testkit.drills.pop_traffic import PopTraffic
from understudy.testkit.drills.timer_traffic import TimerTraffic

MetBy = Callable[[str | None], tuple[Met, ...]]


@attrs.frozen
class Wanted:
    """Which kinds of messages a run has beside plain and delayed ones.

    Attributes:
        timers: messages for a moment; the usual senders send them.
        halves: half messages, decided at once, late, or when a broker asks.
        pops: popped and acknowledged ones.
        pops_in_order: the same in the order of their queues.
    """

    timers: bool = False
    halves: bool = False
    pops: bool = False
    pops_in_order: bool = False


ALL_KINDS = Wanted(timers=True, halves=True, pops=True, pops_in_order=True)


class Application(Protocol):
    """One of them, with its own topic, producer and consumers."""

    @property
    def topic(self) -> str:
        """What it sends to."""

    def playing(
        self, world_of: Callable[[str], World], servers: str, groups: Sequence[str]
    ) -> AbstractAsyncContextManager[None]:
        """Send and consume inside the block; its end is not waited for."""

    async def drain(self, met_by: MetBy) -> None:
        """Send no more, and wait for what must come, for a bounded time."""

    def repeats(self, met_by: MetBy, hosts: Callable[[str | None], frozenset[str]]) -> list[Repeat]:
        """Return what came again and had been done with."""

    def problems(self, met_by: MetBy) -> list[str]:
        """Return what must not be, beside repeats."""

    def counts(self) -> Counter[str]:
        """Return how much happened."""

    def kind(self, met_by: MetBy) -> Kind:
        """Return its figures."""


class Applications:
    """Those that a run wants.

    Args:
        wanted: which.
        seed: what they do is drawn from it.
        pause_seconds: how long each sender waits between its messages.
        own_timers: timer messages are an application of their own, and not the usual senders'.
    """

    def __init__(self, wanted: Wanted, seed: int, pause_seconds: float, *, own_timers: bool = False) -> None:
        self._all: list[Application] = []
        if wanted.timers and own_timers:
            self._all.append(TimerTraffic(seed, pause_seconds))
        if wanted.halves:
            self._all.append(HalfTraffic(seed, pause_seconds))
        if wanted.pops:
            self._all.append(PopTraffic(seed, pause_seconds))
        if wanted.pops_in_order:
            self._all.append(PopTraffic(seed, pause_seconds, in_order=True))
        self._halves = wanted.halves

    @property
    def broker_keys(self) -> dict[str, str]:
        """What every broker must be told for them."""
        return BROKER_KEYS if self._halves else {}

    @property
    def topics(self) -> list[str]:
        """Topics they need."""
        return [each.topic for each in self._all]

    async def start(
        self, nursery: trio.Nursery, world_of: Callable[[str], World], servers: str, groups: Sequence[str]
    ) -> None:
        """Start them; they end with *nursery*.

        Args:
            nursery: they run in it.
            world_of: gives a client of some name its world.
            servers: the name servers.
            groups: of brokers, which have the :attr:`topics`.
        """
        for each in self._all:
            await nursery.start(hold_open, each.playing(world_of, servers, groups))

    async def drain(self, met_by: MetBy) -> None:
        """Send no more, and wait for what must come, of one after the other."""
        for each in self._all:
            await each.drain(met_by)

    async def drain_together(self, met_by: MetBy) -> None:
        """Send no more, and wait for what must come, of all at once."""
        async with trio.open_nursery() as nursery:
            for each in self._all:
                nursery.start_soon(each.drain, met_by)

    def repeats(self, met_by: MetBy, hosts: Callable[[str | None], frozenset[str]]) -> list[Repeat]:
        """Return what came again and had been done with."""
        return [repeat for each in self._all for repeat in each.repeats(met_by, hosts)]

    def problems(self, met_by: MetBy) -> list[str]:
        """Return what must not be, beside repeats."""
        return [problem for each in self._all for problem in each.problems(met_by)]

    def counts(self) -> Counter[str]:
        """Return how much happened."""
        return sum((each.counts() for each in self._all), Counter[str]())

    def kinds(self, met_by: MetBy) -> list[Kind]:
        """Return the figures of each kind."""
        return [each.kind(met_by) for each in self._all]
