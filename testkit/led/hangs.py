"""Disks of led brokers that hang without an error, or fail where only their master knows, in a random history.

What comes of them is liveness: who cannot serve gives way to who can. Nothing that only a memory has is lost, as the
brokers that are killed here keep their page caches.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import trio

from understudy.broker.switch_replication import SwitchReplication
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.led.group import BROKERS, LedGroup
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.waiting import until

HANGS = ("hang_disk", "hang_disk", "hang_elected", "hang_alone", "fail_disk_alone")
PATIENCE_SECONDS = 12.0
"""Longer than a master is kept that others can replace: its disk is waited for, then it is missed, twice maybe."""
COMES_SECONDS = 4.0
"""What is wanted of the group before the fault itself is there by then, or the fault is a smaller one."""
ELECT_MS = 3000


async def inject_hang(group: LedGroup, fault: str, source: random.Random) -> str | None:
    """Let one of :data:`HANGS` happen, last for a while, and end; return what the group should have done meanwhile."""
    name = group.master()
    others = source.sample([each for each in BROKERS if each != name], 2)
    if name is None or (fault == "hang_disk" and source.random() < 0.4):
        return await hang_disk(group, source.choice(BROKERS), source)
    if fault == "hang_elected" and len(_living_members(group)) == len(BROKERS):
        return await hang_elected(group, name, others, source)
    if fault == "hang_alone":
        return await hang_alone(group, name, others, source)
    if fault == "fail_disk_alone":
        return await fail_disk_alone(group, name, others, source)
    return await hang_disk(group, name, source)


async def hang_disk(group: LedGroup, name: str, source: random.Random) -> str | None:
    """Let the disk of *name* hang for a while; a master whose sends wait for it must not stay."""
    said = None
    answers = _hang(group, name)
    if group.keys.get("flushDiskType") == "SYNC_FLUSH" and group.master() == name and len(_living_members(group)) > 1:
        said = await _replaced(group, name, "whose disk hangs")
    await trio.sleep(source.uniform(0.5, 8.0))
    answers.set()
    if source.random() < 0.3:
        await group.kill(name)
        await group.start_broker(name)
    return said


async def hang_elected(group: LedGroup, first: str, others: list[str], source: random.Random) -> str | None:
    """Have one elected while the disk of another one hangs, and that one in its place; the master is back then.

    Args:
        group: whose.
        first: the host of the master.
        others: the host whose disk hangs, and the one that is elected first.
        source: of what is left to chance.

    Returns:
        What the group should have done meanwhile, and has not.
    """
    hanging, elected = others
    leading = next((each for each, one in group.controllers.items() if one.member.leads()), None)
    part = group.brokers[elected].replication
    answers = _hang(group, hanging)
    if leading is not None and isinstance(part, SwitchReplication):
        fields = {"clusterName": "DefaultCluster", "brokerName": "g", "designateElect": "true"}
        elect = request(RequestCode.CONTROLLER_ELECT_MASTER, {**fields, "brokerId": str(part.own_id)})
        with suppress(RemotingError):  # another one leads by now
            await group.client.invoke(f"{group.cluster.address(leading)}:{API_PORT}", elect, ELECT_MS)
        with trio.move_on_after(COMES_SECONDS):
            await until(lambda: _changes(group, hanging), 2 * COMES_SECONDS, 0.0003)
    await group.kill(elected)
    await group.kill(first)
    with trio.move_on_after(COMES_SECONDS):
        await until(lambda: _named(group) == hanging, 2 * COMES_SECONDS)
    await group.start_broker(first)
    said = None
    facts = group.facts()
    if facts is not None and _named(group) == hanging and first in map(group.host_of, facts.in_step):
        said = await _replaced(group, hanging, "who was elected while its disk hangs")
    await trio.sleep(source.uniform(0.0, 3.0))
    answers.set()
    await group.start_broker(elected)
    return said


async def hang_alone(group: LedGroup, name: str, others: list[str], source: random.Random) -> str | None:
    """Kill all but *name*, the master, whose disk hangs, and start one before it gives way: both take messages again.

    The master would ask to be alone once its disk answers, and must not keep the one who is back out of the set.

    Args:
        group: whose.
        name: the host of the master.
        others: the host that is back soon, and the other one.
        source: of what is left to chance.

    Returns:
        What the group should have done meanwhile, and has not.
    """
    answers = _hang(group, name)
    await trio.sleep(source.uniform(0.05, 0.5))  # something is written that is not on the disk
    for each in others:
        await group.kill(each)
    await trio.sleep(source.uniform(0.1, 1.2))
    await group.start_broker(others[0])
    said = None
    if "asyncLearner" not in group.keys_of(others[0]) and "flushDiskType" not in group.keys:
        said = f"nobody takes messages for {PATIENCE_SECONDS} s: {name}, whose disk hangs, and {others[0]} live"
        with trio.move_on_after(PATIENCE_SECONDS):
            while await group.send(group.master() or name, b"while it hangs") != 0:  # noqa: ASYNC110 - a send, each time
                await trio.sleep(0.1)
            said = None
        if group.master() == others[0] and "minInSyncReplicas" in group.keys:
            said = None  # who has given way follows nobody before its disk answers: its log is cut there first
    answers.set()
    await group.start_broker(others[1])
    return said


async def fail_disk_alone(group: LedGroup, name: str, others: list[str], source: random.Random) -> str | None:
    """Fail the disk of *name*, the master, as it comes to be alone, and have it hear no other one from then on.

    Args:
        group: whose.
        name: the host of the master.
        others: the hosts of the others.
        source: of what is left to chance.

    Returns:
        What the group should have done meanwhile, and has not.
    """
    disk = group.cluster.host(name).disk
    disk.sync_error = OSError(errno.EIO, "every sync fails")
    for each in others:
        await group.kill(each)
    group.cluster.partition([name], others)
    await trio.sleep(source.uniform(0.05, 1.0))
    for each in others:
        await group.start_broker(each)
    said = None
    if group.brokers[name].store.disk_failed and len(_living_members(group)) > 1:
        said = await _replaced(group, name, "whose disk has failed")
    group.cluster.heal()
    await group.kill(name)
    disk.sync_error = None
    await group.start_broker(name)
    return said


def _hang(group: LedGroup, name: str) -> trio.Event:
    answers = group.cluster.host(name).disk.answers = trio.Event()
    return answers


async def _replaced(group: LedGroup, name: str, why: str) -> str | None:
    """Wait until another one than *name* is master; return that none came to be."""
    try:
        await until(lambda: group.master() not in (None, name), PATIENCE_SECONDS)
    except trio.TooSlowError:
        return f"{name}, {why}, is not replaced within {PATIENCE_SECONDS} s, of {group.members()}"
    return None


def _living_members(group: LedGroup) -> set[str]:
    return set(group.members()) & group.brokers.keys()


def _named(group: LedGroup) -> str | None:
    """The host of the broker that the controllers have as master, whether it is it or not."""
    facts = group.facts()
    return None if facts is None or facts.master_id is None else group.host_of(facts.master_id)


def _changes(group: LedGroup, name: str) -> bool:
    led = group.brokers[name].led
    return led is not None and led.state is not None and led.state.changing is not None
