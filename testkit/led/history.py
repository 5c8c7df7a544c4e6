"""Random histories of a group of led brokers: production brokers, stores, replication and controllers under faults.

One seed is one history: producers send to whoever says to be master, and repeat nothing; hosts are killed, lose power,
are frozen, cut off from each other or from the controllers. These are violations:

* an acknowledged message that is not in the log at the end, where all of the sync-state set must have it
* a message that could be read at a queue offset at which another one is read later, here or elsewhere, likewise
* an acknowledged message that fewer members of the set have than were asked for, where some must have it
* two brokers that acknowledge in one epoch, or one that acknowledges although another one is master
* a learner in the set of another master
* an epoch that goes back
* a group that has no master, or brokers whose logs differ, half a minute after the last fault
"""

from __future__ import annotations

import errno
import random
from collections import Counter

import attrs
import trio

from understudy.testkit.led.group import ASK_MS, BROKERS, CONTROLLERS, TOPIC, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

FAULTS = (
    "kill_master",
    "kill_broker",
    "power",
    "restart",
    "isolate_master",
    "lose_two_masters",
    "power_of_the_last",
    "cut_master_from_controllers",
    "cut_broker_from_controllers",
    "cut_replication",
    "freeze_master",
    "freeze_broker",
    "kill_controller",
    "isolate_controller",
)
LATER_FAULTS = (*FAULTS, "lose_elected", "lose_elected", "fail_disk", "kill_all")
"""Those of seeds from :data:`LONG_CUTS_FROM` on."""
CUTS = frozenset(each for each in FAULTS if "cut" in each or "isolate" in each)
AT_MASTER = ("power_of_the_last", "lose_elected", "fail_disk")
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
FAILED_DISK_SECONDS = 12.0
"""Longer than a master with a failed disk is kept when others can lead: it tries again, then they are missed."""
NEXT_SECONDS = 4.0
"""By then a master that was lost has a successor, or nobody may become it."""
LONG_CUTS_FROM = 1000
"""Histories of seeds from here on have cuts that outlast whatever waits for a while, some have slow disks, and who was
elected may be lost at once; those before stay as they were when mutations were assigned to their seeds."""
LONG_CUT_SECONDS = (10.0, 18.0)
SLOW_SYNC_SECONDS = 0.05
"""What each sync takes in every fourth of those histories; it has what was written before it began."""
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
        self._seen: dict[str, tuple[int, bytes]] = {}
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
        running = {each: self.group.brokers[each] for each in members if each in self.group.brokers}
        dead = len(members) - len(running)  # they may have it
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
        last, body = self._seen.get(name, (0, b""))
        found = self.group.read(name, last)
        if whole or (last and found.get(last) != body):
            found = self.group.read(name)
        for offset, body in found.items():
            first = self.read.setdefault(offset, body)
            if first != body and self._all_must_ack:
                self.violation(f"{name} gives {body!r} at offset {offset}, where {first!r} was read before")
            self.read[offset] = body
        self._seen[name] = max(found.items(), default=(0, b""))


async def inject(group: LedGroup, fault: str, source: random.Random, *, long_cuts: bool = False) -> str | None:
    """Let one fault happen, last for a while, and end.

    Returns:
        What the group should have done meanwhile, and has not.

    Args:
        group: whose hosts and network suffer.
        fault: one of :data:`LATER_FAULTS`.
        source: of what is left to chance.
        long_cuts: some of those who are cut off stay so for :data:`LONG_CUT_SECONDS`.
    """
    master, controllers = group.master(), list(CONTROLLERS)
    at_master = "master" in fault or fault in AT_MASTER
    name = master if master is not None and at_master else source.choice(BROKERS)
    others = [each for each in BROKERS if each != name]
    pause = source.uniform(0.1, 5.0)
    if long_cuts and fault in CUTS and source.random() < 0.3:
        pause = source.uniform(*LONG_CUT_SECONDS)
    if fault == "lose_two_masters":
        await lose_two_masters(group, name, source)
    elif fault == "power_of_the_last":
        await power_of_the_last(group, name, source)
    elif fault == "lose_elected":
        await lose_elected(group, name, source)
    elif fault == "kill_all":
        await kill_all(group, source)
    elif fault == "fail_disk":
        return await fail_disk(group, name, source)
    elif fault in ("kill_master", "kill_broker", "power", "restart"):
        await group.kill(name, power=fault == "power")
        await trio.sleep(pause if fault != "restart" else 0.05)
        await group.start_broker(name)
    elif fault in ("freeze_master", "freeze_broker"):
        group.cluster.freeze(name)
        await trio.sleep(pause)
        group.cluster.unfreeze(name, suspended=source.random() < 0.3)
    elif fault in ("kill_controller", "isolate_controller"):
        leading = [each for each, one in group.controllers.items() if one.member.leads()]
        victim = leading[0] if leading and source.random() < 0.7 else source.choice(controllers)
        if fault == "kill_controller":
            await group.kill(victim)
            await trio.sleep(pause)
            await group.start_controller(victim)
        else:
            rest = [each for each in (*controllers, *BROKERS) if each != victim]
            group.cluster.partition([victim], rest)
            await trio.sleep(pause)
            group.cluster.heal()
    else:
        away = {
            "isolate_master": [*others, *controllers],
            "cut_master_from_controllers": controllers,
            "cut_broker_from_controllers": controllers,
            "cut_replication": others,
        }[fault]
        group.cluster.partition([name], away)
        await trio.sleep(pause)
        group.cluster.heal()
    return None


async def lose_two_masters(group: LedGroup, first: str, source: random.Random) -> None:
    """Cut *first*, the master, off until its successor is killed as well; it comes back before that one does.

    So whoever leads in the end tells one whose log parted from the group's two epochs ago how far they have the same.
    """
    others = [each for each in BROKERS if each != first]
    group.cluster.partition([first], [*others, *CONTROLLERS])
    second = await _next_master(group, first)
    if second is not None:
        await trio.sleep(source.uniform(0.1, 1.0))  # it takes messages meanwhile
        await group.kill(second)
        await _next_master(group, second)
    group.cluster.heal()
    if second is not None:
        await trio.sleep(source.uniform(0.1, 1.0))
        await group.start_broker(second)


async def power_of_the_last(group: LedGroup, last: str, source: random.Random) -> None:
    """Kill all but *last*, let it take messages alone, and take its power away: what it acknowledged is nowhere else.

    Or one of the others copies it again before, and cannot be elected: the controllers do not hear of it.
    """
    others = [each for each in BROKERS if each != last]
    for each in others:
        await group.kill(each)
    with trio.move_on_after(NEXT_SECONDS):
        await until(lambda: group.members() == [last], 2 * NEXT_SECONDS)
    await trio.sleep(source.uniform(0.1, 1.0))
    copying = others.pop() if source.random() < 0.5 else None
    if copying is not None:
        group.cluster.partition([copying], CONTROLLERS)
        await group.start_broker(copying)
        await trio.sleep(source.uniform(0.1, 2.0))
    await group.kill(last, power=True)
    await group.start_broker(last)
    await trio.sleep(source.uniform(0.1, 3.0))
    group.cluster.heal()
    for each in others:
        await group.start_broker(each)


async def lose_elected(group: LedGroup, first: str, source: random.Random) -> None:
    """Kill *first*, the master, and lose its successor when it is elected, or takes the role, or a moment later.

    Its power goes, or none but clients hears it: what it acknowledges then must not be where nobody else looks for it.
    """
    known, cut = group.facts(), source.random() < 0.5
    before = known.master_epoch if known is not None else 0
    await group.kill(first, power=cut and source.random() < 0.5)  # what all have in their memories is lost with all
    in_role = source.random() < 0.7
    with trio.move_on_after(NEXT_SECONDS):
        await until(lambda: _elected(group, before, in_role=in_role), 2 * NEXT_SECONDS, 0.001)
    name = _elected(group, before, in_role=in_role)
    if name is not None:
        await trio.sleep(source.choice((0.0, source.uniform(0.0, 0.02), source.uniform(0.0, 0.3))))
        if cut:
            group.cluster.partition([name], [*CONTROLLERS, *(each for each in BROKERS if each != name)])
        else:
            await group.kill(name, power=True)
        await trio.sleep(source.uniform(0.1, 4.0))
        group.cluster.heal()
    back = [first] if cut or name is None else [first, name]
    if _durable(group) and source.random() < 0.5:
        back.reverse()  # else only the first may have what was acknowledged: the other may be elected before it comes
    for each in back:
        await group.start_broker(each)
        await trio.sleep(source.uniform(0.0, 1.0))


async def kill_all(group: LedGroup, source: random.Random) -> None:
    """Kill all brokers at once, and have them come back in any order; power goes, too, where no memory counts."""
    for name in source.sample(BROKERS, len(BROKERS)):
        await group.kill(name, power=_durable(group) and source.random() < 0.8)
    for name in source.sample(BROKERS, len(BROKERS)):
        await trio.sleep(source.uniform(0.0, 2.0))
        await group.start_broker(name)


def _durable(group: LedGroup) -> bool:
    """Whether what is acknowledged is on the disks of all who may be elected."""
    return group.keys.get("flushDiskType") == "SYNC_FLUSH"


async def fail_disk(group: LedGroup, name: str, source: random.Random) -> str | None:
    """Let no sync of *name* succeed, and give it another disk later: what it cannot keep must not count.

    Returns:
        That it stayed master although others of its set could lead; ``None``: it did not, or was none.
    """
    disk, said = group.cluster.host(name).disk, None
    leads = group.master() == name and len(set(group.members()) & group.brokers.keys()) > 1
    disk.sync_error = OSError(errno.EIO, "every sync fails")
    if leads:
        try:
            await until(lambda: group.master() not in (None, name), FAILED_DISK_SECONDS)
        except trio.TooSlowError:
            said = f"{name} stays master for {FAILED_DISK_SECONDS} s with a failed disk, of {group.members()}"
    await trio.sleep(source.uniform(0.1, 3.0))
    await group.kill(name, power=source.random() < 0.5)
    disk.sync_error = None
    await group.start_broker(name)
    return said


def _elected(group: LedGroup, before: int, *, in_role: bool) -> str | None:
    """The host of a running broker that was elected after epoch *before*, and has its role if that is asked."""
    facts = group.facts()
    if facts is None or facts.master_id is None or facts.master_epoch <= before:
        return None
    name = group.host_of(facts.master_id)
    broker = group.brokers.get(name)
    return name if broker is not None and not (in_role and broker.role.epoch < facts.master_epoch) else None


async def _next_master(group: LedGroup, former: str) -> str | None:
    """Wait for another master than *former*; return its host, or ``None`` when nobody came to lead."""
    with trio.move_on_after(NEXT_SECONDS):
        await until(lambda: group.master() not in (None, former), 2 * NEXT_SECONDS)
    return None if (name := group.master()) == former else name


async def led_history(source: random.Random, seed: int, seconds: float) -> LedResult:
    """Play one history and judge it."""
    result = LedResult(seed)
    own_keys = LEARNER if seed % 2 else {}
    async with led_group(source, dict(KEYS[seed % len(KEYS)]), own_keys) as group, trio.open_nursery() as nursery:
        if seed >= LONG_CUTS_FROM and seed % 4 == 0:
            for each in BROKERS:
                disk = group.cluster.host(each).disk
                disk.sync_seconds, disk.effect_first = SLOW_SYNC_SECONDS, True
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
            fault = source.choice(LATER_FAULTS if seed >= LONG_CUTS_FROM else FAULTS)
            result.counts[f"fault {fault}"] += 1
            missed = await inject(group, fault, source, long_cuts=seed >= LONG_CUTS_FROM)
            if missed is not None:
                judge.violation(missed)
        await _check_the_end(group, judge)
        nursery.cancel_scope.cancel()
    return result


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
