"""The same failover with real processes, real sockets and SIGKILL, on this machine.

Three container processes and a name server; the times are those of this machine under whatever else it does.
"""

from __future__ import annotations

import json
import random
from typing import Any

import attrs
import trio

from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.drills.process_traffic import TOPIC, UNTROUBLED_SECONDS
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.drills.ring_processes import ProcessRing
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.history import Verdict

_SETTLE_SECONDS = 4.0


@attrs.define
class ProcessDrillResult:
    """What a run showed; steps are names with seconds after the fault, notes what clients of one kind saw beside."""

    group: str
    steps: list[tuple[str, float]]
    report: dict[str, Any] | None
    verdict: Verdict
    notes: list[str]


class RealRun:
    """One run.

    Args:
        source: chooses the group whose master dies.
        suspend: freeze the process (SIGSTOP) and let it go on, instead of killing and starting it.
        clients: whose clients send and consume, a key of :data:`CLIENTS`.
        quiet_seconds: traffic before the fault, while the slave acts, and after the return.
    """

    def __init__(
        self, source: random.Random, *, suspend: bool = False, clients: str = "ours", quiet_seconds: float = 5.0
    ) -> None:
        self._suspend = suspend
        self._clients = clients
        self._group = source.choice(GROUPS)
        self._quiet = quiet_seconds
        self._steps: list[tuple[str, float]] = []
        self._fault_at = 0.0
        self._ring: ProcessRing

    async def play(self) -> ProcessDrillResult:
        """Play it; every process and file is gone afterwards. Raises ``DrillError``."""
        with bare_errors():
            async with open_client(real_world()) as client:
                self._ring = ProcessRing(client)
                try:
                    return await self._play()
                finally:
                    self._ring.close()

    async def _play(self) -> ProcessDrillResult:
        ring = self._ring
        await ring.start_all()
        await ring.until("the ring is complete", ring.complete, 60)
        await ring.make_topic(TOPIC)
        await trio.sleep(_SETTLE_SECONDS)
        async with CLIENTS[self._clients].open(ring.name_server) as traffic:
            await trio.sleep(max(self._quiet, UNTROUBLED_SECONDS))
            with traffic.troubled():
                await self._fail()
                await trio.sleep(self._quiet)
                await self._return()
            await trio.sleep(self._quiet)
            await traffic.stop_sending()
            await traffic.drain()
        return ProcessDrillResult(self._group, self._steps, self._report(), traffic.verdict(), traffic.told())

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
        self._note("T0 SIGSTOP" if self._suspend else "T0 SIGKILL")
        await ring.until("the name server drops the master", dropped, 30)
        self._note("T1 seen by the name server")
        await ring.until("the slave acts", lambda: ring.active(group, 1), 30)
        self._note("T2, T3 decided by the slave, services on")
        await ring.until("the route is served", lambda: ring.routed_to(TOPIC, group, 1), 30)
        self._note("T4 route served")
        await ring.until("the slave answers", served, 30)
        self._note("T5 first good request")

    async def _return(self) -> None:
        ring, group = self._ring, self._group

        async def given_back() -> bool:
            return not await ring.active(group, 1)

        if self._suspend:
            ring.thaw(ring.home(group, 0))
        else:
            ring.start(ring.home(group, 0))
        self._note("R0 SIGCONT" if self._suspend else "R0 process started")
        await ring.until("the master registers", lambda: ring.routed_to(TOPIC, group, 0), 60)
        self._note("R1 master registered")
        await ring.until("the slave stops acting", given_back, 30)
        self._note("R2 the slave has stopped acting")
        await ring.until("the ring is complete", ring.complete, 60)
