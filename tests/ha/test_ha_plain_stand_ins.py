"""A slave that copied something in place of messages that its master had lost, and a master that has them again."""

from __future__ import annotations

import random

import pytest
import trio
from ha_rig import Log, master_of, slave_of
from test_ha_plain_healing import MASTER, with_hole
from trio.testing import MockClock

from understudy.ha.healing import LookResult, Step, next_step
from understudy.testkit.sim.network import SimNetwork


def with_stand_in(data: bytes) -> Log:
    """Return a copy of *data* in which 400 bytes from 3000 on stand in for others."""
    log = with_hole(data, 3000, 400)
    log.hole, log.stand_in = None, 3000
    return log


def test_what_was_copied_is_probed_before_everything_behind_it_is_compared() -> None:
    steps = [
        next_step(100, 500, MASTER, result, copied=True)
        for result in (
            None,
            LookResult(MASTER, 100, 500, "it has the same", is_probe=True),
            LookResult(MASTER, 100, 500, is_probe=True),
            LookResult(MASTER, 100, 500),
        )
    ]
    assert steps == [Step.PROBE, Step.CONTINUE, Step.LOOK, Step.HEAL]


async def test_what_a_master_got_back_comes_to_a_slave_that_copied_something_in_its_place(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "understudy.ha.slave")
    data = random.Random(1).randbytes(9000)
    theirs = with_stand_in(data)
    ours = Log(bytes(theirs.data))
    async with master_of(network, ours), slave_of(network, theirs) as slave:
        # given a master that still has what the slave has
        await trio.sleep(100)
        ours.append(b"after")
        await trio.sleep(1)
        assert (ours.data, 1) == (theirs.data, caplog.text.count("connection to the master ended"))
        assert not slave.messages_missing
        # when it gets the bytes, the slave asks by itself
        ours.data[:9000] = data
        await trio.sleep(700)
        assert (None, ours.data) == (theirs.stand_in, theirs.data)


async def test_what_does_not_fit_our_log_is_compared_once(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = with_stand_in(data)
    before, compared = bytes(theirs.data), 0
    differs_at = theirs.differs_at

    def counted(physical_offset: int, data: bytes | memoryview) -> int | None:
        nonlocal compared
        compared += physical_offset == 3000
        return differs_at(physical_offset, data)

    theirs.differs_at = counted  # type: ignore[method-assign]
    async with master_of(network, Log(data[:4000] + b"?" + data[4001:])), slave_of(network, theirs):
        await trio.sleep(2000)
        assert (3000, before, 1) == (theirs.stand_in, theirs.data, compared)
        assert caplog.text.count("messages are missing in the log") == 1
