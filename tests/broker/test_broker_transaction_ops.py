"""Op messages of transactions: when the decisions that they name are written, and what is lost without them."""

from __future__ import annotations

import pytest
import trio
from transaction_rig import (
    COMMIT,
    HALF,
    OPS,
    ROLLBACK,
    decision,
    killed,
    open_producer,
)
from trio.testing import MockClock

from understudy.testkit.sim.disk import SimDisk


class TestOpMessages:
    async def test_they_name_the_decisions_of_an_interval(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            for number in range(3):
                producer.rig.tell(37, decision(producer.prepare(str(number)), COMMIT), flag=2)
            await trio.sleep(2.9)
            assert producer.rig.stored(OPS) == []
            await trio.sleep(0.2)
            assert [each.body for each in producer.rig.stored(OPS)] == [b"0,1,2,"]

    @pytest.mark.parametrize("most", ["4", "4096"])
    async def test_the_progress_moves_with_them_and_the_next_life_reads_no_more(
        self, most: str, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        # Given one op message of all decisions, or one for each few of them, and no check
        keys = {"transactionOpMsgMaxSize": most, "transactionCheckInterval": "3600000"}
        async with open_producer(disk, keys) as producer:
            offsets = producer.rig.broker.offsets
            for number in range(40):
                producer.rig.tell(37, decision(producer.prepare(str(number)), COMMIT), flag=2)
                await trio.sleep(0.25)
                assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) >= number - 2 * 14
            open_half = producer.prepare("open")
            producer.rig.tell(37, decision(producer.prepare("behind it"), COMMIT), flag=2)
            await trio.sleep(4)
            assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == open_half.queue_offset
            # What an undecided one stands before is not passed, nor its op message
            assert offsets.query("CID_RMQ_SYS_TRANS", OPS, 0) == len(producer.rig.stored(OPS)) - 1
        async with open_producer(disk, keys) as producer:
            (queue,) = producer.rig.broker.transactions._halves.queues.values()
            assert (queue.ledger.done, queue.ledger.undone) == (open_half.queue_offset, 1)
            assert producer.decide(open_half, COMMIT).code == 0
            assert len(producer.delivered()) == 42

    @pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
    async def test_a_clock_that_is_set_makes_them_neither_late_nor_early(
        self, by_ms: int, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            producer.decide(producer.prepare("one"), COMMIT)
            await trio.sleep(1)
            producer.clock.jump(by_ms)
            producer.decide(producer.prepare("two"), COMMIT)
            await trio.sleep(1.9)
            assert producer.rig.stored(OPS) == []
            await trio.sleep(0.2)
            assert [each.body for each in producer.rig.stored(OPS)] == [b"0,1,"]

    async def test_one_that_is_full_is_written_at_once(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk, {"transactionOpMsgMaxSize": "4"}) as producer:
            for number in range(5):
                producer.rig.tell(37, decision(producer.prepare(str(number)), COMMIT), flag=2)
            assert [each.body for each in producer.rig.stored(OPS)] == [b"0,1,", b"2,3,"]

    async def test_a_rollback_whose_answer_is_awaited_is_in_the_log_before_it(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            assert producer.decide(producer.prepare("A"), ROLLBACK).code == 0
            assert [each.body for each in producer.rig.stored(OPS)] == [b"0,"]

    async def test_a_stop_writes_what_is_decided(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            producer.rig.tell(37, decision(producer.prepare("A"), ROLLBACK), flag=2)
        async with open_producer(disk) as producer:
            assert [each.body for each in producer.rig.stored(OPS)] == [b"0,"]
            await trio.sleep(100)
            assert producer.checks() == []

    @pytest.mark.parametrize("repeated", [True, False])
    async def test_a_broker_that_died_before_commits_nothing_twice(
        self, repeated: bool, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        # Given a commit that no op message names yet, in the files that a killed process leaves
        async with open_producer(disk) as producer:
            half, other = producer.prepare("A"), producer.prepare("B")
            delayed = producer.prepare("C", DELAY="18")
            producer.rig.tell(37, decision(half, COMMIT), flag=2)
            producer.rig.tell(37, decision(delayed, COMMIT), flag=2)
            producer.rig.broker.store.enter_keys()
            left = killed(disk)
        # When the next process decides and checks
        async with open_producer(left) as producer:
            assert producer.delivered() == ["A"]
            if repeated:
                assert producer.decide(half, COMMIT).code == 0
            await trio.sleep(40)
            # Then only what is undecided is asked about
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["B"]
            assert producer.decide(half, COMMIT).code == 0
            assert producer.delivered() == ["A"]
            assert len(producer.rig.stored("SCHEDULE_TOPIC_XXXX", 17)) == 1
            assert producer.decide(other, COMMIT).code == 0
            assert producer.delivered() == ["A", "B"]
