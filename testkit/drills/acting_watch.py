"""Looks at the brokers of a simulated ring from outside: who delivers, whether the ring is complete, who holds what."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import trio

from understudy.broker.broker import Broker
from understudy.container.preonline.handshake import Phase
from understudy.container.preonline.report import Report
from understudy.container.preonline.service import REMIND_SECONDS
from understudy.container.role_services import RoleServices
from understudy.mqclient.assigned import AssignedQueue
from understudy.mqclient.queue import MessageQueue
from understudy.store.message_store import MessageStore
from understudy.testkit.drills.acting_faults import Accident
from understudy.testkit.drills.acting_traffic import READERS, TOPIC
from understudy.testkit.drills.lock_watch import LockWatch
from understudy.testkit.drills.ring import REPLICATED, Ring
from understudy.testkit.sim.cluster import SimCluster

LOOK_SECONDS = 0.1
BOTH_SECONDS = 12.0
"""How long a view may be old: the timeout of a group (10 s), and what it takes to notice."""
CALM_SECONDS = 25.0
"""How long after an accident of a host nothing is left of it: half a connection lives for 20 s."""
CLOSED_SECONDS = 1.0
"""How long a closed connection may take to end the brokers behind it."""
TOLD_SECONDS = 0.5
"""How long a slave may take to stop after it was told that its master comes back."""
UNASKED_SECONDS = 0.5
"""How long a slave may act for a master that only registers again, as after a connection that has ended."""
_UNHEARD = ("cut", "cut-in", "cut-out")
IN_SYNC_REPLICAS = int(REPLICATED["inSyncReplicas"])


class RingWatch:
    """Judges the brokers of one ring.

    Args:
        cluster: where it runs.
        ring: its shape.
        master_lost: whether the power of a group's master failed before its log was on the disk.
        accidents: those that have begun, more and more.

    Attributes:
        problems: promises that brokers have broken, each in a line.
        both_seconds: the longest time that two members of one group delivered side by side.
        began: by group, when each slave began to act (virtual seconds), the end of its log then (bytes), and its host.
        unserved: by group, from when until when none of its members delivered to where it is heard (virtual seconds).
        online: by group, when its master came online (virtual seconds), each time that it had not been.
        held: the queues that the ring's reader holds, live.
        locks: what became of the locks of that one.
    """

    def __init__(
        self,
        cluster: SimCluster,
        ring: Ring,
        master_lost: Callable[[str], bool] = lambda group: False,
        accidents: Sequence[Accident] = (),
    ) -> None:
        self._cluster = cluster
        self._ring = ring
        self._master_lost = master_lost
        self._accidents = accidents
        self.problems: list[str] = []
        self.both_seconds = 0.0
        self.began: dict[str, list[tuple[float, int, str]]] = {group: [] for group in ring.groups}
        self.unserved: dict[str, list[tuple[float, float]]] = {group: [] for group in ring.groups}
        self.online: dict[str, list[float]] = {group: [] for group in ring.groups}
        self._stood_still: dict[str, float] = {}
        self._hidden: dict[str, list[tuple[float, float]]] = {group: [] for group in ring.groups}
        self.held: Mapping[MessageQueue, AssignedQueue] = {}
        self.locks = LockWatch()

    def broker(self, group: str, broker_id: int) -> Broker | None:
        """Return a running broker, ``None`` while its container is down."""
        return self._ring.broker_of(self._cluster, group, broker_id)

    def delivers(self, group: str, broker_id: int) -> bool:
        """Return whether a member looks after what is stored: its process runs, and its role says so."""
        broker = self.broker(group, broker_id)
        return not self._stands_still(group, broker_id) and broker is not None and broker.session.rules.active

    def complete(self) -> bool:
        """Return whether every broker is registered, sees all of its group, and every slave has copied its master."""
        for group in self._ring.groups:
            for broker_id in range(self._ring.replicas):
                broker = self.broker(group, broker_id)
                if broker is None or broker.registration.isolated:
                    return False
                if len(broker.member_group.members or {}) < self._ring.replicas:
                    return False
                if broker.role.is_slave and not broker.slave_sync.synced:
                    return False
        return True

    def converged(self) -> bool:
        """Return whether the slaves of each group hold byte for byte what their master holds, and all offsets agree.

        A slave whose master has lost what it has stays as it is by promise, and says so.
        """
        return all(self._group_converged(group) for group in self._ring.groups)

    def _group_converged(self, group: str) -> bool:
        members = [self.broker(group, broker_id) for broker_id in range(self._ring.replicas)]
        replicas = [broker for broker in members if broker is not None]
        if len(replicas) < len(members):
            return False
        if self._master_lost(group):
            master = replicas[0].store
            replicas = [each for each in replicas if not (_refuses(each) and _parted(master, each.store))]
        if len({tuple(sorted(broker.schedule_progress.offsets.items())) for broker in replicas}) != 1:
            return False
        stores = [broker.store for broker in replicas]
        queues = range(2)
        read = {tuple(broker.offsets.query(READERS, TOPIC, queue) for queue in queues) for broker in replicas}
        wanted = tuple(stores[0].max_queue_offset(TOPIC, queue) for queue in queues)
        if len({store.max_physical_offset for store in stores}) != 1 or read != {wanted}:
            return False
        begin = max(0, *(store.min_physical_offset for store in stores))
        alike = len({_content(store, begin, store.max_physical_offset) for store in stores}) == 1
        if not alike and not (self._could_not_be_asked(group) and all(_but_holes(stores[0], each) for each in stores)):
            problem = f"the logs of {group} differ"
            self.problems.extend(() if problem in self.problems else (problem,))  # asked again and again
        return True

    def _could_not_be_asked(self, group: str) -> bool:
        """Return whether a slave of *group* may have been away when its master came back from a loss of power."""
        home = self._ring.container_of(group, 0)
        slaves = {self._ring.container_of(group, number) for number in range(1, self._ring.replicas)} - {home}
        lost = [each for each in self._accidents if each.fault.host == home and each.fault.kind == "power"]
        return self._master_lost(group) and any(
            other.fault.host in slaves
            and other.began_at <= each.ended_at + CALM_SECONDS
            and each.ended_at <= other.ended_at + CALM_SECONDS
            for each in lost
            for other in self._accidents
        )

    def calm(self, hosts: Sequence[str], but: Accident | None = None) -> bool:
        """Return whether nothing is left of any accident of *hosts*, *but* that one."""
        now = trio.current_time()
        return not any(
            each.fault.host in hosts and each is not but and each.began_at <= now < each.ended_at + CALM_SECONDS
            for each in self._accidents
        )

    def acknowledged(self, group: str, physical_offset: int) -> None:
        """Look where a message of *group* is that a sender was told is stored, and replicated if need be.

        While all is calm no replica is missing, so nothing excuses fewer copies than were asked for.

        Args:
            group: it was sent to.
            physical_offset: its first byte, in the log of the master.
        """
        if not self.calm(self._ring.hosts):
            return
        members = [self.broker(group, broker_id) for broker_id in range(self._ring.replicas)]
        copies = sum(each is not None and each.store.max_physical_offset > physical_offset for each in members)
        if copies < IN_SYNC_REPLICAS:
            self.problems.append(f"a send to {group} was acknowledged with {copies} copies, {IN_SYNC_REPLICAS} are due")

    def _closed_connections(self, told: set[Accident]) -> None:
        """Compare what name servers list with the processes that have ended, which they can know at once."""
        now = trio.current_time()
        for accident in self._accidents:
            host = accident.fault.host
            ended = accident.fault.kind == "kill" and accident.began_at + CLOSED_SECONDS < now < accident.ended_at
            ended = ended and self._cluster.host(host).process is None  # not on its way back
            if not ended or accident in told or host in self._ring.servers or not self.calm((host,), accident):
                continue
            address = self._cluster.address(host)
            for name in self._ring.servers:
                server = self._cluster.host(name).name_server
                if server is None or not self.calm((name,)):
                    continue
                shown = [
                    f"{member.broker_id} of {group}"
                    for group, known in server.table.groups.items()
                    for member in known.members.values()
                    if member.address.startswith(f"{address}:")
                ]
                if shown:
                    told.add(accident)
                    self.problems.append(
                        f"{name} lists {', '.join(shown)} {CLOSED_SECONDS:g} s after {host} was killed"
                    )

    def _came_online(self, group: str) -> None:
        """Look who copies from the master of *group*, which has just gone online after an accident."""
        home = self._ring.container_of(group, 0)
        own = [each for each in self._accidents if each.fault.host == home and each.began_at < math.inf]
        if not own or any(each.ended_at == math.inf or each.fault.kind == "cut-copies" for each in own):
            return
        master = self.broker(group, 0)
        slaves = [self._ring.container_of(group, broker_id) for broker_id in range(1, self._ring.replicas)]
        serving = None if master is None else master.replication.master
        if serving is None or not self.calm((*slaves, *self._ring.servers)):
            return
        copying = sum(each.acknowledged >= 0 for each in serving.status())
        if copying < len(slaves):
            self.problems.append(f"the master of {group} came online when {copying} of {len(slaves)} slaves copied it")

    def _waiting_slaves(self, group: str, told: dict[tuple[str, int], float]) -> None:
        """Look whether a slave that was *told* (since when) of its master's return acts all the same."""
        master, now = self.broker(group, 0), trio.current_time()
        rules = None if master is None else master.session.rules
        state = rules.returning if isinstance(rules, RoleServices) else None
        slaves = [self._ring.container_of(group, number) for number in range(1, self._ring.replicas)]
        waiting = set[int]()
        if self._stands_still(group, 0):
            self._stood_still[group] = now  # who was told before may have forgotten it, and is told again
        reminded = now - self._stood_still.get(group, -math.inf) > REMIND_SECONDS
        if state is not None and reminded and self.calm((*slaves, *self._ring.servers)):
            waiting = {each.broker_id for each in state.finished}
            if state.target is not None and state.phase in (Phase.AWAIT_COPY, Phase.TAKE_OVER):
                waiting.add(state.target.broker_id)
        for number in range(1, self._ring.replicas):
            if number not in waiting:
                told.pop((group, number), None)
            elif now - told.setdefault((group, number), now) > TOLD_SECONDS and self.delivers(group, number):
                told[group, number] = math.inf
                self.problems.append(f"broker {number} of {group} acted while its master was coming back, and it knew")

    def _unasked(self, group: str, acting: bool, alone: dict[str, tuple[float, Report | None]]) -> None:
        """Look whether the master of *group* is listed again and has not asked the slave that was *acting* meanwhile.

        *alone* remembers since when a slave has acted whose master is there, and the newest report of that one.
        """
        master, now = self.broker(group, 0), trio.current_time()
        rules = None if master is None else master.session.rules
        if master is None or not isinstance(rules, RoleServices) or master.presence.isolated:
            alone.pop(group, None)  # it asks before it is found
        elif self._listed(group, master.identity.address):
            since, report = alone.pop(group, (math.inf, None))
            if now - since > UNASKED_SECONDS and rules.report is report:
                self.problems.append(
                    f"the master of {group} only registered again, but a slave had acted since {since:.2f} s"
                )
        elif acting:
            alone.setdefault(group, (now, rules.report))

    def _listed(self, group: str, address: str) -> bool:
        hosts = [self._cluster.host(name) for name in self._ring.servers]
        tables = [host.name_server.table.groups for host in hosts if host.process is not None and host.name_server]
        return any(
            member.address == address and member.broker_id == 0
            for groups in tables
            if group in groups
            for member in groups[group].members.values()
        )

    def _stands_still(self, group: str, broker_id: int) -> bool:
        return self._cluster.host(self._ring.container_of(group, broker_id)).clock.stopped

    def _heard(self, group: str, broker_id: int) -> bool:
        """Return whether the host of a member is not cut off, as far as it knows itself or not."""
        host, now = self._ring.container_of(group, broker_id), trio.current_time()
        own = [each for each in self._accidents if each.fault.host == host and each.fault.kind in _UNHEARD]
        return not any(each.began_at <= now < each.ended_at for each in own)

    def had(self, group: str, end: int, begin: float, until: float) -> bool:
        """Return whether each slave of *group* that began to act between two times had the log up to *end* by then.

        Args:
            group: of brokers.
            end: byte of the log.
            begin: first moment that counts (seconds of the run).
            until: last one; a little later counts, too, as the watch looks now and then.
        """
        logs = [known for at, known, _ in self.began[group] if begin <= at <= until + LOOK_SECONDS]
        return bool(logs) and min(logs) >= end

    def acted(self, group: str) -> tuple[tuple[float, str], ...]:
        """Return when slaves of *group* began to act (seconds of the run), and their hosts."""
        return tuple((at, host) for at, _, host in self.began[group])

    def returned(self, group: str, seconds: float) -> float:
        """Return when the master of *group* was online again that was not at *seconds* (of the run); else *seconds*."""
        return max(
            (end for begin, end in self._hidden[group] if begin <= seconds + LOOK_SECONDS <= end), default=seconds
        )

    async def watch(self) -> None:
        """Compare every two members of each group, the master among them, and look who acts, until cancelled."""
        pairs = [
            (group, one, other)
            for group in self._ring.groups
            for one, other in combinations(range(self._ring.replicas), 2)
        ]
        since: dict[tuple[str, int, int], float] = {}
        wrong: set[tuple[str, int]] = set()
        told: set[tuple[str, int, int]] = set()
        told_closed: set[Accident] = set()
        told_slaves: dict[tuple[str, int], float] = {}
        before: set[tuple[str, int]] = set()
        hidden: dict[str, float] = {}
        nobody: dict[str, float] = {}
        alone: dict[str, tuple[float, Report | None]] = {}
        while True:
            now = trio.current_time()
            self._closed_connections(told_closed)
            for group in self._ring.groups:
                self._waiting_slaves(group, told_slaves)
                master = self.broker(group, 0)
                if master is None or master.presence.isolated:
                    hidden.setdefault(group, now)
                elif group in hidden:
                    self._hidden[group].append((hidden.pop(group), now))
                    self.online[group].append(now)
                    self._came_online(group)
            members = range(self._ring.replicas)
            delivering = {
                (group, each) for group in self._ring.groups for each in members if self.delivers(group, each)
            }
            self.locks.look(self.held, {group for group, broker_id in delivering if broker_id})
            for group, broker_id in sorted(delivering - before):
                slave = self.broker(group, broker_id)
                if slave is not None and slave.role.is_slave:
                    host = self._ring.container_of(group, broker_id)
                    self.began[group].append((now, slave.store.max_physical_offset, host))
            for group in self._ring.groups:
                self._unasked(group, any((group, each) in delivering for each in members if each), alone)
                if not any((group, each) in delivering and self._heard(group, each) for each in members):
                    nobody.setdefault(group, now - LOOK_SECONDS)
                elif group in nobody:
                    self.unserved[group].append((nobody.pop(group), now))
            before = delivering
            for member in sorted(delivering - wrong):
                broker = self.broker(*member)
                why = "" if broker is None else _unfit_to_act(broker)
                if why:
                    wrong.add(member)
                    self.problems.append(f"broker {member[1]} of {member[0]} acted {why}")
            for pair in pairs:
                group, one, other = pair
                if (group, one) not in delivering or (group, other) not in delivering:
                    since.pop(pair, None)
                    continue
                lasts = now - since.setdefault(pair, now)
                self.both_seconds = max(self.both_seconds, lasts)
                if lasts > BOTH_SECONDS and pair not in told:
                    told.add(pair)
                    self.problems.append(
                        f"brokers {one} and {other} of {group} both delivered for more than {BOTH_SECONDS:g} s"
                    )
            await trio.sleep(LOOK_SECONDS)


def _unfit_to_act(broker: Broker) -> str:
    """Return why a slave must not act, as far as it knows itself; ``""`` when it may, and for a master."""
    heard_ms, now = broker.presence.state.contact_ms, broker.world.clock.monotonic()
    if not broker.role.is_slave:
        return ""
    if not broker.slave_sync.synced:
        return "before it had copied the tables of its group"
    if heard_ms is None or now - heard_ms / 1000 > BOTH_SECONDS:
        return f"and had heard no name server for more than {BOTH_SECONDS:g} s"
    return ""


def _refuses(broker: Broker) -> bool:
    slave = broker.replication.slave
    return slave is not None and bool(slave.progress().refusal)


def _parted(master: MessageStore, slave: MessageStore) -> bool:
    """Return whether *slave* holds something that *master* has lost."""
    end = min(master.max_physical_offset, slave.max_physical_offset)
    begin = max(0, master.min_physical_offset, slave.min_physical_offset)
    return slave.max_physical_offset > end or _content(master, begin, end) != _content(slave, begin, end)


def _but_holes(master: MessageStore, slave: MessageStore) -> bool:
    """Return whether the logs are alike outside of holes that *master* has noted: it did not get those bytes back."""
    begin, end, hole = max(0, master.min_physical_offset), master.max_physical_offset, master.hole
    if hole is None or _content(master, begin, hole) != _content(slave, begin, hole):
        return False
    found, repair = None, master.repair(hole)
    while found is None and (part := slave.slice(hole, end - hole)):
        found = repair.differs_at(hole, part)
        hole += len(part)
    return found is None


def _content(store: MessageStore, begin: int, end: int) -> bytes:
    """Return a digest of the log of *store* from *begin* to *end*."""
    digest = hashlib.sha256()
    while part := store.slice(begin, end - begin):
        digest.update(part)
        begin += len(part)
    return digest.digest()
