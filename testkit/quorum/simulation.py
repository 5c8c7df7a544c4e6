"""The production quorum on a virtual clock, a faulty network and faulty disks, with what can be checked at any time.

The checkers look for:

* two leaders in one term, an election while a lease is valid
* a member that votes for two others in one term, whatever happened to it in between
* a member that holds less than it confirmed to its leader
* a member that may vote with a new disk before it holds what was committed when the old one was lost
* a leader that is replaced although a majority could follow it, where nothing else happened

:mod:`~understudy.testkit.quorum.history` plays random histories on it and checks what clients saw; the faults are in
:mod:`~understudy.testkit.quorum.faults`.
"""

from __future__ import annotations

import os.path
import random
from collections import Counter, deque

import attrs
import msgspec
import trio

from understudy.controller.raft.core import Timing
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.facts import Event
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.messages import PeerMessage, Vote, VoteRequest
from understudy.controller.raft.secret import Secret
from understudy.controller.raft.sessions import Machine
from understudy.controller.raft.settings import QuorumSettings
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import Trace
from understudy.testkit.sim.disk import PowerCut, SimDisk
from understudy.testkit.sim.network import SimNetwork

RAFT_PORT = 7000
FOLDER = "/controller"
SECRET_FILE = "/etc/secret"
SECRET = Secret(b"what every member of a simulated quorum knows")


def give_secret(disk: SimDisk) -> None:
    """Put the secret of the members on *disk*, as an operator does."""
    if not disk.exists(SECRET_FILE):
        disk.make_folder(os.path.dirname(SECRET_FILE))
        disk.open(SECRET_FILE).write_at(0, b"what every member of a simulated quorum knows\n")
        disk.sync_everything("/")


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
class QuorumResult:
    """What one seed showed."""

    seed: int
    violations: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    digest: str = ""
    newest: list[str] = attrs.field(factory=list)


class RecordingMember(QuorumMember):
    """The production member, with what it heard kept for replay, and votes looked at as they arrive."""

    heard: deque[tuple[str, PeerMessage]]
    quorum: SimQuorum

    def deliver(self, peer: str, message: PeerMessage) -> None:
        self.heard.append((peer, message))
        if isinstance(message, Vote):
            self.quorum.check_vote(peer, message.term, self.settings.member)
        elif isinstance(message, VoteRequest):
            self.quorum.check_vote(peer, message.term, peer)  # who stands has voted for itself
        super().deliver(peer, message)


class QuorumHost:
    """One host with one member of the quorum."""

    def __init__(self, quorum: SimQuorum, name: str, index: int) -> None:
        self.quorum = quorum
        self.name = name
        self.source = random.Random(quorum.source.getrandbits(64))
        self.disk = SimDisk(self.source, sync_seconds=0.0001, spread_seconds=0.001)
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
        give_secret(self.disk)
        self.machine = self.quorum.make_machine()
        settings = self.quorum.settings(self.name)
        member = RecordingMember(self.world, settings, self.machine, self.quorum.observe)
        member.heard, member.quorum = self.heard, self.quorum
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
        except PowerCut:
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
            self.disk.lose_power()
            self.quorum.network.power_on(self.name)
        else:
            self.disk.kill_process()

    async def lose_power_in_write(self) -> None:
        """Let the power go during the next write to the disk."""
        self.disk.syncs_left = 0
        with trio.move_on_after(2):
            await self._gone.wait()
        await self.kill(power=True)


class SimQuorum:
    """A quorum under one seed.

    Args:
        source: everything is drawn from it.
        nursery: where hosts run.
        size: number of members.
        result: where violations go.
        make_machine: replicated machine of each process.
        quality: of all links.
    """

    def __init__(
        self,
        source: random.Random,
        nursery: trio.Nursery,
        size: int,
        result: QuorumResult,
        make_machine: type[CounterMachine] = CounterMachine,
        quality: LinkQuality | None = None,
    ) -> None:
        self.source = source
        self.nursery = nursery
        self.result = result
        self.make_machine = make_machine
        self.trace = Trace()
        self.expects_stops = False
        self.timing = Timing()
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.expected_leader = ""
        self.committed_at_loss: dict[str, int] = {}
        #: Clients write nothing while this is set.
        self.quiet = False
        self.network = SimNetwork(random.Random(source.getrandbits(64)), quality)
        self.names = [f"n{index}" for index in range(size)]
        self.hosts = {name: QuorumHost(self, name, index) for index, name in enumerate(self.names)}

    def settings(self, name: str) -> QuorumSettings:
        """Return the settings of one member."""
        addresses = {member: (member, RAFT_PORT) for member in self.names}
        return QuorumSettings(
            "sim", name, addresses, FOLDER, timing=self.timing, compaction_entries=200, secret_file=SECRET_FILE
        )

    def violation(self, text: str) -> None:
        self.result.violations.append(f"at {trio.current_time():.3f} s: {text}")

    def observe(self, event: Event) -> None:
        self.trace.record(event.member, event.kind, event.term, event.detail)
        if event.kind == "voter":
            self.check_voter(event.member)
        if event.role == "LEADER":
            self.result.counts["leaders"] += 1
            first = self.leaders.setdefault(event.term, event.member)
            if first != event.member:
                self.violation(f"two leaders in term {event.term}: {first} and {event.member}")
            if self.expected_leader:
                self.result.counts["leaders without cause"] += 1
                self.violation(
                    f"{event.member} was elected in term {event.term} without cause: a majority could follow "
                    f"{self.expected_leader} all the time"
                )
            for host in self.hosts.values():
                # whoever votes has not heard a leader for longer than any lease lasts
                if host.name != event.member and host.member is not None and host.member.facts().lease:
                    self.violation(f"{event.member} was elected in term {event.term} during the lease of {host.name}")

    async def lose_disk(self, host: QuorumHost) -> None:
        """Replace the disk of *host*, which stays off, and have the others forget the old one."""
        views = [each.member.facts() for each in self.hosts.values() if each.member is not None]
        self.committed_at_loss[host.name] = max(view.commit_index for view in views)
        await host.kill(power=True)
        host.disk.wipe()
        for other in self.hosts.values():
            if other is host:
                continue
            other.heard = deque((item for item in other.heard if item[0] != host.name), maxlen=other.heard.maxlen)
            if isinstance(other.member, RecordingMember):
                other.member.heard = other.heard
        for other in self.hosts.values():
            if other is not host and other.member is not None:
                await other.member.forget(host.name)
        self.result.counts["disks lost"] += 1

    def check_voter(self, name: str) -> None:
        """Look whether *name*, which may vote from now on, holds all it may have confirmed with the disk it lost."""
        member, needed = self.hosts[name].member, self.committed_at_loss.pop(name, 0)
        if member is not None and member.facts().commit_index < needed:
            self.violation(
                f"{name} may vote with a new disk that knows {member.facts().commit_index} entries as committed; "
                f"{needed} were when the old one was lost"
            )

    def check_vote(self, voter: str, term: int, candidate: str) -> None:
        """Look whether *voter* voted for somebody else in *term*."""
        first = self.votes.setdefault((voter, term), candidate)
        if first != candidate:
            self.violation(f"{voter} voted for {first} and for {candidate} in term {term}")

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

    async def wait_followed(self, timeout_seconds: float) -> QuorumHost | None:
        """Wait until every member runs, is linked to every other one and follows one leader; returns that leader."""
        with trio.move_on_after(timeout_seconds):
            while True:
                views = [host.member.facts() for host in self.hosts.values() if host.member is not None]
                linked = all(len(view.connected) == len(self.names) - 1 for view in views)
                leaders = {view.leader for view in views}
                leading = self.leading()
                if len(views) == len(self.names) and linked and len(leading) == 1 and leaders == {leading[0].name}:
                    return leading[0]
                await trio.sleep(0.05)
        return None
