"""Pops in order, check points that wait in memory, and the figures of both."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from broker_rig import open_rig
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
    until_something,
    virtual_world,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.metrics import pieces


class TestInOrder:
    @pytest.mark.covers("PP-22")
    async def test_nothing_more_of_a_queue_until_all_is_acknowledged(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            answer = rig.ask(POP, pop_header(order="true", maxMsgNums="2"))
            (_, first), (_, second) = receipts(answer)
            assert bodies(answer) == [b"0", b"1"]
            assert rig.ask(POP, pop_header(order="true")).code == 210
            waiting = rig.tell(POP, pop_header(order="true", pollTime="60000"))
            assert rig.ask(ACK, ack_header(second)).code == 0
            await wait_all_tasks_blocked()
            assert waiting.opaque not in rig.peer.replies
            assert rig.ask(ACK, ack_header(first)).code == 0
            assert bodies(await rig.wait(waiting)) == [b"2", b"3"]

    async def test_a_group_that_is_doubted_goes_on_with_what_it_is_given(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            rig.send("T", b"before")
            ((_, first),) = receipts(rig.ask(POP, pop_header(order="true")))
            assert rig.ask(ACK, ack_header(first)).code == 0
            # given a master that has lost the end of its log, and new messages where others were
            offsets, store = rig.broker.offsets, rig.broker.store
            offsets.doubts.begin(offsets.committed, store.max_queue_offset)
            assert not offsets.commit_unless_reset("g", "T", 0, 3)
            for number in range(4):
                rig.send("T", b"%d" % number)
            # when they are popped in order and acknowledged, then they do not come again
            for expected in ([b"0", b"1"], [b"2", b"3"]):
                answer = rig.ask(POP, pop_header(order="true", maxMsgNums="2"))
                assert bodies(answer) == expected
                for _, receipt in receipts(answer):
                    assert rig.ask(ACK, ack_header(receipt)).code == 0
            assert rig.ask(POP, pop_header(order="true")).code == 210

    @pytest.mark.parametrize("acknowledged", [0, 2])
    async def test_of_a_queue_whose_record_is_lost_an_acknowledgement_skips_no_message(
        self, acknowledged: int, autojump_clock: MockClock
    ) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            # given three that were popped by a broker that died before its disk had the record of it
            popped = receipts(rig.ask(POP, pop_header(order="true", maxMsgNums="3", initMode="0")))
            rig.broker.orders.clear("T", "g", 0)
            rig.broker.offsets.commit("g", "T", 0, 0)
            # when one of them is acknowledged, then all come again but for the first, if it was that one
            assert rig.ask(ACK, ack_header(popped[acknowledged][1])).code == 0
            expected = [b"%d" % number for number in range(0 if acknowledged else 1, 4)]
            assert bodies(rig.ask(POP, pop_header(order="true"))) == expected

    @pytest.mark.covers("PP-17", "PP-22")
    async def test_a_queue_opens_by_itself_and_counts(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            for number in range(3):
                rig.send("T", b"%d" % number)
            first = rig.ask(POP, pop_header(order="true"))
            assert (first.ext or {})["orderCountInfo"] == "0 0 0"
            began = rig.broker.world.clock.wall_ms()
            waiting = rig.tell(POP, pop_header(order="true", pollTime="60000"))
            again = await rig.wait(waiting)
            assert 5_000 <= rig.broker.world.clock.wall_ms() - began < 5_100
            assert bodies(again) == bodies(first)
            assert (again.ext or {})["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 1"

    @pytest.mark.covers("PP-17")
    async def test_a_shorter_time_opens_a_queue_sooner(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            rig.send("T", b"x")
            ((_, receipt),) = receipts(rig.ask(POP, pop_header(order="true", invisibleTime="60000")))
            waiting = rig.tell(POP, pop_header(order="true", pollTime="60000"))
            began = rig.broker.world.clock.wall_ms()
            assert rig.ask(CHANGE, ack_header(receipt, invisibleTime="2000")).code == 0
            assert bodies(await rig.wait(waiting)) == [b"x"]
            assert 2_000 <= rig.broker.world.clock.wall_ms() - began < 2_100

    async def test_what_was_handed_out_is_known_after_a_restart(self, autojump_clock: MockClock) -> None:
        world = virtual_world()
        async with open_virtual(world=world) as rig:
            prepare(rig, queues=1)
            rig.send("T", b"x")
            ((_, receipt),) = receipts(rig.ask(POP, pop_header(order="true", invisibleTime="60000", attemptId="a1")))
        async with open_virtual(world=world) as rig:
            assert rig.ask(POP, pop_header(order="true", attemptId="a2")).code == 210
            assert bodies(rig.ask(POP, pop_header(order="true", attemptId="a1"))) == [b"x"]
            assert rig.ask(ACK, ack_header(receipt)).code == 0  # of the pop before: it does not count
            assert rig.ask(POP, pop_header(order="true", attemptId="a3")).code == 210


class TestInMemory:
    KEYS: ClassVar = {"enablePopBufferMerge": "true"}

    @pytest.mark.covers("PP-11")
    async def test_what_is_acknowledged_soon_is_never_written(self, autojump_clock: MockClock) -> None:
        async with open_virtual(self.KEYS) as rig:
            prepare(rig, queues=1)
            for number in range(6):
                rig.send("T", b"%d" % number)
            end = rig.broker.store.max_physical_offset
            first = rig.ask(POP, pop_header(maxMsgNums="3", invisibleTime="60000"))
            second = rig.ask(POP, pop_header(maxMsgNums="3", invisibleTime="60000"))
            assert bodies(first) + bodies(second) == [b"%d" % number for number in range(6)]
            for _, receipt in receipts(second):
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            assert rig.broker.offsets.query("g", "T", 0) == 0
            for _, receipt in receipts(first):
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            assert rig.broker.offsets.query("g", "T", 0) == 6
            assert rig.broker.store.max_physical_offset == end

    @pytest.mark.parametrize("batch", ["true", "false"])
    async def test_what_waits_too_long_is_written_with_its_acknowledgements(
        self, batch: str, autojump_clock: MockClock
    ) -> None:
        async with open_virtual(self.KEYS | {"enablePopBatchAck": batch}) as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            taken = receipts(rig.ask(POP, pop_header(invisibleTime="20000")))
            for _, receipt in taken[:2]:
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            await rig.broker.world.clock.sleep(11)
            assert rig.broker.offsets.query("g", "T", 0) == 4
            assert len(rig.broker.pops.moving.buffer) == 0
            assert rig.ask(ACK, ack_header(taken[2][1])).code == 0
            assert bodies(await until_something(rig)) == [b"3"]

    async def test_a_clean_stop_writes_what_waits(self, autojump_clock: MockClock) -> None:
        world = virtual_world()
        async with open_virtual(self.KEYS, world) as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            taken = receipts(rig.ask(POP, pop_header(invisibleTime="20000")))
            assert rig.ask(ACK, ack_header(taken[1][1])).code == 0
        async with open_virtual(self.KEYS, world) as rig:
            assert rig.ask(POP, pop_header()).code == 210
            assert sorted(bodies(await until_something(rig))) == [b"0", b"2", b"3"]

    async def test_what_does_not_fit_is_written_at_once(self, autojump_clock: MockClock) -> None:
        async with open_virtual(self.KEYS | {"popCkOffsetMaxQueueSize": "1"}) as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            first = rig.ask(POP, pop_header(maxMsgNums="1", invisibleTime="60000"))
            rig.ask(POP, pop_header(maxMsgNums="1", invisibleTime="60000"))
            assert bodies(rig.ask(POP, pop_header(maxMsgNums="1", invisibleTime="60000"))) == [b"2"]
            assert len(rig.broker.pops.moving.buffer) == 1
            assert rig.broker.offsets.query("g", "T", 0) == 0
            assert rig.ask(ACK, ack_header(receipts(first)[0][1])).code == 0
            assert rig.broker.offsets.query("g", "T", 0) == 3


class TestFigures:
    @pytest.mark.covers("PP-13")
    async def test_what_is_counted(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=1)
            for number in range(4):
                rig.send("T", b"%d" % number)
            taken = receipts(rig.ask(POP, pop_header()))
            for _, receipt in taken[:3]:
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            await rig.broker.world.clock.sleep(20)
            found = {
                (family.name, *sorted(sample.labels.items())): sample.value
                for family in filter(None, pieces(rig.broker))
                for sample in family.samples
                if "_pop_" in family.name
            }
            place = ("consumer_group", "g"), ("put_status", "PUT_OK")
            made, came = "rocketmq_pop_revive_in_message_total", "rocketmq_pop_revive_out_message_total"
            assert found[made, *place, ("revive_message_type", "CK"), ("topic", "T")] == 1
            assert found[made, *place, ("revive_message_type", "ACK"), ("topic", "T")] == 3
            out = [number for (name, *_), number in found.items() if name == came]
            assert sorted(out) == [1, 3]
            assert found["rocketmq_pop_revive_retry_messages_total", *place, ("topic", "%RETRY%g_T")] == 1
            assert found["rocketmq_pop_revive_lag_milliseconds", ("queue_id", "0")] == 0
            for name, key in (
                *(("GROUP_CK_NUMS", "T@g"), ("GROUP_ACK_NUMS", "T@g")),
                *(("BROKER_CK_NUMS", "DefaultCluster"), ("BROKER_ACK_NUMS", "DefaultCluster")),
            ):
                assert rig.ask(315, {"statsName": name, "statsKey": key}).code == 0

    async def test_a_broker_that_was_away_hands_out_and_takes_nothing(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig, queues=1)
            rig.send("T", b"x")
            rig.send("T", b"y")
            ((_, receipt),) = receipts(rig.ask(POP, pop_header(maxMsgNums="1")))
            rig.broker.presence.readable_until_ms = 0
            end = rig.broker.store.max_physical_offset
            assert rig.ask(POP, pop_header()).code == 210
            assert rig.ask(ACK, ack_header(receipt)).code == 2
            assert rig.broker.store.max_physical_offset == end
