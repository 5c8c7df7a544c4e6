"""Random histories of a group of led brokers: production brokers, stores, replication and controllers under faults.

One seed is one history: producers send to whoever says to be master, and repeat nothing; hosts are killed, lose power,
are frozen, cut off from each other or from the controllers, and their disks fail or hang. These are violations:

* an acknowledged message that is not in the log at the end, where all of the sync-state set must have it
* a message that could be read at a queue offset at which another one is read later, here or elsewhere, likewise
* an acknowledged message that fewer members of the set have than were asked for, where some must have it
* two brokers that acknowledge in one epoch, or one that acknowledges although another one is master
* a learner in the set of another master
* an epoch that goes back
* a master that stays although its disk has failed, or hangs, and others can lead; one that is elected, likewise
* a master whose disk hangs, and who keeps a slave out of its set that acknowledgements wait for
* a group that has no master, or brokers whose logs differ, half a minute after the last fault
"""

from __future__ import annotations

import random
from collections import Counter

import attrs
import trio

from understudy.testkit.led.faults import FAULTS, LAST_FAULTS, LATER_FAULTS, NEWEST_FAULTS, inject
from understudy.testkit.led.group import ASK_MS, BROKERS, TOPIC, LedGroup, led_group
from understudy.testkit.led.hangs import HANGS, inject_hang
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

KEYS = (
    {"allAckInSyncStateSet": "true"},
    {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
    {"allAckInSyncStateSet": "true", "flushDiskType": "SYNC_FLUSH"},
    {"inSyncReplicas": "2", "minInSyncReplicas": "2"},
    {"inSyncReplicas": "1"},
)
LEARNER = {"b3": {"asyncLearner": "true"}}
"""What a broker is given in every other history."""
SETTLE_SECONDS = 40
FENCE_SECONDS = 10.0
"""Longer than a master that lacks messages takes none: it asks its slaves for them first."""
LONG_CUTS_FROM = 1000
"""Histories of seeds from here on have cuts that outlast whatever waits for a while, some have slow disks, and who was
elected may be lost at once; those before stay as they were when mutations were assigned to their seeds."""
_LATEST = (*NEWEST_FAULTS, *HANGS)
_HANGING = (*LATER_FAULTS, *HANGS)
FAULTS_FROM = (
    (5_000_000, (*LAST_FAULTS, *HANGS)),
    (3_000_000, _LATEST),
    (10_000, LATER_FAULTS),
    (2_000, _HANGING),
    (LONG_CUTS_FROM, LATER_FAULTS),
)
"""What befalls histories of the seeds from each of these on, for tests and mutations stay with their seeds: later ones
have all controllers started anew, or cut off from all brokers, and disks that hang; the last ones lose a master that is
ahead of all but one."""
SYNC_SECONDS = (0.05,)
"""What each sync takes in every fourth of those histories; it has what was written before it began."""
UNEQUAL_SYNC_SECONDS = (0.005, 0.05, 0.3)
"""The same of each host, in every second of those in which sends wait for disks."""
IMPATIENT_MS = 500
"""How long one of the senders waits: it sends again to a master that stands still, also when another one is elected."""


@attrs.define
class LedResult:
    """What one seed showed."""

    seed: int
    violations: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)


class Judge:
    """Sends, looks at what can be read, and notes what must not be."""

    def __init__(self, group: LedGroup, result: LedResult) -> None:
        self.group = group
        self.result = result
        self.acknowledged: list[bytes] = []
        self.read: dict[int, bytes] = {}
        self.masters: dict[int, str] = {}
        self.stopping = False
        self._newest: dict[str, tuple[int, bytes]] = {}
        self._epoch = 0
        self._all_must_ack = "allAckInSyncStateSet" in group.keys
        self._copies = int(group.keys.get("inSyncReplicas", "0"))

    def violation(self, text: str) -> None:
        self.result.violations.append(f"at {trio.current_time():.3f} s: {text}")

    async def send(self, number: int, source: random.Random) -> None:
        count = 0
        while not self.stopping:
            masters = [name for name, broker in self.group.brokers.items() if not broker.role.is_slave]
            if not masters:
                await trio.sleep(0.05)
                continue
            name, count = source.choice(masters), count + 1
            broker, body = self.group.brokers[name], b"%d-%d" % (number, count)
            epoch, newest, members = broker.role.epoch, self._newest_master(), set(self.group.members())
            code, offset = await self.group.put(name, body, IMPATIENT_MS if number else ASK_MS)
            if code == 0:
                self.result.counts["acknowledged"] += 1
                self.acknowledged.append(body)
                if newest > broker.role.epoch:
                    self.violation(f"{name} acknowledges in epoch {broker.role.epoch}, but epoch {newest} has a master")
                self._count_copies(name, offset, members | set(self.group.members()))
                if broker.role.epoch == epoch and not broker.role.is_slave:
                    first = self.masters.setdefault(epoch, name)
                    if first != name:
                        self.violation(f"{first} and {name} both acknowledge in epoch {epoch}")
            else:
                self.result.counts[f"answered {code}"] += 1
            await trio.sleep(source.uniform(0.005, 0.05))

    def _newest_master(self) -> int:
        return max((each.role.epoch for each in self.group.brokers.values() if not each.role.is_slave), default=0)

    def _count_copies(self, name: str, offset: int, members: set[str]) -> None:
        if self._all_must_ack or not members:
            return
        counted = members | {name}  # who was deposed while it answered has it, too
        running = {each: self.group.brokers[each] for each in counted if each in self.group.brokers}
        dead = len(counted) - len(running)  # they may have it
        holders = [each for each, broker in running.items() if broker.store.max_queue_offset(TOPIC, 0) > offset]
        if len(holders) + dead < min(self._copies, len(members)):
            self.violation(f"{name} acknowledges offset {offset}, of {sorted(members)} only {holders} have it")

    async def watch(self) -> None:
        while not self.stopping:
            self.look()
            await trio.sleep(0.05)

    def look(self, *, whole: bool = False) -> None:
        """Read what can be read now: what is new, unless the last message that was seen of a log is another one.

        Args:
            whole: everything.
        """
        for name in list(self.group.brokers):
            process = self.group.cluster.host(name).process
            if process is not None and process.failure is not None:
                self.violation(f"{name} has ended: {process.failure!r}")
                del self.group.brokers[name]
                continue
            if not self.group.brokers[name].role.epoch:
                continue  # nobody is told of it before it has a role
            self._read(name, whole=whole)
        facts = self.group.facts()
        if facts is not None:
            learners = {each for each in self.group.own_keys if each != self.group.master()}
            if facts.master_id is not None and self.group.master() and learners & set(self.group.members()):
                self.violation(f"{learners} learns only, but is in the set {self.group.members()}")
            if facts.master_epoch < self._epoch:
                self.violation(f"the epoch went back from {self._epoch} to {facts.master_epoch}")
            self._epoch = max(self._epoch, facts.master_epoch)

    def _read(self, name: str, *, whole: bool) -> None:
        last, body = self._newest.get(name, (0, b""))
        found = self.group.read(name, last)
        if whole or (last and found.get(last) != body):
            found = self.group.read(name)
        for offset, body in found.items():
            first = self.read.setdefault(offset, body)
            if first != body and self._all_must_ack:
                self.violation(f"{name} gives {body!r} at offset {offset}, where {first!r} was read before")
            self.read[offset] = body
        self._newest[name] = max(found.items(), default=(0, b""))


async def led_history(source: random.Random, seed: int, seconds: float) -> LedResult:
    """Play one history and judge it."""
    result = LedResult(seed)
    own_keys = LEARNER if seed % 2 else {}
    async with led_group(source, dict(KEYS[seed % len(KEYS)]), own_keys) as group, trio.open_nursery() as nursery:
        durable = "flushDiskType" in group.keys
        if seed >= LONG_CUTS_FROM and seed % (2 if durable else 4) == 0:
            for each in BROKERS:
                disk = group.cluster.host(each).disk
                disk.sync_seconds = source.choice(UNEQUAL_SYNC_SECONDS if durable else SYNC_SECONDS)
                disk.effect_first = True
        judge = Judge(group, result)
        try:
            await group.create_topic(await group.ready(3))
        except trio.TooSlowError:
            judge.violation("no master 30 s after the start")
            return result
        for number in range(2):
            nursery.start_soon(judge.send, number, random.Random(source.getrandbits(64)))
        nursery.start_soon(judge.watch)
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(source.uniform(0.2, 2.0))
            fault = source.choice(_faults_of(seed))
            result.counts[f"fault {fault}"] += 1
            if fault in HANGS:
                missed = await inject_hang(group, fault, source)
            else:
                missed = await inject(group, fault, source, long_cuts=seed >= LONG_CUTS_FROM)
            if missed is not None:
                judge.violation(missed)
        await _check_the_end(group, judge)
        nursery.cancel_scope.cancel()
    return result


def _faults_of(seed: int) -> tuple[str, ...]:
    return next((faults for first, faults in FAULTS_FROM if seed >= first), FAULTS)


async def _check_the_end(group: LedGroup, judge: Judge) -> None:
    judge.stopping = True
    group.cluster.heal()
    try:
        name = await group.ready(len(BROKERS), SETTLE_SECONDS)
        # The first may meet a connection to a process that is gone; a master that lacks messages asks for them first.
        with trio.move_on_after(FENCE_SECONDS):
            while await group.send(name, b"end") not in (0, 10, 12):  # noqa: ASYNC110 - it is a send, each time
                await trio.sleep(0.5)
        await until(lambda: _are_equal(group) and b"end" in group.bodies(name), SETTLE_SECONDS)
    except trio.TooSlowError:
        roles = {
            each: f"{broker.role} {broker.store.max_physical_offset} {broker.led and broker.led.state}"
            for each, broker in group.brokers.items()
        }
        facts = group.facts()
        known = None if facts is None else (facts.master_id, facts.master_epoch, facts.sync_state_set)
        judge.violation(f"not one log in all brokers {SETTLE_SECONDS} s after the last fault: {roles}; {known}")
        return
    judge.look(whole=True)
    judge.result.counts["epochs"] += len(judge.masters)
    if "allAckInSyncStateSet" not in group.keys:
        return
    held = set(group.bodies(name))
    lost = [body for body in judge.acknowledged if body not in held]
    if lost:
        judge.violation(f"{len(lost)} of {len(judge.acknowledged)} acknowledged messages are lost: {lost[:5]}")


def _are_equal(group: LedGroup) -> bool:
    ends = {group.brokers[name].store.max_physical_offset for name in BROKERS}
    return len(ends) == 1 and len({bytes(_log(group, name)) for name in BROKERS}) == 1


def _log(group: LedGroup, name: str) -> bytearray:
    store, log = group.brokers[name].store, bytearray()
    at = max(store.min_physical_offset, 0)
    while at < store.max_physical_offset:
        piece = store.slice(at, 1 << 20)
        log += piece
        at += len(piece)
    return log


def run_led_seed(seed: int, seconds: float = 20.0) -> LedResult:
    """Run the history of *seed*: equal seeds give equal histories.

    Args:
        seed: of everything.
        seconds: virtual seconds of faults.
    """
    return run_seed(lambda source: led_history(source, seed, seconds), seed)


def play_led(seed: int) -> LedResult:
    """Run a short history of *seed*."""
    return run_led_seed(seed, seconds=10.0)
