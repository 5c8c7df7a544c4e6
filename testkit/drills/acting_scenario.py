"""A ring loses a master under traffic and gets it back: one run in virtual time, from one seed.

Senders and a consumer group work all the time. The run notes when each step of the failover happened, what the
returning master took over, and lets the history checker judge what clients saw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.container.preonline.report import Report
from understudy.container.role_services import RoleServices
from understudy.format.json_dialect import loads
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import PushConsumerOptions
from understudy.mqclient.producer import ProducerOptions, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import open_background
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_answers import CUTS, Commit, may_not_know
from understudy.testkit.drills.acting_applications import Applications, Wanted
from understudy.testkit.drills.acting_faults import DEAF, ENDS_PROCESS, FAULTS, SILENT, STEPS_CLOCK, Accident, Fault
from understudy.testkit.drills.acting_steps import step_line
from understudy.testkit.drills.acting_traffic import (
    READERS,
    SEND_SECONDS,
    SHORT_DELAYS,
    TOPIC,
    Delays,
    SimulatedTraffic,
)
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.acting_windows import due_counts
from understudy.testkit.drills.commit_traffic import CommitTraffic, unsaved
from understudy.testkit.drills.drill_result import ALLOWED_REPEAT, DrillResult, Step
from understudy.testkit.drills.lateness import judge_lateness
from understudy.testkit.drills.met_faults import Home, Met, met_by
from understudy.testkit.drills.ring import THREE, Ring
from understudy.testkit.sim.cluster import NAME_SERVER_PORT, SimCluster
from understudy.testkit.sim.seeds import FAULT

_TIMER_LOG_BYTES = "65536"
_LOOK_SECONDS = 0.01
_LEAD_SECONDS = 3.0
_EARLY_SECONDS = 0.05
_ROUTE_SECONDS = 2.0
NOTHING_MORE = Wanted()


class Run:
    """One run; call :meth:`play`.

    Args:
        source: where everything random comes from.
        seed: for the result.
        fault: one of :data:`~understudy.testkit.drills.acting_faults.FAULTS`; drawn from *source* when ``None``.
        quiet_seconds: traffic before the fault, while it lasts and after the return.
        send_seconds: how long each sender waits between its messages.
        plan: draws faults instead, the first of which meets the watched master; called with *source*, the master's
            host, that of its first slave, and all hosts but the master's. Each lasts as long as it says.
        ring: its shape.
        start_pause_seconds: between the starts of two containers.
        wanted: which kinds of messages there are beside plain and delayed ones.
        commits: draws what groups do that come, commit and go; ``None``: there are none.
        delays: how long what is delayed waits.
        flush: ``flushDiskType``; when ``None``, synchronous where the power fails, so that nothing may be lost.
    """

    def __init__(
        self,
        source: random.Random,
        seed: int,
        fault: str | None = None,
        *,
        quiet_seconds: float = 10.0,
        send_seconds: float = SEND_SECONDS,
        plan: Callable[[random.Random, str, str, Sequence[str]], list[Fault]] | None = None,
        ring: Ring = THREE,
        wanted: Wanted = NOTHING_MORE,
        commits: random.Random | None = None,
        delays: Delays = SHORT_DELAYS,
        flush: str | None = None,
        start_pause_seconds: float = 0.0,
    ) -> None:
        self._source = source
        self._seed = seed
        self._ring = ring
        self._group = source.choice(ring.groups)
        self._home = ring.container_of(self._group, 0)
        others = [name for name in ring.hosts if name != self._home]
        self._planned = plan is not None
        drawn = Fault(fault if fault is not None else source.choice(FAULTS), self._home)
        self._plan = [drawn] if plan is None else plan(source, self._home, ring.container_of(self._group, 1), others)
        # What is not synced may be lost by a promise that was never made.
        power = any(each.kind == "power" for each in self._plan)
        self._flush = flush if flush is not None else "SYNC_FLUSH" if power else "ASYNC_FLUSH"
        self._quiet = quiet_seconds
        self._start_pause_seconds = start_pause_seconds
        self._traffic = SimulatedTraffic(source, send_seconds, timers=wanted.timers, delays=delays)
        self._applications = Applications(wanted, seed, send_seconds)
        self._drawn_commits = commits
        self._commits: CommitTraffic | None = None
        self._masters: dict[str, str] = {}
        self._steps: list[Step] = []
        self._fault_at = 0.0
        self._accidents: list[Accident] = []
        self._cluster: SimCluster
        self._watch: RingWatch
        self._client: RemotingClient

    async def play(self) -> DrillResult:
        """Play it."""
        async with SimCluster(self._source) as self._cluster, open_background() as watching:
            self._watch = RingWatch(self._cluster, self._ring, self._master_lost, self._accidents)
            self._traffic.on_acknowledged = self._watch.acknowledged
            watching.start_soon(self._watch.watch)
            keys = {"flushDiskType": self._flush, "mappedFileSizeTimerLog": _TIMER_LOG_BYTES}
            keys |= self._applications.broker_keys
            await self._ring.start(self._cluster, keys, pause_seconds=self._start_pause_seconds)
            servers = self._cluster.name_servers
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, ordered=True)
            async with (
                open_client(self._cluster.client_world("watcher")) as self._client,
                open_producer(
                    # A client that tries another broker makes repeats of its own.
                    self._cluster.client_world("writer"),
                    servers,
                    "writers",
                    ProducerOptions(attempts=1),
                ) as producer,
                open_push_consumer(
                    self._cluster.client_world("reader"), servers, READERS, {TOPIC: "*"}, self._traffic.listen, options
                ) as reader,
                trio.open_nursery() as nursery,
            ):
                self._watch.held = reader.held
                await self._until("the ring is complete", self._watch.complete, 60)
                for topic in (TOPIC, *self._applications.topics):
                    await self._ring.make_topic(self._cluster, self._client, topic)
                if self._drawn_commits is not None:
                    self._commits = self._commit(self._drawn_commits)
                    await self._commits.prepare()
                await trio.sleep(4)  # slaves look at topics every three seconds
                await self._applications.start(nursery, self._cluster.client_world, servers, self._ring.groups)
                self._traffic.start(nursery, producer)
                if self._commits is not None:
                    self._commits.start(nursery)
                await trio.sleep(self._quiet)
                async with trio.open_nursery() as accidents:
                    for fault in self._plan[1:]:
                        accidents.start_soon(self._meet, fault)
                    if self._planned:
                        await trio.sleep(_LEAD_SECONDS)
                    await self._fail(self._plan[0])
                report = await self._back()
                await trio.sleep(self._quiet)
                self._traffic.stop()
                if self._commits is not None:
                    self._commits.stop()
                await self._until("senders end", self._traffic.stopped, 60)
                await self._traffic.drain(self._met_by)
                await self._applications.drain(self._met_by)
                await self._until("all replicas hold the same", self._watch.converged, 30)
                self._check_commits()
                nursery.cancel_scope.cancel()
        return self._result(report)

    def _result(self, report: Report | None) -> DrillResult:
        by_promise, gone = self._traffic.lost_by_promise(self._met_by), self._traffic.perhaps_gone(self._met_by)
        verdict = self._traffic.history.check([READERS], may_be_lost=by_promise | gone, may_move=True)
        watch = self._watch
        had, ran_out, acted = watch.had, watch.locks.ran_out, watch.acted
        repeats = self._traffic.repeats(self._met_by, self._ring.members_of, had, ran_out, acted)
        repeats += self._applications.repeats(self._met_by, self._ring.members_of)
        allowed_repeats, repeated = judge(repeats)
        lateness = None
        if not self._planned and self._plan[0].kind not in STEPS_CLOCK:  # one fault, and all mean the same by a time
            cut_off = [(each.began_at, each.ended_at) for each in self._accidents if each.fault.kind in SILENT]
            unserved = {name: [gap for gap in gaps if gap[1] > self._fault_at] for name, gaps in watch.unserved.items()}
            lateness = judge_lateness(self._traffic.came_late(), unserved, {self._group: cut_off})
            repeated += lateness.violations
        verdict = attrs.evolve(verdict, violations=(*verdict.violations, *repeated))
        early = self._traffic.early_seconds
        allowed = sum(fault.early_ms for fault in self._plan) / 1000 + _EARLY_SECONDS
        if early > allowed:
            self._watch.problems.append(f"a delayed message was {early:.3f} s early, {allowed:.3f} s allowed")
        counts = self._traffic.counts(verdict)
        if self._commits is not None:
            counts += self._commits.counts()
            self._watch.problems.extend(self._commits.problems)
        counts += self._applications.counts()
        self._watch.problems.extend(self._applications.problems(self._met_by))
        counts.update(FAULT + fault.kind for fault in self._plan)
        counts.update(f"ended in {fault.work}" for fault in self._plan if fault.work)
        dues = self._traffic.dues(self._group)
        counts += due_counts(self._fault_at, self._steps, self._watch, self._group, self._accidents, dues)
        counts.update({ALLOWED_REPEAT + name: count for name, count in allowed_repeats.items()})
        counts["repeated otherwise"] += len(repeated)
        counts["lost, not flushed"] += len(by_promise)
        measures = {
            "delayed message early": early,
            "delayed message late": self._traffic.late_seconds,
            "two members delivered": self._watch.both_seconds,
        }
        if len(self._plan) == 1 and (self._plan[0].kind in ENDS_PROCESS or self._plan[0].kind in SILENT):
            measures |= {f"{step.name} ({self._plan[0].kind})": step.seconds for step in self._steps}
        return DrillResult(
            self._seed,
            self._plan[0].kind if len(self._plan) == 1 else " + ".join(str(fault) for fault in self._plan),
            self._group,
            self._steps,
            report,
            verdict,
            self._watch.problems,
            counts,
            measures,
            [*self._traffic.kinds(by_promise | gone, allowed), *self._applications.kinds(self._met_by)],
            lateness,
        )

    # --- commits -----------------------------------------------------------------------------------------------

    def _commit(self, source: random.Random) -> CommitTraffic:
        servers = [f"{self._cluster.address(name)}:{NAME_SERVER_PORT}" for name in self._ring.servers]
        masters = {group: self._watch.broker(group, 0) for group in self._ring.groups}
        self._masters = {group: each.identity.address for group, each in masters.items() if each is not None}
        return CommitTraffic(source, self._client, servers, self._masters, self._must_know)

    def _must_know(self, group: str, commit: Commit) -> bool:
        """Whether the master of *group* has missed nothing but what it can have noticed: its own absence."""
        home = self._ring.container_of(group, 0)
        own = [each for each in self._accidents if each.fault.host == home and each.began_at < math.inf]
        gone = all(each.fault.kind in (*DEAF, *CUTS) for each in own)
        others = [name for name in self._ring.hosts if name != home]
        if not gone or not self._watch.calm(others) or self._master_lost(group):
            return False
        cuts = [(each.began_at, each.ended_at) for each in own if each.fault.kind in CUTS]
        return not may_not_know(commit, self._masters[group], cuts, trio.current_time())

    def _check_commits(self) -> None:
        for group in self._ring.groups if self._commits is not None else ():
            master = self._watch.broker(group, 0)
            if self._commits is not None and master is not None and not self._master_lost(group):
                self._commits.check(group, master, partial(unsaved, self._cluster, self._accidents))

    # --- the fault ---------------------------------------------------------------------------------------------

    async def _meet(self, fault: Fault) -> None:
        """Let another host meet *fault* when it is time, to its end."""
        await trio.sleep(_LEAD_SECONDS + fault.begins_seconds)
        accident = self._accident(fault)
        await accident.near()
        await accident.begin()
        await trio.sleep(fault.lasts_seconds)
        await accident.end()

    async def _fail(self, fault: Fault) -> None:
        """Let the watched master meet *fault* and note the steps of the failover, then end it."""
        accident = self._accident(fault)
        await accident.near()
        self._fault_at = trio.current_time()
        self._note(step_line("T0"))
        await accident.begin()
        ends_at = self._fault_at + fault.lasts_seconds if self._planned else math.inf
        with trio.move_on_at(ends_at):
            if fault.kind in ENDS_PROCESS or fault.kind in SILENT:
                await self._watch_failover()
            await trio.sleep(self._quiet)
        if self._planned:
            await trio.sleep_until(ends_at)
        self._note(step_line("R0"))
        async with trio.open_nursery() as nursery:
            if fault.kind in ENDS_PROCESS:
                nursery.start_soon(self._see_up)
            await accident.end()

    async def _see_up(self) -> None:
        """Note when the master runs again, which it does before its start has ended: nobody may find it yet."""
        await self._until("the master is up", lambda: self._watch.broker(self._group, 0) is not None, 60)
        self._note(step_line("R1"))

    def _accident(self, fault: Fault) -> Accident:
        accident = Accident(self._cluster, fault, self._ring.hosts, self._ring.servers)
        self._accidents.append(accident)
        return accident

    def _met_by(self, group: str | None) -> tuple[Met, ...]:
        flushed = self._flush == "SYNC_FLUSH"
        return met_by(group, self._ring, self._accidents, flushed=flushed, returned=self._watch.returned)

    def _master_lost(self, group: str) -> bool:
        """Return whether the power of the master of *group* failed before its log was on the disk."""
        return any(met.kind == "power" and met.home is Home.MASTER and not met.flushed for met in self._met_by(group))

    async def _watch_failover(self) -> None:
        acting = await self._acting()
        if acting is not None:
            self._note(step_line("T3"))
            await self._until("the route is served", lambda: False, self._route_seconds, self._served)
            self._note(step_line("T5"))

    @property
    def _route_seconds(self) -> float:
        """How long it may take until clients find the slave that acts; at once, unless other faults are in the way."""
        return _ROUTE_SECONDS if len(self._plan) == 1 else 30

    async def _acting(self) -> Broker | None:
        """Note the steps until somebody acts; return who."""

        def shows() -> bool:
            servers = [self._cluster.host(name).name_server for name in self._ring.servers]
            groups = [server.table.groups.get(self._group) for server in servers if server is not None]
            return any(group is not None and 0 not in group.members for group in groups)

        await self._until("the name server sees it", shows, 40)
        self._note(step_line("T1"))

        def decided() -> bool:
            return any(self._watch.delivers(self._group, number) for number in range(1, self._ring.replicas))

        await self._until("a slave decides", decided, 40)
        self._note(step_line("T2"))
        await self._until("its services run", lambda: self._actor() is not None, 20)
        return self._actor()

    def _actor(self) -> Broker | None:
        for number in range(1, self._ring.replicas):
            slave = self._watch.broker(self._group, number)
            if slave is not None and "schedule" in slave.services.running():
                return slave
        return None

    async def _served(self) -> bool:
        """Ask as a client does: the route, then the place it names."""
        server = f"{self._cluster.address('n1')}:{NAME_SERVER_PORT}"
        try:
            answer = await self._client.invoke(
                server, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}), 1_000
            )
            if answer.code != ResponseCode.SUCCESS:
                return False
            groups = {each["brokerName"]: each["brokerAddrs"] for each in loads(answer.body)["brokerDatas"]}
            addresses = {int(number): address for number, address in groups.get(self._group, {}).items()}
            actor = self._actor()
            if actor is None or addresses.get(0) != actor.identity.address:
                return False
            if not any(step.name.startswith("T4") for step in self._steps):
                self._note(step_line("T4"))
            ext = {"topic": TOPIC, "queueId": "0"}
            answer = await self._client.invoke(addresses[0], request(RequestCode.GET_MAX_OFFSET, ext), 1_000)
            return answer.code == ResponseCode.SUCCESS
        except RemotingError:
            return False

    # --- the return --------------------------------------------------------------------------------------------

    async def _back(self) -> Report | None:
        def registered() -> bool:
            master = self._watch.broker(self._group, 0)
            return master is not None and not master.registration.isolated

        await self._until("the master is online", registered, 90)
        self._note(step_line("R2"))
        await self._until("the ring is complete", self._watch.complete, 90)
        self._note("ring complete")
        await self._until("its slaves have stopped acting", lambda: self._actor() is None, 10)
        master = self._watch.broker(self._group, 0)
        rules = None if master is None else master.session.rules
        return rules.report if isinstance(rules, RoleServices) else None

    # --- waiting -----------------------------------------------------------------------------------------------

    async def _until(
        self,
        what: str,
        condition: Callable[[], bool],
        seconds: float,
        question: Callable[[], object] | None = None,
    ) -> None:
        with trio.move_on_after(seconds):
            while not condition():
                if question is not None and await question():  # type: ignore[misc]  # an async question
                    return
                await trio.sleep(_LOOK_SECONDS)
            return
        self._watch.problems.append(f"not within {seconds:g} s: {what}")

    def _note(self, name: str) -> None:
        self._steps.append(Step(name, trio.current_time() - self._fault_at))
