"""Who comes into the sync-state set while messages never cease, and what it has by then."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from switch_rig import SwitchValues
from trio.testing import MockClock

from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.frames import SlaveHandshake
from understudy.ha.switch.keeper import EVERYBODY, SwitchConversation, SyncStateKeeper
from understudy.runtime.clock import SystemClock
from understudy.testkit.sim.disk import SimDisk

ALONE, BOTH = frozenset({1}), frozenset({1, 2})


@attrs.define
class GrowingLog:
    """A log to which something is always added; offsets are bytes."""

    max_physical_offset: int = 0
    min_physical_offset: int = 0
    flushed: int = 0

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        return memoryview(b"")


class Master:
    """A master that is alone in its set, unless said otherwise, and a slave that has just connected."""

    def __init__(self, *, all_must_ack: bool, members: frozenset[int] = ALONE) -> None:
        self.log = GrowingLog()
        history = EpochFile(SimDisk(random.Random(1)), "/epochs")
        values = SwitchValues(all_must_ack=all_must_ack)
        self.keeper = SyncStateKeeper(
            SystemClock(), self.log, history, lambda: self.log.flushed, values, 1, 0, members, 4
        )
        self.slave: SwitchConversation = self.keeper.converse()
        self.keeper.greeted(self.slave, SlaveHandshake(2, last_file_only=False, learner=False))

    def reported(self, offset: int) -> frozenset[int]:
        """Let the slave report and return the set that is wanted then."""
        self.keeper.reported(self.slave, 2, offset, self.log.max_physical_offset)
        return self.keeper.state.latest

    def asks(self, members: frozenset[int] = BOTH) -> bool:
        """Whether the controllers may be asked for *members*."""
        return self.keeper.leaves(self.keeper.asking(members, 4)) is not None


@pytest.mark.parametrize("all_must_ack", [False, True])
async def test_who_has_what_was_sent_a_moment_ago_is_counted(autojump_clock: MockClock, all_must_ack: bool) -> None:
    master = Master(all_must_ack=all_must_ack)
    # given a slave that is sent the log as it is, and reports it when there is more
    master.log.max_physical_offset = master.log.flushed = 100
    master.keeper.sent(master.slave, 2, 100)
    master.log.max_physical_offset = master.log.flushed = 200
    assert master.reported(99) == ALONE
    assert master.reported(100) == BOTH


async def test_who_has_what_was_sent_long_ago_is_not(autojump_clock: MockClock) -> None:
    master = Master(all_must_ack=False)
    master.log.max_physical_offset = 100
    master.keeper.sent(master.slave, 2, 100)
    await trio.sleep(1)
    master.log.max_physical_offset = 200
    assert master.reported(100) == ALONE
    assert master.reported(200) == BOTH


async def test_nobody_comes_in_who_lacks_what_was_acknowledged_without_it(autojump_clock: MockClock) -> None:
    master = Master(all_must_ack=True)
    master.log.max_physical_offset = master.log.flushed = 100
    master.keeper.sent(master.slave, 2, 100)
    # given more was acknowledged than the slave has, of which nothing was said but by the disk
    master.log.max_physical_offset = master.log.flushed = 150
    assert master.keeper.copied(EVERYBODY) == 150
    assert master.reported(100) == BOTH
    # then the controllers do not hear of it, and what comes later needs the slave
    assert not master.asks()
    assert master.keeper.state.asked == ()
    master.log.max_physical_offset = master.log.flushed = 300
    assert (master.keeper.copied(EVERYBODY), master.keeper.confirm_offset) == (100, 150)
    # until it has that
    assert master.reported(149) == BOTH
    assert not master.asks()
    assert master.reported(150) == BOTH
    assert master.asks()


async def test_where_a_few_copies_are_enough_who_is_close_comes_in_at_once(autojump_clock: MockClock) -> None:
    master = Master(all_must_ack=False)
    master.log.max_physical_offset = master.log.flushed = 100
    master.keeper.sent(master.slave, 2, 100)
    master.log.max_physical_offset = master.log.flushed = 150
    master.keeper.update()
    assert master.keeper.confirm_offset == 150
    assert master.reported(100) == BOTH
    assert master.asks()


async def test_the_set_in_force_may_be_asked_for_before_its_members_have_connected(autojump_clock: MockClock) -> None:
    in_force = frozenset({1, 3})
    master = Master(all_must_ack=True, members=in_force)
    master.log.max_physical_offset = master.log.flushed = 100
    # whoever leads has to be heard, and nobody comes in by that
    assert master.asks(in_force)


async def test_nobody_comes_in_whose_connection_is_lost_before_the_question_leaves(autojump_clock: MockClock) -> None:
    master = Master(all_must_ack=True)
    master.log.max_physical_offset = master.log.flushed = 100
    question = master.keeper.asking(BOTH, 4)
    master.keeper.ended(master.slave, 2)
    assert master.keeper.leaves(question) is None
