"""Random histories of a simulated quorum.

One seed is one history: three or five members, clients that repeat unanswered commands with the same session, readers
that prove freshness, and faults: killed processes, power lost in the middle of a write, whole-quorum outages, cut
links, partitions, jumping wall clocks, replayed messages, compactions, handovers, lost disks. Besides what
:mod:`~understudy.testkit.quorum.simulation` looks for, these are violations:

* an acknowledged command lost or applied twice
* a read behind a barrier that misses an acknowledged command
* two valid leases at one time
* members whose states differ at the end, or a quorum that does not recover
"""

from __future__ import annotations

import random

import trio

from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.testkit.quorum.faults import CALM_FAULTS, FAULTS, inject
from understudy.testkit.quorum.handovers import HANDOVER_FAULTS
from understudy.testkit.quorum.simulation import CounterMachine, QuorumResult, SimQuorum
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import run_seed


class Clients:
    """Sessions that count to ever higher numbers, and readers that must see what was acknowledged."""

    def __init__(self, quorum: SimQuorum) -> None:
        self.quorum = quorum
        self.acknowledged: dict[str, int] = {}
        self.stopping = False

    async def write(self, name: str, source: random.Random) -> None:
        sequence, counts = 0, self.quorum.result.counts
        while not self.stopping:
            sequence += 1
            while not self.stopping:
                if self.quorum.quiet:
                    await trio.sleep(0.05)
                    continue
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
                    self.quorum.result.counts["reads refused"] += 1
                else:
                    self.quorum.result.counts["reads"] += 1
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


async def quorum_history(
    source: random.Random, seed: int, size: int, seconds: float, faults: tuple[str, ...] = FAULTS
) -> QuorumResult:
    """Run one history with random faults and check it.

    Args:
        source: of everything that is drawn.
        seed: it began with, for the report.
        size: members of the quorum.
        seconds: of virtual time with faults.
        faults: kinds of faults to be drawn from.
    """
    result = QuorumResult(seed)
    async with trio.open_nursery() as nursery:
        # with calm faults nothing but the fault itself may keep a member from hearing its leader
        loss = 0.0 if set(faults) <= set(CALM_FAULTS) else 0.01
        quality = LinkQuality(delay_seconds=(0.0003, 0.003), loss=loss, retransmit_seconds=(0.02, 0.3))
        quorum = SimQuorum(source, nursery, size, result, quality=quality)
        for host in quorum.hosts.values():
            host.start()
        clients = Clients(quorum)
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
        clients.stopping, quorum.quiet = True, False
        await _check_the_end(quorum, clients)
        result.counts["terms"] = len(quorum.leaders)
        result.counts["bytes"] = quorum.network.sent_bytes
        result.counts["repeated"] = sum(h.member.state.repeated_count for h in quorum.hosts.values() if h.member)
        quorum.trace.record(sorted(result.counts.items()))
        result.digest, result.newest = quorum.trace.digest(), quorum.trace.newest()
        nursery.cancel_scope.cancel()
    return result


async def _check_the_end(quorum: SimQuorum, clients: Clients) -> None:
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


def run_quorum_seed(seed: int, size: int = 3, seconds: float = 12.0, faults: tuple[str, ...] = FAULTS) -> QuorumResult:
    """Run the history of *seed*: equal seeds give equal histories.

    Args:
        seed: of everything.
        size: members of the quorum.
        seconds: virtual seconds of faults.
        faults: kinds to draw from.
    """
    return run_seed(lambda source: quorum_history(source, seed, size, seconds, faults), seed)


def play_handovers(seed: int) -> QuorumResult:
    """Run a short history of *seed* with three or five members, in which leaders hand over and do not hear of it."""
    return run_quorum_seed(seed, size=5 if seed % 2 else 3, seconds=6.0, faults=HANDOVER_FAULTS)
