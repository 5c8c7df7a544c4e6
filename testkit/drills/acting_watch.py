"""Looks at the brokers of a simulated ring from outside: who delivers, whether the ring is complete, who holds what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import combinations

import trio

from understudy.broker.broker import Broker
from understudy.store.message_store import MessageStore
from understudy.testkit.drills.acting_traffic import READERS, TOPIC
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.cluster import SimCluster

LOOK_SECONDS = 0.1
BOTH_SECONDS = 12.0
"""How long a view may be old: the timeout of a group (10 s), and what it takes to notice."""


class RingWatch:
    """Judges the brokers of one ring.

    Args:
        cluster: where it runs.
        ring: its shape.
        master_lost: whether the power of a group's master failed before its log was on the disk.

    Attributes:
        problems: promises that brokers have broken, each in a line.
        both_seconds: the longest time that two members of one group delivered side by side.
    """

    def __init__(
        self, cluster: SimCluster, ring: Ring, master_lost: Callable[[str], bool] = lambda group: False
    ) -> None:
        self._cluster = cluster
        self._ring = ring
        self._master_lost = master_lost
        self.problems: list[str] = []
        self.both_seconds = 0.0

    def broker(self, group: str, broker_id: int) -> Broker | None:
        """Return a running broker, ``None`` while its container is down."""
        return self._ring.broker_of(self._cluster, group, broker_id)

    def delivers(self, group: str, broker_id: int) -> bool:
        """Return whether a member looks after what is stored: its process runs, and its role says so."""
        broker = self.broker(group, broker_id)
        host = self._cluster.host(self._ring.container_of(group, broker_id))
        return not host.clock.stopped and broker is not None and broker.session.rules.active

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
        stores = [broker.store for broker in replicas]
        queues = range(2)
        read = {tuple(broker.offsets.query(READERS, TOPIC, queue) for queue in queues) for broker in replicas}
        wanted = tuple(stores[0].max_queue_offset(TOPIC, queue) for queue in queues)
        if len({store.max_physical_offset for store in stores}) != 1 or read != {wanted}:
            return False
        begin = max(0, *(store.min_physical_offset for store in stores))
        if len({_content(store, begin, store.max_physical_offset) for store in stores}) != 1:
            self.problems.append(f"the logs of {group} differ")
        return True

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
        while True:
            now = trio.current_time()
            members = range(self._ring.replicas)
            delivering = {
                (group, each) for group in self._ring.groups for each in members if self.delivers(group, each)
            }
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


def _content(store: MessageStore, begin: int, end: int) -> bytes:
    """Return a digest of the log of *store* from *begin* to *end*."""
    digest = hashlib.sha256()
    while part := store.slice(begin, end - begin):
        digest.update(part)
        begin += len(part)
    return digest.digest()
