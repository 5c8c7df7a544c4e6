"""What becomes of half messages that nobody decides: their producers are asked, and at last they are given up."""

from __future__ import annotations

import json

import pytest
import trio
from broker_rig import code_and_remark, properties, send_header
from transaction_rig import (
    COMMIT,
    FOLDER,
    GIVEN_UP,
    GROUP,
    HALF,
    OPS,
    ROLLBACK,
    TOPIC,
    decision,
    killed,
    open_producer,
)
from trio.testing import MockClock

from understudy.broker.inner import InnerMessage, append
from understudy.format.record import decode_record, offset_message_id
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until


class TestChecks:
    @pytest.mark.covers("TX-03")
    async def test_a_due_half_message_is_asked_about_once_in_each_interval(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            producer.prepare("A")
            await trio.sleep(29)
            young = producer.prepare("B")
            await trio.sleep(2)
            (asked,) = producer.checks()
            assert (asked.ext or {})["msgId"] == "A" and asked.flag & 2
            await trio.sleep(30)
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["B", "A"]
            # and the decision about a copy is one about all of them
            copies = producer.rig.stored(HALF)
            assert [each.properties.get("TRANSACTION_CHECK_TIMES") for each in copies] == [None, None, "1", "1", "2"]
            assert producer.decide(copies[2], COMMIT, fromTransactionCheck="true").code == 0
            assert producer.decide(young, ROLLBACK).code == 0
            await trio.sleep(100)
            assert producer.checks() == []
            assert producer.delivered() == ["A"]
            assert [each.body for each in producer.rig.stored(OPS)] == [b"4,3,"]

    async def test_a_decision_about_the_first_copy_ends_the_checks(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            half = producer.prepare("A")
            await trio.sleep(40)
            assert len(producer.checks()) == 1
            assert producer.decide(half, COMMIT).code == 0
            assert producer.decide(producer.rig.stored(HALF)[-1], COMMIT).code == 0
            await trio.sleep(100)
            assert (producer.checks(), producer.delivered()) == ([], ["A"])

    @pytest.mark.covers("TX-06", "TX-11")
    async def test_what_nobody_decides_is_given_up_and_can_be_resumed(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"transactionCheckMax": "2"}) as producer:
            half = producer.prepare("A", 2, CHECK_IMMUNITY_TIME_IN_SECONDS="x")
            other = producer.prepare("B")
            await trio.sleep(100)
            assert len(producer.checks()) == 4
            kept = producer.rig.stored(GIVEN_UP)
            assert [each.properties["UNIQ_KEY"] for each in kept] == ["A", "B"]
            assert kept[0].properties["TRANSACTION_CHECK_TIMES"] == "2"
            row = producer.rig.broker.topics.get(GIVEN_UP)
            assert row is not None and (row.write_queue_nums, row.perm) == (1, 6)
            assert producer.rig.broker.transactions.counts.open[TOPIC] == 0
            # when an operator wants it checked again
            message_id = offset_message_id(kept[0].store_host, kept[0].physical_offset)
            assert producer.rig.ask(323, {"topic": GIVEN_UP, "msgId": message_id}).code == 0
            again = producer.rig.ask(323, {"topic": GIVEN_UP, "msgId": message_id})
            assert code_and_remark(again) == (1, "it is being checked already")
            await trio.sleep(31)
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["A"]
            assert producer.decide(half, COMMIT, fromTransactionCheck="true").code == 0
            assert producer.delivered(2) == ["A"]
            # and a commit that comes after all is not lost, nor done twice
            assert producer.decide(other, COMMIT).code == 0
            assert producer.decide(other, COMMIT).code == 0
            assert producer.delivered() == ["B"]
            refused = producer.rig.ask(323, {"msgId": offset_message_id(kept[1].store_host, kept[1].physical_offset)})
            assert code_and_remark(refused) == (1, "it was committed")
            assert producer.rig.ask(323, {"msgId": "x"}).code == 1
            assert producer.rig.ask(323, {"msgId": offset_message_id(half.store_host, half.physical_offset)}).code == 1

    async def test_what_was_checked_again_and_rolled_back_is_not_committed_by_a_late_producer(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"transactionCheckMax": "2"}) as producer:
            half = producer.prepare("A")
            await trio.sleep(100)
            (kept,) = producer.rig.stored(GIVEN_UP)
            message_id = offset_message_id(kept.store_host, kept.physical_offset)
            assert producer.rig.ask(323, {"topic": GIVEN_UP, "msgId": message_id}).code == 0
            await trio.sleep(31)
            copy = producer.rig.stored(HALF)[-1]
            assert producer.decide(copy, ROLLBACK, fromTransactionCheck="true").code == 0
            await trio.sleep(100)
            assert producer.decide(half, COMMIT).code == 0
            assert producer.delivered() == []

    @pytest.mark.parametrize("index", ["true", "false"])
    async def test_a_commit_while_the_round_that_gave_it_up_is_not_safe_yet_is_delivered_once(
        self, disk: SimDisk, autojump_clock: MockClock, index: str
    ) -> None:
        keys = {"transactionCheckMax": "1", "messageIndexEnable": index, "flushDiskType": "SYNC_FLUSH"}
        async with open_producer(disk, keys) as producer:
            text = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY="A")
            producer.rig.tell(310, send_header(TOPIC, text, g=str(producer.clock.wall_ms())), b"half")
            await trio.sleep(31)
            half = producer.rig.stored(HALF)[0]
            # given a half message that was given up just now, which the disk is slow to keep
            disk.sync_seconds = 5
            await until(lambda: GIVEN_UP in producer.rig.broker.topics.rows, 60)
            # when the producer decides after all, also when its answer was lost, and about another copy
            for each in (half, half, producer.rig.stored(HALF)[-1]):
                producer.rig.tell(37, decision(each, COMMIT, fromTransactionCheck="true"))
                await trio.sleep(0.1)
            # then it is decided, whoever comes next
            await trio.sleep(60)
            assert (producer.delivered(), len(producer.rig.stored(GIVEN_UP))) == (["A"], 1)
            left = killed(disk)
        left.sync_seconds = 0
        async with open_producer(left, keys) as producer:
            producer.rig.tell(37, decision(half, ROLLBACK))
            await trio.sleep(100)
            assert (producer.delivered(), len(producer.rig.stored(GIVEN_UP))) == (["A"], 1)

    async def test_a_late_commit_that_comes_again_before_the_first_one_is_safe_is_delivered_once(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"transactionCheckMax": "1", "flushDiskType": "SYNC_FLUSH"}) as producer:
            text = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY="A")
            producer.rig.tell(310, send_header(TOPIC, text, g=str(producer.clock.wall_ms())), b"half")
            await trio.sleep(130)
            assert len(producer.rig.stored(GIVEN_UP)) == 1
            disk.sync_seconds = 5
            for _ in range(3):
                producer.rig.tell(37, decision(producer.rig.stored(HALF)[0], COMMIT))
                await trio.sleep(0.1)
            await trio.sleep(60)
            assert producer.delivered() == ["A"]

    async def test_a_late_commit_is_refused_where_nothing_tells_whether_it_was_given_up(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"transactionCheckMax": "1", "messageIndexEnable": "false"}) as producer:
            # given one that was committed while nothing was given up yet: it is known to be committed
            committed = producer.prepare("committed")
            assert producer.decide(committed, COMMIT).code == 0
            await trio.sleep(40)
            assert code_and_remark(producer.decide(committed, COMMIT)) == (0, None)
            # when others were given up since, and the progress has passed all of them
            half = producer.prepare("A")
            await trio.sleep(130)
            assert [each.properties["UNIQ_KEY"] for each in producer.rig.stored(GIVEN_UP)] == ["A"]
            # then none is taken for the other
            refused = producer.decide(half, COMMIT)
            assert refused.code == 1 and "messageIndexEnable=false" in (refused.remark or "")
            assert producer.decide(committed, COMMIT).code == 1
            assert producer.decide(half, ROLLBACK).code == 0
            assert producer.delivered() == ["committed"]
            # and what came behind them is not in doubt
            young = producer.prepare("young")
            assert producer.decide(young, COMMIT).code == 0
            await trio.sleep(40)
            assert producer.decide(young, COMMIT).code == 0
            assert producer.delivered() == ["committed", "young"]

    @pytest.mark.parametrize("index", ["true", "false"])
    async def test_a_half_message_without_a_unique_key_is_never_said_to_be_committed_when_it_is_not(
        self, disk: SimDisk, autojump_clock: MockClock, index: str
    ) -> None:
        async with open_producer(disk, {"messageIndexEnable": index}) as producer:
            # given one of a log that another broker wrote: ours gives each a unique key
            pairs = properties(PGROUP=GROUP, REAL_TOPIC=TOPIC, REAL_QID="0").encode()
            assert producer.rig.send(TOPIC).code == 0
            now_ms, before = producer.clock.wall_ms(), len(producer.rig.stored(TOPIC))
            append(producer.rig.broker.store, InnerMessage(HALF, 0, b"half", pairs, now_ms, bytes(8)))
            (half,) = producer.rig.stored(HALF)
            # when it was stored anew for a check, and its producer decides about the first copy
            await trio.sleep(40)
            refused = producer.decide(half, COMMIT)
            assert refused.code == 1 and "a unique key" in (refused.remark or "")
            # then the check is what counts
            assert producer.decide(producer.rig.stored(HALF)[-1], COMMIT, fromTransactionCheck="true").code == 0
            assert producer.decide(producer.rig.stored(HALF)[-1], COMMIT, fromTransactionCheck="true").code == 0
            assert len(producer.rig.stored(TOPIC)) == before + 1

    async def test_a_long_immunity_costs_no_checks_and_holds_up_no_other(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"transactionCheckMax": "2"}) as producer:
            producer.prepare("A", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
            producer.prepare("B")
            await trio.sleep(95)
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["B", "B"]
            copy = producer.rig.stored(HALF)[-1]
            assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
            assert "TRANSACTION_CHECK_TIMES" not in copy.properties
            await trio.sleep(30)
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["A"]
            assert producer.decide(copy, ROLLBACK, fromTransactionCheck="true").code == 0
            await trio.sleep(100)
            assert producer.checks() == []

    async def test_without_a_producer_checks_are_counted_and_the_next_one_that_comes_is_asked(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            producer.rig.broker.producers.close(producer.rig.peer)  # type: ignore[arg-type]
            producer.prepare("A")
            await trio.sleep(40)
            assert producer.checks() == []
            producer.beat()
            await trio.sleep(30)
            (asked,) = producer.checks()
            assert decode_record(asked.body).properties["TRANSACTION_CHECK_TIMES"] == "2"

    async def test_one_that_is_older_than_the_log_is_kept_is_given_up(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk, {"fileReservedTime": "1"}) as producer:
            header = {"f": "4", "g": str(producer.clock.wall_ms() - 3_600_001)}
            text = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY="A")
            producer.rig.send(TOPIC, b"x", text, header=header)
            await trio.sleep(61)
            assert [each.properties["UNIQ_KEY"] for each in producer.rig.stored(GIVEN_UP)] == ["A"]

    async def test_one_born_ahead_of_our_clock_gets_its_time(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            await trio.sleep(28)
            header = {"f": "4", "g": str(producer.clock.wall_ms() + 50_000)}
            text = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY="A")
            producer.rig.send(TOPIC, b"x", text, header=header)
            await trio.sleep(4)
            assert producer.checks() == []
            await trio.sleep(30)
            assert len(producer.checks()) == 1

    async def test_what_is_no_half_message_in_the_half_topic_is_passed(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            producer.rig.broker.store.append(HALF, 0, b"x", b"UNIQ_KEY\x01u\x02", 1, b"\0" * 8)
            producer.prepare("A")
            await trio.sleep(40)
            assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["A"]

    async def test_the_next_life_goes_on_where_the_last_one_was(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            first, second = producer.prepare("A"), producer.prepare("B")
            await trio.sleep(40)
            assert len(producer.checks()) == 2
        async with open_producer(disk) as producer:
            assert producer.rig.broker.transactions.counts.open == {TOPIC: 2}
            assert producer.decide(first, COMMIT).code == 0
            assert producer.decide(second, ROLLBACK).code == 0
            await trio.sleep(100)
            assert (producer.checks(), producer.delivered()) == ([], ["A"])
            offsets = producer.rig.broker.offsets
            assert offsets.queues("CID_RMQ_SYS_TRANS", HALF) == {0: 4}
        saved = json.loads(disk.read(f"{FOLDER}/config/transactionMetrics"))
        assert {topic: row["count"] for topic, row in saved["transactionCount"].items()} == {TOPIC: 0}

    async def test_copies_without_progress_are_one_half_message(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        # Given a broker that was killed between storing a half message anew and moving its progress
        async with open_producer(disk) as producer:
            half = producer.prepare("A")
            await trio.sleep(40)
        mine, gone = f'"{HALF}@CID_RMQ_SYS_TRANS"'.encode(), b'"gone@g"'
        disk.damage(f"{FOLDER}/config/consumerOffset.json", lambda content: content.replace(mine, gone))
        # Then it is asked about once
        async with open_producer(disk) as producer:
            assert producer.rig.broker.transactions.counts.open == {TOPIC: 1}
            await trio.sleep(31)
            assert len(producer.checks()) == 1
            producer.decide(half, COMMIT)
            await trio.sleep(60)
            assert (producer.checks(), producer.delivered()) == ([], ["A"])
