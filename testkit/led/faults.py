"""What befalls a group of led brokers in a random history: one fault after another, each of which lasts and ends."""

from __future__ import annotations

import errno
import random
from functools import partial

import trio

from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup
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
LATER_FAULTS = (*FAULTS, *2 * ("lose_elected", "kill_all"), "fail_disk", "lose_answer")
"""Those of later seeds: :data:`~understudy.testkit.led.history.LONG_CUTS_FROM`."""
NEWEST_FAULTS = (*LATER_FAULTS, *2 * ("restart_controllers", "outage"))
"""Those of seeds that are later still: :data:`~understudy.testkit.led.history.FAULTS_FROM`."""
LAST_FAULTS = (*NEWEST_FAULTS, *2 * ("lose_ahead",))
"""Those of the last seeds."""
CUTS = frozenset(each for each in FAULTS if "cut" in each or "isolate" in each)
AT_MASTER = ("power_of_the_last", "lose_elected", "fail_disk", "lose_answer", "lose_ahead")
FAILED_DISK_SECONDS = 12.0
"""Longer than a master with a failed disk is kept when others can lead: it tries again, then they are missed."""
NEXT_SECONDS = 4.0
"""By then a master that was lost has a successor, or nobody may become it."""
LONG_CUT_SECONDS = (10.0, 18.0)


async def inject(group: LedGroup, fault: str, source: random.Random, *, long_cuts: bool = False) -> str | None:
    """Let one fault happen, last for a while, and end.

    Args:
        group: whose hosts and network suffer.
        fault: one of :data:`LAST_FAULTS`.
        source: of what is left to chance.
        long_cuts: some of those who are cut off stay so for :data:`LONG_CUT_SECONDS`.

    Returns:
        What the group should have done meanwhile, and has not.
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
    elif fault == "lose_answer":
        await lose_answer(group, name, source)
    elif fault == "restart_controllers":
        await restart_controllers(group, name if master is None or source.random() < 0.4 else master, source)
    elif fault == "outage":
        await outage(group, source)
    elif fault == "kill_all":
        await kill_all(group, source)
    elif fault == "fail_disk":
        return await fail_disk(group, name, source)
    elif fault == "lose_ahead":
        return await lose_ahead(group, name, source)
    elif fault in ("kill_master", "kill_broker", "power", "restart"):
        await group.kill(name, power=fault == "power" and (not long_cuts or _spares(group, name)))
        await trio.sleep(pause if fault != "restart" else 0.05)
        await group.start_broker(name)
        if long_cuts and fault == "power":
            await _rejoin(group, name)
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
    power = cut and source.random() < 0.5 and _spares(group, first)
    await group.kill(first, power=power)
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
    back = [first] if cut or name is None else [first, name]
    if cut and source.random() < 0.5:
        await group.start_broker(back.pop())  # it lacks what it had not on its disk, and must not be elected for that
        await trio.sleep(source.uniform(0.5, 4.0))
    group.cluster.heal()
    if _durable(group) and source.random() < 0.5:
        back.reverse()  # else only the first may have what was acknowledged: the other may be elected before it comes
    for each in back:
        await group.start_broker(each)
        await trio.sleep(source.uniform(0.0, 1.0))
    await _rejoin(group, first if power or name is None else name)


async def kill_all(group: LedGroup, source: random.Random) -> None:
    """Kill all brokers at once, and have them come back in any order; power goes, too, where no memory counts."""
    for name in source.sample(BROKERS, len(BROKERS)):
        await group.kill(name, power=_durable(group) and source.random() < 0.8)
    for name in source.sample(BROKERS, len(BROKERS)):
        await trio.sleep(source.uniform(0.0, 2.0))
        await group.start_broker(name)


async def restart_controllers(group: LedGroup, name: str, source: random.Random) -> None:
    """Start all controllers anew, which have heard of nobody then, and mostly *name* as well, in any order.

    It may be cut off from them when it has its role again.
    """
    spares = _spares(group, name)  # the set cannot change from here on
    for each in CONTROLLERS:
        await group.kill(each)
    await trio.sleep(source.uniform(0.0, 1.0))
    comes_back = source.random() < 0.8
    if comes_back:
        await group.kill(name, power=spares and source.random() < 0.5)
    for each in source.sample([*CONTROLLERS, name], len(CONTROLLERS) + 1):
        await trio.sleep(source.uniform(0.0, 0.3))
        if each != name:
            await group.start_controller(each)
        elif comes_back:
            await group.start_broker(each)
    if source.random() < 0.5:
        with trio.move_on_after(NEXT_SECONDS):
            await until(lambda: group.master() == name, 2 * NEXT_SECONDS, 0.001)
        group.cluster.partition([name], CONTROLLERS)
        await trio.sleep(source.uniform(0.1, 5.0))
        group.cluster.heal()
    await _rejoin(group, name)


async def outage(group: LedGroup, source: random.Random) -> None:
    """Cut all controllers off from all brokers, mostly until these are missed.

    Whom they have as master then, in its role or not, may lose its power: the others live, and have what it has.
    """
    group.cluster.partition(CONTROLLERS, BROKERS)
    await trio.sleep(source.uniform(0.5, 6.0))
    group.cluster.heal()
    asked = group.master if source.random() < 0.5 else partial(_elected, group, 0, in_role=False)
    with trio.move_on_after(2 * NEXT_SECONDS):
        await until(asked, 3 * NEXT_SECONDS, 0.001)
    name = asked()
    if name is not None and source.random() < 0.6:
        await trio.sleep(source.choice((0.0, source.uniform(0.0, 0.02), source.uniform(0.0, 1.0))))
        await group.kill(name, power=_spares(group, name))
        await trio.sleep(source.uniform(0.0, 3.0))
        await group.start_broker(name)
        await _rejoin(group, name)


async def lose_answer(group: LedGroup, name: str, source: random.Random) -> None:
    """Cut *name*, the master, off from the controllers when they have let another one in, before it hears of that."""
    others = source.sample([each for each in BROKERS if each != name], len(BROKERS) - 1)
    for each in others:
        await group.kill(each)
    with trio.move_on_after(NEXT_SECONDS):
        await until(lambda: group.members() == [name], 2 * NEXT_SECONDS)
    await group.start_broker(others[0])
    with trio.move_on_after(NEXT_SECONDS):
        await until(lambda: len(group.members()) > 1, 2 * NEXT_SECONDS, 0.0003)
    group.cluster.partition([name], CONTROLLERS)
    await trio.sleep(source.uniform(*LONG_CUT_SECONDS))
    group.cluster.heal()
    await group.start_broker(others[1])


async def lose_ahead(group: LedGroup, name: str, source: random.Random) -> str | None:
    """Kill *name*, the master, when it has acknowledged what only one of the others has, which no heartbeat tells yet.

    Returns:
        That it is lost though that one lives; ``None``: it is not, or need not be there.
    """
    others = source.sample([each for each in BROKERS if each != name], len(BROKERS) - 1)
    promised = group.keys.get("inSyncReplicas") != "1" and set(others) <= set(group.members()) & group.brokers.keys()
    group.cluster.partition([name], others[:1])
    await trio.sleep(source.choice((0.0, source.uniform(0.0, 0.3))))
    body = b"ahead-%d" % source.getrandbits(40)
    acknowledged = await group.send(name, body) == 0
    await trio.sleep(source.choice((0.0, 0.0, source.uniform(0.0, 0.3))))
    await group.kill(name)
    group.cluster.heal()
    successor = await _next_master(group, name)
    said = None
    if acknowledged and promised and successor is not None:
        said = f"{successor} was elected without what {name} had acknowledged and {others[1]} has"
        with trio.move_on_after(NEXT_SECONDS):
            await until(lambda: successor not in group.brokers or body in group.bodies(successor), 2 * NEXT_SECONDS)
            said = None
    await group.start_broker(name)
    await _rejoin(group, name)
    return said


async def _rejoin(group: LedGroup, name: str) -> None:
    """Wait until *name*, which may have lost what only its memory had, has it again; nobody else dies meanwhile.

    The last who lives is elected, and where memory counts that would be who has lost it.
    """
    if not _durable(group):
        with trio.move_on_after(2 * NEXT_SECONDS):
            await until(lambda: group.master() and name in {*group.members(), *group.own_keys}, 3 * NEXT_SECONDS)


def _spares(group: LedGroup, name: str) -> bool:
    """Whether another one has all that *name* has in its memory: what all members have only there is lost with all."""
    return group.master() is not None and bool(set(group.members()) & group.brokers.keys() - {name})


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
    await _rejoin(group, name)
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
