"""The production quorum on a virtual clock, a faulty network and faulty disks, with checkers.

One seed is one history: three or five members, clients that repeat unanswered commands with the same session, readers
that prove freshness, and faults: killed processes, power lost in the middle of a write, whole-quorum outages, cut
links, partitions, jumping wall clocks, replayed messages, compactions, handovers, lost disks. The checkers look for:

* an acknowledged command lost or applied twice
* a read behind a barrier that misses an acknowledged command
* two leaders in one term, two valid leases at one time, an election while a lease is valid
* a member that holds less than it confirmed to its leader
* members whose states differ at the end, or a quorum that does not recover
"""

from __future__ import annotations

import random
from collections import Counter, deque

import attrs
import msgspec
import trio

from understudy.controller.raft.core import Timing
from understudy.controller.raft.errors import FatalError, NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.facts import Event
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.messages import PeerMessage
from understudy.controller.raft.sessions import Machine
from understudy.controller.raft.settings import QuorumSettings
from understudy.runtime.clock import VirtualClock
from understudy.runtime.world import World
from understudy.testkit.determinism import Trace, run_seed
from understudy.testkit.sim_network import LinkQuality, SimNetwork
from understudy.testkit.sim_quorum_disk import PowerFailure, QuorumDisk

RAFT_PORT = 7000
FOLDER = "/controller"


class CounterMachine:
    """Counts commands per name; applying one twice shows at once."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}

    def apply(self, index: int, now_ms: int, features: int, payload: bytes) -> bytes:
        name = payload.decode()
        self.counters[name] = self.counters.get(name, 0) + 1
        return str(self.counters[name]).encode()

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.counters)

    def restore(self, data: bytes) -> None:
        self.counters = msgspec.msgpack.decode(data, type=dict[str, int])


@attrs.define
class Outcome:
    """What one seed showed."""

    seed: int
    violations: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    digest: str = ""
    newest: list[str] = attrs.field(factory=list)


class RecordingMember(QuorumMember):
    """The production member, with what it heard kept for replay."""

    heard: deque[tuple[str, PeerMessage]]

    def deliver(self, peer: str, message: PeerMessage) -> None:
        self.heard.append((peer, message))
        super().deliver(peer, message)


class QuorumHost:
    """One host with one member of the quorum."""

    def __init__(self, quorum: SimQuorum, name: str, index: int) -> None:
        self.quorum = quorum
        self.name = name
        self.source = random.Random(quorum.source.getrandbits(64))
        self.disk = QuorumDisk(self.source)
        self.clock = VirtualClock()
        self.world = World(self.clock, quorum.network.host(name), self.disk, self.source)
        self.machine: Machine = quorum.make_machine()
        self.member: QuorumMember | None = None
        self.stopped: str = ""
        self.heard: deque[tuple[str, PeerMessage]] = deque(maxlen=400)
        self._scope = trio.CancelScope()
        self._gone = trio.Event()

    def start(self) -> None:
        """Start the process."""
        self.machine = self.quorum.make_machine()
        settings = self.quorum.settings(self.name)
        member = RecordingMember(self.world, settings, self.machine, self.quorum.observe)
        member.heard = self.heard
        self.member = member
        self.stopped = ""
        self._scope, self._gone = trio.CancelScope(), trio.Event()
        self.quorum.nursery.start_soon(self._run, self.member, self._scope, self._gone)

    async def _run(self, member: QuorumMember, scope: trio.CancelScope, gone: trio.Event) -> None:
        try:
            with scope:
                await member.run()
        except FatalError as error:
            self.stopped = str(error)
            self.quorum.trace.record(self.name, "stopped", error)
            if not self.quorum.expects_stops:
                self.quorum.violation(f"{self.name} stopped: {error}")
        except PowerFailure:
            self.quorum.trace.record(self.name, "power failed in a write")
        finally:
            self.member = None
            gone.set()

    async def kill(self, *, power: bool) -> None:
        """End the process, with *power* the host's power too."""
        if power:
            self.quorum.network.power_off(self.name)
        else:
            self.quorum.network.kill(self.name)
        self._scope.cancel()
        await self._gone.wait()
        if power:
            self.disk.lose_power(self.source)
            self.quorum.network.power_on(self.name)
        else:
            self.disk.process_died()

    async def lose_power_in_write(self) -> None:
        """Let the power go during the next write to the disk."""
        self.disk.power_fails_at_sync = True
        with trio.move_on_after(2):
            await self._gone.wait()
        await self.kill(power=True)

    async def stop_for_good(self) -> None:
        self._scope.cancel()
        await self._gone.wait()


class SimQuorum:
    """A quorum under one seed.

    Args:
        source: everything is drawn from it.
        nursery: where hosts run.
        size: number of members.
        outcome: where violations go.
        make_machine: replicated machine of each process.
        quality: of all links.
    """

    def __init__(
        self,
        source: random.Random,
        nursery: trio.Nursery,
        size: int,
        outcome: Outcome,
        make_machine: type[CounterMachine] = CounterMachine,
        quality: LinkQuality | None = None,
    ) -> None:
        self.source = source
        self.nursery = nursery
        self.outcome = outcome
        self.make_machine = make_machine
        self.trace = Trace()
        self.expects_stops = False
        self.timing = Timing()
        self.leaders: dict[int, str] = {}
        self.network = SimNetwork(random.Random(source.getrandbits(64)), quality)
        self.names = [f"n{index}" for index in range(size)]
        self.hosts = {name: QuorumHost(self, name, index) for index, name in enumerate(self.names)}

    def settings(self, name: str) -> QuorumSettings:
        """Return the settings of one member."""
        addresses = {member: (member, RAFT_PORT) for member in self.names}
        return QuorumSettings(
            "sim", name, addresses, FOLDER, timing=self.timing, compaction_entries=200, inline_sync_seconds=0
        )

    def violation(self, text: str) -> None:
        self.outcome.violations.append(f"at {trio.current_time():.3f} s: {text}")

    def observe(self, event: Event) -> None:
        self.trace.record(event.member, event.kind, event.term, event.detail)
        if event.role == "LEADER":
            self.outcome.counts["leaders"] += 1
            first = self.leaders.setdefault(event.term, event.member)
            if first != event.member:
                self.violation(f"two leaders in term {event.term}: {first} and {event.member}")
            for host in self.hosts.values():
                # whoever votes has not heard a leader for longer than any lease lasts
                if host.name != event.member and host.member is not None and host.member.facts().lease:
                    self.violation(f"{event.member} was elected in term {event.term} during the lease of {host.name}")

    def check_confirmed(self) -> None:
        """Look whether a member holds less than its leader was told."""
        for leader in self.leading():
            if leader.member is None:
                continue
            view = leader.member.facts()
            for peer, confirmed in view.match.items():
                member = self.hosts[peer].member
                if member is None:
                    continue
                held = member.facts()
                if held.role != "DOWN" and held.term == view.term and held.last_index < confirmed:
                    self.violation(f"{peer} holds {held.last_index} entries but confirmed {confirmed} to {leader.name}")

    def leading(self) -> list[QuorumHost]:
        """Return the hosts whose member believes to lead."""
        return [host for host in self.hosts.values() if host.member is not None and host.member.leads()]

    async def wait_leader(self, timeout_seconds: float) -> QuorumHost | None:
        """Wait for exactly one leader that has settled."""
        with trio.move_on_after(timeout_seconds):
            while True:
                leading = self.leading()
                if len(leading) == 1:
                    return leading[0]
                await trio.sleep(0.02)
        return None

    async def wait_settled(self, timeout_seconds: float) -> QuorumHost | None:
        """Wait until all members follow one leader and hold and applied the same; returns that leader, if any."""
        with trio.move_on_after(timeout_seconds):
            while True:
                views = [host.member.facts() for host in self.hosts.values() if host.member is not None]
                positions = {(view.leader, view.term, view.last_index, view.applied_index) for view in views}
                leading = self.leading()
                if len(views) == len(self.names) and len(positions) == 1 and len(leading) == 1:
                    return leading[0]
                await trio.sleep(0.05)
        return await self.wait_leader(0.1)


class _Clients:
    """Sessions that count to ever higher numbers, and readers that must see what was acknowledged."""

    def __init__(self, quorum: SimQuorum) -> None:
        self.quorum = quorum
        self.acknowledged: dict[str, int] = {}
        self.stopping = False

    async def write(self, name: str, source: random.Random) -> None:
        sequence, counts = 0, self.quorum.outcome.counts
        while not self.stopping:
            sequence += 1
            while not self.stopping:
                leading = self.quorum.leading()
                if not leading:
                    await trio.sleep(0.05)
                    continue
                member = source.choice(leading).member
                assert member is not None
                try:
                    result = await member.propose(name, sequence, name.encode(), timeout_seconds=0.5)
                except NotLeaderError:
                    await trio.sleep(0.03)
                except OutcomeUnknownError:
                    counts["unknown"] += 1
                else:
                    if int(result) != sequence:
                        self.quorum.violation(f"command {sequence} of {name} gave {int(result)}: lost or doubled")
                    self.acknowledged[name] = sequence
                    counts["acknowledged"] += 1
                    break
            await trio.sleep(source.uniform(0.005, 0.06))

    async def read(self, source: random.Random) -> None:
        while not self.stopping:
            host = source.choice(list(self.quorum.hosts.values()))
            before, machine, member = dict(self.acknowledged), host.machine, host.member
            if member is not None and isinstance(machine, CounterMachine):
                try:
                    await member.read_barrier(0.5)
                except NotLeaderError:
                    self.quorum.outcome.counts["reads refused"] += 1
                else:
                    self.quorum.outcome.counts["reads"] += 1
                    for name, count in before.items():
                        if machine.counters.get(name, 0) < count:
                            self.quorum.violation(f"stale read on {host.name}: {name} misses command {count}")
            await trio.sleep(source.uniform(0.005, 0.03))

    async def watch_leases(self) -> None:
        while not self.stopping:
            holders = [
                host.name
                for host in self.quorum.hosts.values()
                if host.member is not None and host.member.facts().lease
            ]
            if len(holders) > 1:
                self.quorum.violation(f"two valid leases: {holders}")
            await trio.sleep(0.02)


FAULTS = (
    "kill",
    "power",
    "power_in_write",
    "outage",
    "isolate",
    "isolate_leader",
    "cut_link",
    "cut_one_way",
    "compact",
    "hand_over",
    "clock_jump",
    "replay",
    "lose_disk",
)


async def inject(quorum: SimQuorum, fault: str, source: random.Random) -> None:
    """Let one fault happen, last for a while, and end."""
    hosts, network = quorum.hosts, quorum.network
    name = source.choice(quorum.names)
    others = [other for other in quorum.names if other != name]
    quorum.outcome.counts[f"fault {fault}"] += 1
    quorum.trace.record("fault", fault, name)
    if fault in ("kill", "power", "power_in_write"):
        if fault == "power_in_write":
            await hosts[name].lose_power_in_write()
        else:
            await hosts[name].kill(power=fault == "power")
        await trio.sleep(source.uniform(0.02, 1.5))
        hosts[name].start()
    elif fault == "outage":
        for host in hosts.values():
            await host.kill(power=source.random() < 0.7)
        await trio.sleep(source.uniform(0.02, 0.3))
        for host in hosts.values():
            host.start()
            await trio.sleep(source.uniform(0, 0.2))
    elif fault in ("isolate", "isolate_leader"):
        leading = quorum.leading()
        if fault == "isolate_leader" and leading:
            name = leading[0].name
            others = [other for other in quorum.names if other != name]
        network.partition([name], others)
        await trio.sleep(source.uniform(0.2, 2.5))
        network.heal()
    elif fault == "cut_link":
        network.partition([name], [source.choice(others)])
        await trio.sleep(source.uniform(0.4, 2.5))
        network.heal()
    elif fault == "cut_one_way":
        network.cut(name, source.choice(others))
        await trio.sleep(source.uniform(0.4, 2.5))
        network.heal()
    elif fault == "clock_jump":
        hosts[name].clock.jump(source.choice([-3_600_000, -5000, 5000, 3_600_000]))
    elif fault == "replay":
        member, heard = hosts[name].member, list(hosts[name].heard)
        if member is not None and heard:
            for peer, message in source.choices(heard, k=40):
                QuorumMember.deliver(member, peer, message)
            for _ in range(20):
                await trio.sleep(0.0003)
                quorum.check_confirmed()
    elif fault == "lose_disk":
        await _lose_disk(quorum, hosts[name], [hosts[other] for other in others])
    else:
        for host in quorum.leading():
            if host.member is not None:
                try:
                    await (host.member.hand_over() if fault == "hand_over" else host.member.compact())
                except NotLeaderError:
                    quorum.outcome.counts["lead lost meanwhile"] += 1


async def _lose_disk(quorum: SimQuorum, host: QuorumHost, others: list[QuorumHost]) -> None:
    """Replace one disk and do what the operator's guide says; one disk at a time, as the guide says too."""
    if not all(each.member is not None and each.member.facts().voter for each in quorum.hosts.values()):
        return
    await host.kill(power=True)
    host.disk.wipe()
    for other in others:
        other.heard = deque((item for item in other.heard if item[0] != host.name), maxlen=other.heard.maxlen)
        if isinstance(other.member, RecordingMember):
            other.member.heard = other.heard
    for other in others:
        if other.member is not None:
            await other.member.forget(host.name)
    host.start()
    quorum.outcome.counts["disks lost"] += 1


async def quorum_history(
    source: random.Random, seed: int, size: int, seconds: float, faults: tuple[str, ...] = FAULTS
) -> Outcome:
    """Run one history with random faults and check it."""
    outcome = Outcome(seed)
    async with trio.open_nursery() as nursery:
        quality = LinkQuality(delay_seconds=(0.0003, 0.003), loss=0.01, retransmit_seconds=(0.02, 0.3))
        quorum = SimQuorum(source, nursery, size, outcome, quality=quality)
        for host in quorum.hosts.values():
            host.start()
        clients = _Clients(quorum)
        if await quorum.wait_leader(10) is None:
            quorum.violation("no leader within 10 s of the first start")
        for number in range(3):
            nursery.start_soon(clients.write, f"client-{number}", random.Random(source.getrandbits(64)))
        nursery.start_soon(clients.read, random.Random(source.getrandbits(64)))
        nursery.start_soon(clients.watch_leases)
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(source.uniform(0.2, 1.2))
            await inject(quorum, source.choice(faults), source)
        clients.stopping = True
        await _check_the_end(quorum, clients)
        outcome.counts["terms"] = len(quorum.leaders)
        outcome.counts["bytes"] = quorum.network.sent_bytes
        outcome.counts["repeated"] = sum(h.member.state.repeated_count for h in quorum.hosts.values() if h.member)
        quorum.trace.record(sorted(outcome.counts.items()))
        outcome.digest, outcome.newest = quorum.trace.digest(), quorum.trace.newest()
        nursery.cancel_scope.cancel()
    return outcome


async def _check_the_end(quorum: SimQuorum, clients: _Clients) -> None:
    """After the last fault: one leader, equal states, nothing acknowledged missing."""
    quorum.network.heal()
    quorum.network.default_quality = LinkQuality()
    leader = await quorum.wait_settled(16)
    if leader is None or leader.member is None:
        quorum.violation("no single leader 16 s after the last fault")
        return
    try:
        await leader.member.propose("end", 1, b"end")
    except (NotLeaderError, OutcomeUnknownError) as error:
        quorum.violation(f"no command is accepted after the last fault: {error}")
        return
    await quorum.wait_settled(5)
    states = {host.name: host.machine.snapshot() for host in quorum.hosts.values()}
    if len(set(states.values())) != 1:
        quorum.violation(f"states differ at the end: {states}")
    machine = leader.machine
    assert isinstance(machine, CounterMachine)
    for name, count in clients.acknowledged.items():
        if machine.counters.get(name, 0) < count:
            quorum.violation(f"acknowledged command {count} of {name} is lost")


def run_quorum_seed(seed: int, size: int = 3, seconds: float = 12.0, faults: tuple[str, ...] = FAULTS) -> Outcome:
    """Run the history of *seed*: equal seeds give equal histories.

    Args:
        seed: of everything.
        size: members of the quorum.
        seconds: virtual seconds of faults.
        faults: kinds to draw from.
    """
    return run_seed(lambda source: quorum_history(source, seed, size, seconds, faults), seed)
