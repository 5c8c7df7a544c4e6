"""What is asked about queues that are popped, what exists no more, and messages that are large."""

from __future__ import annotations

import random
import zlib

import pytest
from broker_rig import code_and_remark, properties
from pop_rig import (
    ACK,
    CHANGE,
    POP,
    ack_header,
    bodies,
    open_virtual,
    pop_header,
    prepare,
    receipts,
    records,
    until_something,
)
from trio.testing import MockClock

from understudy.broker.pop.revive_log import AHEAD_MS, CheckPoint, read_entry
from understudy.format import names
from understudy.format.record import FLAG_COMPRESSED

PEEK, NOTIFICATION = 200052, 200054
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
LARGE_BYTES = 4 << 20


class TestNotification:
    @pytest.mark.covers("PP-26")
    async def test_it_is_told_whether_there_is_something(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            rig.send("T", b"x")
            # given a message, the question says so; and no more once it is popped
            assert (rig.ask(NOTIFICATION, pop_header()).ext or {})["hasMsg"] == "true"
            ((_, receipt),) = receipts(rig.ask(POP, pop_header()))
            assert (rig.ask(NOTIFICATION, pop_header()).ext or {})["hasMsg"] == "false"
            assert rig.ask(ACK, ack_header(receipt)).code == 0
            # when it waits, a new message is the answer, and nothing is when its time is over
            waiting = rig.tell(NOTIFICATION, pop_header(pollTime="20000"))
            rig.send("T", b"y")
            assert ((await rig.wait(waiting)).ext or {})["hasMsg"] == "true"
            assert bodies(rig.ask(POP, pop_header())) == [b"y"]
            waiting = rig.tell(NOTIFICATION, pop_header(pollTime="2000"))
            assert ((await rig.wait(waiting)).ext or {})["hasMsg"] == "false"

    @pytest.mark.covers("PP-26")
    async def test_what_comes_back_carries_its_handle(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            for number in range(5):
                rig.send("T", b"%d" % number, queue_id=number % 2)
            assert len(records(rig.ask(POP, pop_header()))) == 5
            again = await until_something(rig)
            found = receipts(again)
            assert found
            assert [record.properties["POP_CK"] for record, _ in found] == [receipt.text for _, receipt in found]


@pytest.mark.covers("PP-20")
async def test_a_peek_shows_what_a_pop_would_find_and_takes_nothing(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        assert code_and_remark(rig.ask(PEEK, pop_header())) == (19, "NO_MESSAGE_IN_QUEUE")
        for number in range(4):
            rig.send("T", b"%d" % number, queue_id=number % 2)
        for _ in range(2):
            answer = rig.ask(PEEK, pop_header(maxMsgNums="3"))
            assert (answer.code, len(bodies(answer)), (answer.ext or {})["restNum"]) == (0, 3, "4")
        assert rig.ask(PEEK, pop_header(topic="Missing")).code == 17
        assert rig.ask(PEEK, pop_header(queueId="9")).code == 29
        assert len(bodies(rig.ask(POP, pop_header()))) == 4
        assert rig.ask(PEEK, pop_header()).code == 19


@pytest.mark.covers("PP-10")
async def test_more_time_for_what_is_there_and_for_what_is_not(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        rig.send("T", b"x")
        ((_, receipt),) = receipts(rig.ask(POP, pop_header()))
        asked = rig.tell(CHANGE, ack_header(receipt, invisibleTime="9000"))
        answer = await rig.wait(asked)
        assert (answer.code, answer.opaque, (answer.ext or {})["invisibleTime"]) == (0, asked.opaque, "9000")
        assert rig.ask(CHANGE, ack_header(receipt, invisibleTime="9000") | {"offset": "5"}).code == 208


@pytest.mark.covers("PP-05")
async def test_a_popped_message_that_is_gone_for_good_is_done(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        # given a check point of a message that is there, and of two that no queue has any more
        prepare(rig)
        rig.send("T", b"there")
        ((_, receipt),) = receipts(rig.ask(POP, pop_header()))
        assert rig.ask(ACK, ack_header(receipt)).code == 0
        now_ms = rig.broker.world.clock.wall_ms()
        point = CheckPoint("T", "g", 0, 0, now_ms, 5_000, "broker-a", (0, 7, 8))
        pairs = properties(TAGS="ck", UNIQ_KEY=point.unique_key, TIMER_DELIVER_MS=str(point.revive_ms - AHEAD_MS))
        rig.send(REVIVE, point.body, pairs)
        # when its time is over, then what is there comes back, and the check point does not go around again
        await rig.broker.world.clock.sleep(60)
        assert [each.body for each in rig.stored(names.pop_retry_topic("g", "T"))] == [b"there"]
        entries = [read_entry(each.properties["TAGS"], each.body, "-") for each in rig.stored(REVIVE)]
        assert [each for each in entries if isinstance(each, CheckPoint) and each.pop_ms == now_ms] == [point]


@pytest.mark.covers("PP-25")
@pytest.mark.parametrize("merge", ["false", "true"])
async def test_a_large_compressed_message_comes_as_it_was_sent_also_again(
    merge: str, autojump_clock: MockClock
) -> None:
    body = zlib.compress(random.Random(1).randbytes(LARGE_BYTES - 65_536))
    async with open_virtual({"enablePopBufferMerge": merge, "maxMessageSize": str(8 << 20)}) as rig:
        prepare(rig)
        rig.send("T", body, header={"f": str(FLAG_COMPRESSED)})
        first = rig.ask(POP, pop_header())
        again = await until_something(rig)
        for answer, times in ((first, 0), (again, 1)):
            (record,) = records(answer)
            assert (record.body, record.reconsume_times) == (body, times)
            assert record.sys_flag & FLAG_COMPRESSED


@pytest.mark.covers("R48")
async def test_keys_of_check_points_and_acknowledgements_name_the_broker(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        for number in range(3):
            rig.send("T", b"%d" % number)
        for _, receipt in receipts(rig.ask(POP, pop_header()))[:2]:
            assert rig.ask(ACK, ack_header(receipt)).code == 0
        await rig.broker.world.clock.sleep(20)
        found = [each for queue in range(8) for each in rig.stored(REVIVE, queue)]
        assert [each.properties["TAGS"] for each in found].count("ack") == 2
        for each in found:
            parts = each.properties["UNIQ_KEY"].split("@")
            assert parts[-2:] == ["broker-a", each.properties["TAGS"]]
            assert read_entry(each.properties["TAGS"], each.body, "somebody").key[-1] == "broker-a"
