"""What a master waits for before it asks its controllers to have it alone in the sync-state set."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from understudy.broker.switch_question import SetQuestion
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.keeper import SyncStateKeeper
from understudy.runtime.clock import SystemClock
from understudy.testkit.sim.disk import SimDisk

ALONE, BOTH = frozenset({1}), frozenset({1, 2})


class Values:
    """Settings of controller mode."""

    all_must_ack = True
    patience_s = trust_s = asked_s = 10.0
    last_file_only = learner = sync_flush = False
    copies = 2


class HungLog:
    """A log on a disk that does not answer yet."""

    max_physical_offset, min_physical_offset, flushed, disk_failed = 100, 0, 0, False

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        return memoryview(b"")

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        self.max_physical_offset += len(data)

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        with trio.move_on_after(timeout_ms / 1000):
            while self.flushed < offset:  # noqa: ASYNC110 - it stands for a disk
                await trio.sleep(0.01)
        return self.flushed >= offset


class Asking:
    """A master that wants to be alone, and whose disk hangs."""

    def __init__(self) -> None:
        self.log = HungLog()
        history = EpochFile(SimDisk(random.Random(1)), "/epochs")
        self.keeper = SyncStateKeeper(
            SystemClock(), self.log, history, lambda: self.log.flushed, Values(), 1, 0, BOTH, 4
        )
        self.keeper.wanted.append(lambda members: None)
        self.keeper.state = self.keeper.state.wanting(ALONE)
        self.question = SetQuestion(self.keeper, ALONE, 4, self.log, lambda: None)
        self.durable: bool | None = None

    async def ask(self) -> None:
        self.durable = await self.question.durable_alone()


async def test_it_is_asked_once_the_disk_has_what_was_written_before(autojump_clock: MockClock) -> None:
    asking = Asking()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.ask)
        await trio.sleep(30)
        assert asking.durable is None
        asking.log.append_raw(100, b"later")
        asking.log.flushed = 100
    assert asking.durable and asking.question.leaves()


@pytest.mark.parametrize("end", ["another set", "another role", "a failed disk"])
async def test_it_keeps_no_other_one_waiting_when_it_is_not_to_be_asked_any_more(
    end: str, autojump_clock: MockClock
) -> None:
    asking = Asking()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.ask)
        await trio.sleep(5)
        if end == "another set":
            asking.keeper.state = asking.keeper.state.wanting(BOTH).wanting(ALONE)
        elif end == "another role":
            asking.keeper.retire()
        else:
            asking.log.disk_failed = True
        with trio.fail_after(1.5):
            while asking.durable is None:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.1)
    assert asking.durable is False
    assert not asking.question.leaves()
    assert asking.keeper.state.asked == ()
