"""What can happen around a leader that hands over and does not hear what comes of it: others lead within its lease.

Everything else that deposes a leader takes an election time, in which it has noticed that it leads no longer.
"""

from __future__ import annotations

import random

import trio

from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.messages import Acknowledgement
from understudy.testkit.quorum.simulation import QuorumHost, SimQuorum

HANDOVER_FAULTS = ("handover_unheard", "handover_and_new_disk", "acknowledged_again")
_COMMIT_MS = 150


async def inject_handover(quorum: SimQuorum, fault: str, source: random.Random) -> None:
    """Let one of :data:`HANDOVER_FAULTS` happen and end."""
    quorum.quiet = True
    try:
        await quorum.wait_settled(3)
        leader = await quorum.wait_followed(5)
        if leader is not None and all(_voter(host) for host in quorum.hosts.values()):
            others = [host for host in quorum.hosts.values() if host is not leader]
            source.shuffle(others)
            if fault == "acknowledged_again":
                await _acknowledge_again(quorum, leader, others)
            else:
                await _hand_over_unheard(quorum, leader, others, source, lose_disk=fault == "handover_and_new_disk")
    finally:
        quorum.quiet = False
        quorum.network.heal()


def _voter(host: QuorumHost) -> bool:
    return host.member is not None and host.member.facts().voter


async def _hand_over_unheard(
    quorum: SimQuorum, leader: QuorumHost, others: list[QuorumHost], source: random.Random, *, lose_disk: bool
) -> None:
    """Have *leader* hand over and hear nothing any more: for the rest of its lease it believes to lead.

    With *lose_disk* a member that followed its successor comes back to it, and to nobody else, with a new disk.
    """
    successor, other = others[:2]
    for host in others:
        quorum.network.cut(host.name, leader.name)
    assert leader.member is not None
    if await leader.member.hand_over(successor.name) is not None:
        return
    quorum.quiet = False
    needed = before = leader.member.facts().commit_index
    for _ in range(_COMMIT_MS):
        if successor.member is not None and successor.member.facts().commit_index > before:
            needed = successor.member.facts().commit_index
            break
        await trio.sleep(0.001)
    if not lose_disk:
        await _read(quorum, leader, needed)
    else:
        quorum.network.heal()
        rest = [host.name for host in others if host is not other]
        quorum.network.partition(rest, [leader.name, other.name])
        await quorum.lose_disk(other)
        other.start()
    quorum.result.counts["leaders deposed unheard"] += 1
    await trio.sleep(source.uniform(0.3, 0.8))


async def _read(quorum: SimQuorum, host: QuorumHost, needed: int) -> None:
    """Read at *host* a few times: no barrier may pass with less than *needed* entries, which are committed."""
    member = host.member
    for _ in range(5):
        if member is None:
            return
        try:
            index = await member.read_barrier(0.02)
        except NotLeaderError:
            quorum.result.counts["reads refused"] += 1
        else:
            if index < needed:
                quorum.violation(f"a read at {host.name} knows {index} entries as committed, {needed} were before it")


async def _acknowledge_again(quorum: SimQuorum, leader: QuorumHost, others: list[QuorumHost]) -> None:
    """Let a follower's acknowledgements reach *leader* once more when it leads again and those entries are overwritten.

    The follower and the leader are a minority when it gives them, and the follower is behind when they come again.
    """
    if len(others) < 4:
        return
    follower, *rest = others
    quorum.network.partition([leader.name, follower.name], [host.name for host in rest])
    await _propose(leader, b"overwritten", 5)
    heard = [message for peer, message in leader.heard if peer == follower.name]
    given = [message for message in heard if isinstance(message, Acknowledgement)]
    await trio.sleep(2 * quorum.timing.election_max_seconds)
    quorum.network.heal()
    second = await quorum.wait_followed(3)
    await quorum.wait_settled(3)
    if second is None or second.member is None or await second.member.hand_over(leader.name) is not None:
        return
    await trio.sleep(0.1)
    if await quorum.wait_settled(3) is not leader or leader.member is None:
        return
    quorum.network.cut(leader.name, follower.name)
    await _propose(leader, b"behind", 10)
    quorum.result.counts["acknowledgements repeated"] += len(given)
    for message in given:
        QuorumMember.deliver(leader.member, follower.name, message)
    for _ in range(20):
        await trio.sleep(0.0003)
        quorum.check_confirmed()


async def _propose(host: QuorumHost, name: bytes, count: int) -> None:
    """Have *count* commands on their way at the same time, and wait a moment for them."""

    async def one(client: str, member: QuorumMember) -> None:
        try:
            await member.propose(client, 1, name, 0.1)
        except (NotLeaderError, OutcomeUnknownError):
            host.quorum.result.counts["unknown"] += 1

    assert host.member is not None
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, f"{name.decode()}-{trio.current_time()}-{number}", host.member)
