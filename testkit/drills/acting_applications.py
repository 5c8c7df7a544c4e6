"""The applications of a drill beside its usual senders and readers: half messages, pops, pops in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import attrs
import trio

from understudy.testkit.drills.acting_kinds import Kind
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.acting_traffic import hold_open
from understudy.testkit.drills.half_traffic import BROKER_KEYS, HalfTraffic
from understudy.testkit.drills.half_traffic import TOPIC as HALVES
from understudy.testkit.drills.met_faults import Met
from understudy.testkit.drills.pop_traffic import PopTraffic
from understudy.testkit.sim.cluster import SimCluster

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


class Applications:
    """Those that a run wants.

    Args:
        wanted: which.
        seed: what they do is drawn from it.
        pause_seconds: how long each sender waits between its messages.
    """

    def __init__(self, wanted: Wanted, seed: int, pause_seconds: float) -> None:
        self._halves = HalfTraffic(seed, pause_seconds) if wanted.halves else None
        self._pops = [PopTraffic(seed, pause_seconds)] if wanted.pops else []
        self._pops += [PopTraffic(seed, pause_seconds, in_order=True)] if wanted.pops_in_order else []

    @property
    def broker_keys(self) -> dict[str, str]:
        """What every broker must be told for them."""
        return {} if self._halves is None else BROKER_KEYS

    @property
    def topics(self) -> list[str]:
        """Topics they need."""
        return [*(() if self._halves is None else (HALVES,)), *(each.topic for each in self._pops)]

    async def start(self, nursery: trio.Nursery, cluster: SimCluster, groups: Sequence[str]) -> None:
        """Start them; they end with *nursery*."""
        if self._halves is not None:
            await nursery.start(hold_open, self._halves.playing(cluster))
        for each in self._pops:
            await nursery.start(hold_open, each.playing(cluster, groups))

    async def drain(self, met_by: MetBy) -> None:
        """Send no more, and wait for what must come."""
        if self._halves is not None:
            await self._halves.drain()
        for each in self._pops:
            await each.drain(met_by)

    def repeats(self, met_by: MetBy, hosts: Callable[[str | None], frozenset[str]]) -> list[Repeat]:
        """Return what came again and had been done with."""
        found = [] if self._halves is None else self._halves.repeats(met_by, hosts)
        return [*found, *(repeat for each in self._pops for repeat in each.repeats(met_by, hosts))]

    def problems(self, met_by: MetBy) -> list[str]:
        """Return what must not be, beside repeats."""
        found = [] if self._halves is None else self._halves.problems(met_by)
        return [*found, *(problem for each in self._pops for problem in each.problems(met_by))]

    def counts(self) -> Counter[str]:
        """Return how much happened."""
        found = Counter[str]() if self._halves is None else self._halves.counts()
        for each in self._pops:
            found += each.counts()
        return found

    def kinds(self, met_by: MetBy) -> list[Kind]:
        """Return the figures of each kind."""
        found = [] if self._halves is None else [self._halves.kind(met_by)]
        return [*found, *(each.kind(met_by) for each in self._pops)]
