"""What can happen to a simulated quorum."""

from __future__ import annotations

import random

import trio

from understudy.controller.raft.errors import NotLeaderError
from understudy.controller.raft.member import QuorumMember
from understudy.testkit.quorum.handovers import HANDOVER_FAULTS, inject_handover
from understudy.testkit.quorum.simulation import QuorumHost, SimQuorum

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


DISK_FAULTS = ("lose_disk_behind", "lose_disk", "power", "isolate_leader")
"""Disks are lost, also at the worst moment: while others are behind, and just before the leader dies."""
STALL_FAULTS = ("slow_disk", "slow_disk_of_leader", "kill", "isolate_leader", "cut_link", "compact")
"""Disks that take longer for a sync than an election takes, while others go on."""
CALM_FAULTS = ("isolate_follower", "cut_from_leader", "deaf_to_leader", "restart_follower")
"""A majority can follow the leader all the time: there is no cause for another one."""


async def inject(quorum: SimQuorum, fault: str, source: random.Random) -> None:
    """Let one fault happen, last for a while, and end."""
    hosts, network = quorum.hosts, quorum.network
    name = source.choice(quorum.names)
    others = [other for other in quorum.names if other != name]
    quorum.result.counts[f"fault {fault}"] += 1
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
    elif fault in ("slow_disk", "slow_disk_of_leader"):
        leading = quorum.leading()
        disk = (leading[0] if fault == "slow_disk_of_leader" and leading else hosts[name]).disk
        usual, disk.sync_seconds = disk.sync_seconds, source.choice([0.1, 0.5, 1.5])
        await trio.sleep(source.uniform(0.4, 4))
        disk.sync_seconds = usual
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
    elif fault in HANDOVER_FAULTS:
        await inject_handover(quorum, fault, source)
    elif fault in CALM_FAULTS:
        await _trouble_a_follower(quorum, fault, source)
    elif fault == "lose_disk_behind":
        await _lose_disk_behind(quorum, source)
    elif fault == "lose_disk":
        await _lose_disk(quorum, hosts[name])
    else:
        for host in quorum.leading():
            if host.member is not None:
                try:
                    await (host.member.hand_over() if fault == "hand_over" else host.member.compact())
                except NotLeaderError:
                    quorum.result.counts["lead lost meanwhile"] += 1


async def _lose_disk(quorum: SimQuorum, host: QuorumHost, *, start: bool = True) -> None:
    """Replace one disk and do what the operator's guide says; one disk at a time, as the guide says too."""
    if not all(each.member is not None and each.member.facts().voter for each in quorum.hosts.values()):
        return
    await quorum.lose_disk(host)
    if start:
        host.start()


async def _lose_disk_behind(quorum: SimQuorum, source: random.Random) -> None:
    """Replace a disk while as many others are behind as may be, and let the leader, who has it all, die at once.

    The member with the new disk and those behind are a majority, and none of them holds what was acknowledged.
    """
    leader = await quorum.wait_followed(5)
    if leader is None or not all(each.member is not None and each.member.facts().voter for each in _hosts(quorum)):
        return
    others = [host for host in _hosts(quorum) if host is not leader]
    lost, *rest = source.sample(others, len(others))
    behind = [host.name for host in rest[: len(quorum.names) // 2]]
    quorum.network.partition(behind, [name for name in quorum.names if name not in behind])
    await trio.sleep(source.uniform(0.2, 0.8))
    if leader.member is not None and leader.member.leads():
        await _lose_disk(quorum, lost, start=False)
        await leader.kill(power=source.random() < 0.5)
        quorum.result.counts["leaders lost with a disk"] += 1
        quorum.network.heal()
        lost.start()
        await trio.sleep(source.uniform(1, 3))
        leader.start()
    quorum.network.heal()


def _hosts(quorum: SimQuorum) -> list[QuorumHost]:
    return list(quorum.hosts.values())


async def _trouble_a_follower(quorum: SimQuorum, fault: str, source: random.Random) -> None:
    """Trouble one follower while all others follow, and let it come back."""
    # without writes its log stays as good as the others', so that only the rules keep it from being voted for
    quorum.quiet = source.random() < 0.7
    await quorum.wait_settled(2)
    leader = await quorum.wait_followed(5)
    if leader is None:
        quorum.violation(f"not all members follow one leader 5 s after trouble with one of them, before {fault}")
        return
    victim = quorum.hosts[source.choice([name for name in quorum.names if name != leader.name])]
    quorum.expected_leader = leader.name
    if fault == "restart_follower":
        await victim.kill(power=source.random() < 0.5)
        await trio.sleep(source.uniform(0.02, 1.5))
        victim.start()
    else:
        if fault == "isolate_follower":
            quorum.network.partition([victim.name], [name for name in quorum.names if name != victim.name])
        elif fault == "cut_from_leader":
            quorum.network.partition([victim.name], [leader.name])
        else:
            quorum.network.cut(leader.name, victim.name)
        await trio.sleep(source.uniform(0.5, 2.5))
        quorum.network.heal()
