"""What callers are told about commands and groups when the plain answer would mislead them."""

from __future__ import annotations

import random
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from understudy.controller.commands import ApplyBrokerId, read_command
from understudy.controller.election import Live
from understudy.controller.explanation import explain
from understudy.controller.liveness import BrokerKey, Heartbeat, Liveness
from understudy.controller.metadata import Metadata
from understudy.controller.raft.errors import OutcomeUnknownError, QuorumBusyError
from understudy.controller.raft.member import QuorumMember
from understudy.controller.replication import ReplicatedMetadata
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork


class QuorumWithoutAnswer:
    """Does not confirm the first attempt of a command, and has no room for the second."""

    class settings:
        member = "n0"

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.attempts: list[tuple[str, int]] = []

    async def propose(self, client: str, sequence: int, command: bytes, timeout_seconds: float) -> bytes:
        await trio.lowlevel.checkpoint()
        self.attempts.append((client, sequence))
        if len(self.attempts) == 1:
            raise OutcomeUnknownError("no majority answered in time")
        if len(self.attempts) == 2:
            raise QuorumBusyError("10000 commands wait already")
        assert read_command(command)
        return self.metadata.apply(1, 0, 1, command)


async def test_a_command_that_may_be_under_way_is_never_called_refused(autojump_clock: MockClock) -> None:
    source = random.Random(1)
    world = World(VirtualClock(), SimNetwork(source).host("n0"), SimDisk(source), source)
    quorum = QuorumWithoutAnswer(Metadata())
    replicated = ReplicatedMetadata(world, cast(QuorumMember, quorum))
    with pytest.raises(CommandError, match="may or may not have taken effect") as failed:
        await replicated.run(ApplyBrokerId("C", "a", 1, "h:1;1"))
    assert failed.value.code == ResponseCode.SYSTEM_ERROR
    (first, again) = quorum.attempts
    assert first == again

    # whatever becomes of it, the next command has a session of its own
    await replicated.run(ApplyBrokerId("C", "b", 1, "h:1;1"))
    assert quorum.attempts[2][0] != first[0]


@pytest.mark.parametrize("alive", [True, False])
def test_a_group_that_never_had_a_master_needs_no_unclean_election(alive: bool) -> None:
    metadata, liveness = Metadata(), Liveness(0.0)
    metadata._apply_broker_id(ApplyBrokerId("C", "a", 1, "h:1;1"), 1)
    if alive:
        heartbeat = Heartbeat("h:1", 1.0, 10, "connection", Live(0, 0))
        liveness.heartbeat(BrokerKey("C", "a", 1), heartbeat)
    text = explain(metadata.groups["a"], liveness, 2.0, False)
    assert "#NextStep\tstart a broker of this group; the first one to ask becomes master\n" in text
    assert "enableElectUncleanMaster" not in text
