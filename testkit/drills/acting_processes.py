"""The same failover with real processes, real sockets and SIGKILL, on this machine.

Three container processes and a name server; the times are those of this machine under whatever else it does.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any

import attrs
import trio

from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_applications import ALL_KINDS, Applications, Wanted
from understudy.testkit.drills.acting_faults import Fault
from understudy.testkit.drills.acting_kinds import Kind
from understudy.testkit.drills.acting_steps import step_line
from understudy.testkit.drills.met_faults import Met, Past, met_by
from understudy.testkit.drills.process_traffic import TOPIC, UNTROUBLED_SECONDS, Traffic
from understudy.testkit.drills.ring import GROUPS, THREE
from understudy.testkit.drills.ring_processes import ProcessRing
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.history import Verdict, Violation

_SETTLE_SECONDS = 4.0
_PAUSE_SECONDS = 0.1
_EXTRA = {"mappedFileSizeTimerLog": str(1 << 20)}


@attrs.define
class ProcessDrillResult:
    """What a run showed.

    Attributes:
        group: whose master met the fault.
        steps: names with seconds after the fault.
        report: what the returning master took over, ``None`` when it never went through pre-online.
        verdict: of what clients saw.
        notes: what clients of one kind saw beside.
        kinds: what came of each kind of message.
        allowed: how many repeats each row of the table of allowed ones explains.
    """

    group: str
    steps: list[tuple[str, float]]
    report: dict[str, Any] | None
    verdict: Verdict
    notes: list[str]
    kinds: list[Kind]
    allowed: Counter[str]


class RealRun:
    """One run.

    Args:
        source: chooses the group whose master dies.
        suspend: freeze the process (SIGSTOP) and let it go on, instead of killing and starting it.
        clients: whose clients send and consume, a key of :data:`CLIENTS`.
        quiet_seconds: traffic before the fault, while the slave acts, and after the return.
        wanted: which kinds of messages our own clients send beside plain and delayed ones.
    """

    def __init__(
        self,
        source: random.Random,
        *,
        suspend: bool = False,
        clients: str = "ours",
        quiet_seconds: float = 5.0,
        wanted: Wanted = ALL_KINDS,
    ) -> None:
        self._suspend = suspend
        self._clients = clients
        self._group = source.choice(GROUPS)
        self._quiet = quiet_seconds
        self._steps: list[tuple[str, float]] = []
        self._fault_at = self._ended_at = self._returned_at = math.inf
        nobody = Wanted()
        self._applications = Applications(
            wanted if clients == "ours" else nobody, source.getrandbits(32), _PAUSE_SECONDS, own_timers=True
        )
        self._ring: ProcessRing

    async def play(self) -> ProcessDrillResult:
        """Play it; every process and file is gone afterwards. Raises ``DrillError``."""
        with bare_errors():
            async with open_client(real_world()) as client:
                extra = {**_EXTRA, **CLIENTS[self._clients].broker_keys, **self._applications.broker_keys}
                self._ring = ProcessRing(client, extra=extra)
                try:
                    return await self._play()
                finally:
                    self._ring.close()

    async def _play(self) -> ProcessDrillResult:
        ring = self._ring
        await ring.start_all()
        await ring.until("the ring is complete", ring.complete, 60)
        for topic in (TOPIC, *self._applications.topics):
            await ring.make_topic(topic)
        await trio.sleep(_SETTLE_SECONDS)
        async with CLIENTS[self._clients].open(ring.name_server) as traffic, trio.open_nursery() as nursery:
            await self._applications.start(nursery, lambda name: real_world(), ring.name_server, GROUPS)
            await trio.sleep(max(self._quiet, UNTROUBLED_SECONDS))
            with traffic.troubled():
                await self._fail()
                await trio.sleep(self._quiet)
                await self._return()
            await trio.sleep(self._quiet)
            await traffic.stop_sending()
            async with trio.open_nursery() as drains:
                drains.start_soon(traffic.drain)
                drains.start_soon(self._applications.drain_together, self._met_by)
            nursery.cancel_scope.cancel()
        return self._result(traffic)

    def _met_by(self, group: str | None) -> tuple[Met, ...]:
        fault = Fault("pause" if self._suspend else "kill", self._ring.home(self._group, 0))
        past = Past(fault, self._fault_at, self._ended_at)
        return met_by(group, THREE, [past], flushed=True, returned=lambda name, since: self._returned_at)

    def _result(self, traffic: Traffic) -> ProcessDrillResult:
        applications, hosts = self._applications, THREE.members_of
        repeats = traffic.repeats(self._met_by, hosts) + applications.repeats(self._met_by, hosts)
        allowed, repeated = judge(repeats)
        wrong = [Violation("broken", detail) for detail in applications.problems(self._met_by)]
        verdict = traffic.verdict()
        verdict = attrs.evolve(verdict, violations=(*verdict.violations, *repeated, *wrong))
        kinds = [*traffic.history.kinds(traffic.groups), *applications.kinds(self._met_by)]
        return ProcessDrillResult(self._group, self._steps, self._report(), verdict, traffic.told(), kinds, allowed)

    def _report(self) -> dict[str, Any] | None:
        path = self._ring.store(self._group, 0) / "config" / "preOnline.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def _note(self, name: str) -> None:
        self._steps.append((name, trio.current_time() - self._fault_at))

    async def _fail(self) -> None:
        ring, group = self._ring, self._group

        async def dropped() -> bool:
            return 0 not in await ring.members(group)

        async def served() -> bool:
            ext = {"topic": TOPIC, "queueId": "0"}
            return await ring.ask(ring.address(group, 1), RequestCode.GET_MAX_OFFSET, ext) is not None

        self._fault_at = trio.current_time()
        if self._suspend:
            ring.freeze(ring.home(group, 0))
        else:
            ring.kill(ring.home(group, 0))
        self._note(step_line("T0", what="SIGSTOP" if self._suspend else "SIGKILL"))
        await ring.until("the name server drops the master", dropped, 30)
        self._note(step_line("T1"))
        await ring.until("the slave acts", lambda: ring.active(group, 1), 30)
        self._note(step_line("T2", "T3"))
        await ring.until("the route is served", lambda: ring.routed_to(TOPIC, group, 1), 30)
        self._note(step_line("T4"))
        await ring.until("the slave answers", served, 30)
        self._note(step_line("T5"))

    async def _return(self) -> None:
        ring, group = self._ring, self._group

        async def answers() -> bool:
            return bool(await ring.runtime(group, 0))

        async def given_back() -> bool:
            return not await ring.active(group, 1)

        if self._suspend:
            ring.thaw(ring.home(group, 0))
        else:
            ring.start(ring.home(group, 0))
        self._ended_at = trio.current_time()
        self._note(step_line("R0", what="SIGCONT" if self._suspend else "process started"))
        await ring.until("the master answers", answers, 60)
        self._note(step_line("R1"))
        await ring.until("the master registers", lambda: ring.routed_to(TOPIC, group, 0), 60)
        self._returned_at = trio.current_time()
        self._note(step_line("R2"))
        await ring.until("the slave stops acting", given_back, 30)
        await ring.until("the ring is complete", ring.complete, 60)
        self._note("ring complete")
