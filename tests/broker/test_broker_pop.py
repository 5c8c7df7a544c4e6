"""Pops, acknowledgements and what comes back, by the requests of a client."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import pytest
import trio
from broker_rig import NoNetwork, Peer, Rig, code_and_remark, open_rig, properties
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.groups import GroupConfig
from understudy.broker.metrics import collect
from understudy.broker.topics import TopicConfig
from understudy.format.receipts import Receipt
from understudy.format.record import Record, decode_records
from understudy.remoting.command import Command
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

POP, ACK, CHANGE, BATCH_ACK = 200050, 200051, 200053, 200151
NOTHING = {"invisibleTime": "0", "popTime": "0", "restNum": "0", "reviveQid": "0"}


def pop_header(topic: str = "T", group: str = "g", **more: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "5000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        **more,
    }


def virtual_world() -> World:
    clock = VirtualClock()
    return World(clock, cast(Any, NoNetwork()), SimDisk(Random(1), now_ms=clock.wall_ms), Random(7))


def open_virtual(keys: dict[str, str] | None = None, world: World | None = None) -> AbstractAsyncContextManager[Rig]:
    """Run a broker in virtual time, on a disk in memory."""
    return open_rig("/store", keys, world=world or virtual_world())


def prepare(rig: Rig, topic: str = "T", queues: int = 2) -> None:
    rig.broker.topics.update([TopicConfig(topic, queues, queues)])
    rig.broker.groups.update([GroupConfig("g")])


def records(answer: Command) -> list[Record]:
    return decode_records(answer.body) if answer.body else []


def receipts(answer: Command, broker_name: str = "broker-a") -> list[tuple[Record, Receipt]]:
    """Return the messages of a pop with their handles, made from the answer as clients do."""
    assert answer.ext is not None
    starts = dict[tuple[str, str], str]()
    for each in filter(None, answer.ext["startOffsetInfo"].split(";")):
        mark, queue_id, start = each.split(" ")
        starts[mark, queue_id] = start
    places = [
        (mark, queue_id, offset)
        for mark, queue_id, offsets in (each.split(" ") for each in answer.ext["msgOffsetInfo"].split(";") if each)
        for offset in offsets.split(",")
    ]
    found = records(answer)
    assert len(found) == len(places)
    times = int(answer.ext["popTime"]), int(answer.ext["invisibleTime"]), int(answer.ext["reviveQid"])
    return [
        (record, Receipt(int(starts[mark, queue_id]), *times, mark, broker_name, int(queue_id), int(offset)))
        for record, (mark, queue_id, offset) in zip(found, places, strict=True)
    ]


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in records(answer)]


def ack_header(receipt: Receipt, topic: str = "T", group: str = "g", **more: str) -> dict[str, str]:
    real = topic if receipt.retry == "0" else f"%RETRY%{group}{'_' if receipt.retry == '1' else '+'}{topic}"
    return {
        "consumerGroup": group,
        "topic": real,
        "queueId": str(receipt.queue_id),
        "offset": str(receipt.offset),
        "extraInfo": receipt.text,
        **more,
    }


async def until_something(rig: Rig, seconds: float = 60, **header: str) -> Command:
    """Pop until there is something, in virtual time."""
    for _ in range(int(seconds)):
        answer = rig.ask(POP, pop_header(**header))
        if answer.code == 0:
            return answer
        await rig.broker.world.clock.sleep(1)
    raise AssertionError("nothing came back")


class TestPop:
    async def test_everything_of_every_queue_once(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig)
            for number in range(10):
                rig.send("T", b"%d" % number, queue_id=number % 2)
            answer = rig.ask(POP, pop_header())
            assert code_and_remark(answer) == (0, "FOUND")
            assert sorted(bodies(answer)) == [b"%d" % number for number in range(10)]
            assert sorted(answer.ext["msgOffsetInfo"].split(";")) == ["0 0 0,1,2,3,4", "0 1 0,1,2,3,4"]
            assert sorted(answer.ext["startOffsetInfo"].split(";")) == ["0 0 0", "0 1 0"]
            answer = rig.ask(POP, pop_header())
            assert code_and_remark(answer) == (210, "NO_MESSAGE_IN_QUEUE")
            assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("", "")

    @pytest.mark.covers("PP-03")
    async def test_what_nobody_acknowledged_comes_back_and_nothing_else(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            for number in range(8):
                rig.send("T", b"%d" % number, properties(TAGS="TagA", KEYS=f"k{number}"), number % 2)
            answer = rig.ask(POP, pop_header())
            kept = []
            for record, receipt in receipts(answer):
                if int(record.body) % 3:
                    assert rig.ask(ACK, ack_header(receipt)).code == 0
                else:
                    kept.append(record)
            again = await until_something(rig)
            assert sorted(bodies(again)) == sorted(record.body for record in kept)
            for record, receipt in receipts(again):
                assert (record.topic, record.reconsume_times, receipt.retry) == ("T", 1, "1")
                pairs = record.properties
                assert pairs["POP_CK"] == receipt.text
                assert pairs["1ST_POP_TIME"] == answer.ext["popTime"]
                assert (pairs["ORIGIN_GROUP"], pairs["TAGS"]) == ("g", "TagA")
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            await rig.broker.world.clock.sleep(120)
            assert rig.ask(POP, pop_header()).code == 210

    async def test_a_longer_time_and_then_an_acknowledgement(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            rig.send("T", b"long")
            rig.send("T", b"short")
            (_, first), _ = receipts(rig.ask(POP, pop_header()))
            changed = rig.ask(CHANGE, ack_header(first, invisibleTime="60000"))
            assert changed.code == 0
            again = await until_something(rig)
            assert bodies(again) == [b"short"]
            renewed = Receipt(
                first.offset, int(changed.ext["popTime"]), 60_000, int(changed.ext["reviveQid"]), "0", "broker-a", 0, 0
            )
            assert rig.ask(ACK, ack_header(renewed)).code == 0
            assert rig.ask(ACK, ack_header(receipts(again)[0][1])).code == 0
            await rig.broker.world.clock.sleep(180)
            assert rig.ask(POP, pop_header()).code == 210

    async def test_a_batch_of_acknowledgements(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            for number in range(5):
                rig.send("T", b"%d" % number)
            answer = rig.ask(POP, pop_header())
            (_, receipt), *_ = receipts(answer)
            entry: dict[str, Any] = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": receipt.revive_queue}
            entry |= {"pt": receipt.pop_ms, "it": receipt.invisible_ms, "b": "Gw=="}  # bits 0, 1, 3, 4
            body = str({"brokerName": "broker-a", "acks": [entry]}).replace("'", '"').encode()
            assert rig.ask(BATCH_ACK, None, body).code == 0
            assert bodies(await until_something(rig)) == [b"2"]

    async def test_only_the_tags_that_are_wanted(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig, queues=1)
            for number in range(9):
                rig.send("T", b"%d" % number, properties(TAGS="A" if number % 3 else "B"))
            answer = rig.ask(POP, pop_header(exp="B"))
            assert bodies(answer) == [b"0", b"3", b"6"]
            assert answer.ext["msgOffsetInfo"] == "0 0 0,3,6"
            assert rig.ask(POP, pop_header(exp="B")).code == 210
            assert rig.broker.offsets.query("g", "T", 0) == 9

    async def test_only_what_a_condition_wants(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"enablePropertyFilter": "true"}) as rig:
            prepare(rig, queues=1)
            for number in range(6):
                rig.send("T", b"%d" % number, properties(size=str(number)))
            condition = {"exp": "size > 3", "expType": "SQL92"}
            assert bodies(rig.ask(POP, pop_header(**condition))) == [b"4", b"5"]
            waiting = rig.tell(POP, pop_header(pollTime="20000", **condition))
            rig.send("T", b"small", properties(size="1"))
            await wait_all_tasks_blocked()
            assert waiting.opaque not in rig.peer.replies
            assert rig.ask(200055, pop_header()).ext == {"pollingNum": "1"}
            rig.send("T", b"large", properties(size="9"))
            assert bodies(await rig.wait(waiting)) == [b"large"]

    async def test_a_waiting_pop_gets_what_arrives(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig)
            waiting = rig.tell(POP, pop_header(pollTime="20000"))
            other = Peer(rig.nursery, 50_123)
            second = rig.tell(POP, pop_header(pollTime="20000"), peer=other)
            assert rig.ask(200055, pop_header()).ext == {"pollingNum": "2"}
            await wait_all_tasks_blocked()
            assert not rig.peer.replies
            assert rig.broker.arrivals.listens("T", rig.broker.pops.hold.arrived)
            rig.send("T", b"now", queue_id=1)
            answer = await rig.wait(waiting)
            assert bodies(answer) == [b"now"]
            assert second.opaque not in other.replies
            rig.send("T", b"then", queue_id=0)
            assert bodies(await rig.wait(second, other)) == [b"then"]
            assert len(rig.broker.store.arrived) == 1
            assert not rig.broker.arrivals.listens("T", rig.broker.pops.hold.arrived)

    async def test_a_waiting_pop_whose_time_is_over(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            waiting = rig.tell(POP, pop_header(pollTime="3000"))
            answer = await rig.wait(waiting)
            assert code_and_remark(answer) == (210, "NO_MESSAGE_IN_QUEUE")

    async def test_a_waiting_pop_gets_what_comes_back(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            rig.send("T", b"again")
            assert rig.ask(POP, pop_header()).code == 0
            waiting = rig.tell(POP, pop_header(pollTime="60000"))
            with trio.fail_after(30):
                while waiting.opaque not in rig.peer.replies:
                    await rig.peer.arrival.wait()
            assert bodies(rig.peer.replies[waiting.opaque or 0]) == [b"again"]


class TestAfterARestart:
    async def test_what_was_handed_out_is_not_handed_out_again(self, autojump_clock: MockClock) -> None:
        """The table of offsets that was saved is older than the log, as after a crash."""
        world = virtual_world()
        async with open_virtual(world=world) as rig:
            prepare(rig)
            for number in range(6):
                rig.send("T", b"%d" % number)
            answer = rig.ask(POP, pop_header(maxMsgNums="4"))
            for _, receipt in receipts(answer)[:3]:
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            rig.broker.offsets.committed.clear()
        async with open_virtual(world=world) as rig:
            assert bodies(rig.ask(POP, pop_header())) == [b"4", b"5"]
            assert b"3" in bodies(await until_something(rig))
            await world.clock.sleep(60)
            assert {record.body for record in rig.stored("%RETRY%g_T")} == {b"3", b"4", b"5"}

    async def test_a_slave_that_becomes_master_knows_what_was_handed_out(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig, queues=1)
            for number in range(3):
                rig.send("T", b"%d" % number)
            assert len(bodies(rig.ask(POP, pop_header(maxMsgNums="2")))) == 2
            rig.broker.offsets.committed.clear()
            rig.broker.pops.change_role(rig.broker.session.rules)
            assert bodies(rig.ask(POP, pop_header())) == [b"2"]


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
                for family in collect(rig.broker)
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


class TestLimits:
    @pytest.mark.covers("PP-13")
    async def test_so_much_is_out_and_no_more(self, autojump_clock: MockClock) -> None:
        keys = {"enablePopMessageThreshold": "true", "popInflightMessageThreshold": "1"}
        async with open_virtual(keys) as rig:
            prepare(rig, queues=1)
            for number in range(6):
                rig.send("T", b"%d" % number)
            taken = receipts(rig.ask(POP, pop_header(maxMsgNums="2")))
            assert rig.ask(POP, pop_header()).code == 210
            assert rig.ask(ACK, ack_header(taken[0][1])).code == 0
            assert bodies(rig.ask(POP, pop_header(maxMsgNums="1", invisibleTime="60000"))) == [b"2"]
            await rig.broker.world.clock.sleep(20)
            assert rig.broker.pops.moving.in_flight.get("T", "g", 0) == 1

    async def test_waiters_have_a_bound(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"popPollingSize": "2"}) as rig:
            prepare(rig)
            for _ in range(2):
                rig.tell(POP, pop_header(pollTime="20000"))
            answer = rig.ask(POP, pop_header(pollTime="20000"))
            assert code_and_remark(answer) == (209, "NO_MESSAGE_IN_QUEUE")

    async def test_a_reset_lets_everything_be_popped_again(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"enablePopBufferMerge": "true"}) as rig:
            prepare(rig, queues=1)
            for number in range(3):
                rig.send("T", b"%d" % number)
            assert len(bodies(rig.ask(POP, pop_header(invisibleTime="60000")))) == 3
            rig.broker.offsets.assign_reset("g", "T", 0, 1)
            assert bodies(rig.ask(POP, pop_header())) == [b"1", b"2"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "code", "remark"),
        [
            ({"topic": "Missing"}, 17, "topic[Missing] not exist"),
            ({"maxMsgNums": "33"}, 29, "greater than 32"),
            ({"queueId": "7"}, 29, "queueId[7] is illegal"),
            ({"bornTime": "1000"}, 210, "timeout too much"),
            ({"exp": "a > > 3", "expType": "SQL92"}, 23, "parse the consumer's subscription failed"),
            ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
            ({"invisibleTime": "0"}, 29, "invisibleTime"),
            ({"invisibleTime": "99999999999999"}, 29, "invisibleTime"),
            ({"maxMsgNums": "0"}, 29, "maxMsgNums"),
        ],
    )
    @pytest.mark.covers("PP-07")
    async def test_of_pops(self, tmp_path: Path, changes: dict[str, str], code: int, remark: str) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig)
            rig.send("T", b"x")
            answer = rig.ask(POP, pop_header() | changes)
            assert (answer.code, answer.ext) == (code, NOTHING)
            assert remark in (answer.remark or "")
            assert rig.broker.offsets.query("g", "T", 0) == -1

    async def test_without_a_timer(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"timerWheelEnable": "false"}) as rig:
            prepare(rig)
            answer = rig.ask(POP, pop_header())
            assert (answer.code, answer.ext) == (1, NOTHING)
            assert "timerWheelEnable is false" in (answer.remark or "")

    @pytest.mark.parametrize(
        ("changes", "code", "remark"),
        [
            ({"topic": "Missing"}, 17, "topic[Missing] not exist"),
            ({"queueId": "9"}, 13, "queueId[9] is illegal"),
            ({"queueId": "-1"}, 13, "queueId[-1] is illegal"),
            ({"offset": "99"}, 208, "offset is illegal, key:T@0, commit:99, store:0~1"),
            ({"extraInfo": "1 2 3"}, 1, "the receipt handle has 3 parts"),
            ({"extraInfo": "0 1 1 1 0 broker-a 1 0"}, 13, "not of this message"),
            ({"extraInfo": "0 1 1 77 0 broker-a 0 0"}, 13, "not of this message"),
            ({"extraInfo": "1 1 1 1 0 broker-a 0 0"}, 13, "not of this message"),
            ({"extraInfo": "0 1 9999999999999 1 0 broker-a 0 0"}, 13, "not of this message"),
            ({"extraInfo": "0 1 x 1 0 broker-a 0 0"}, 1, "where a number must be"),
        ],
    )
    @pytest.mark.parametrize("request_code", [ACK, CHANGE])
    async def test_of_acknowledgements_and_changes(
        self, tmp_path: Path, request_code: int, changes: dict[str, str], code: int, remark: str
    ) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig)
            rig.send("T", b"x")
            ((_, receipt),) = receipts(rig.ask(POP, pop_header()))
            end = rig.broker.store.max_physical_offset
            answer = rig.ask(request_code, ack_header(receipt, invisibleTime="1000") | changes)
            assert answer.code == code
            if code != 208 or request_code == ACK:
                assert remark in (answer.remark or "")
            assert rig.broker.store.max_physical_offset == end

    @pytest.mark.parametrize(
        ("body", "code"),
        [(b"", 208), (b'{"acks":[]}', 208), (b"[]", 208), (b"{", 13), (b'{"acks":7}', 13), (b'{"acks":[7]}', 13),
         (b'{"acks":[{"c":"g","t":"T","q":0,"so":0,"pt":1,"it":1,"rq":1,"b":"!"}]}', 13),
         (b'{"acks":[{"c":"g","t":"T","q":0,"so":0,"pt":1,"it":1,"rq":99,"b":"AQ=="}]}', 13),
         (b'{"acks":[{"c":"g","t":"T","r":"5","q":0,"so":0,"pt":1,"it":1,"rq":1,"b":"AQ=="}]}', 13),
         (b'{"acks":[{"c":"g","t":"T","q":0,"so":0,"pt":1,"it":1,"rq":1,"b":"//////8="}]}', 13),
         (b'{"acks":[{"c":"g","t":"None","q":0,"so":0,"pt":1,"it":1,"rq":1,"b":"AQ=="}]}', 17),
         (b'{"acks":[{"c":"g","t":"T","q":0,"so":50,"pt":1,"it":1,"rq":1,"b":"AQ=="}]}', 0)],
    )  # fmt: skip
    async def test_of_batches(self, tmp_path: Path, body: bytes, code: int) -> None:
        async with open_rig(str(tmp_path)) as rig:
            prepare(rig)
            rig.send("T", b"x")
            assert rig.ask(POP, pop_header()).code == 0
            end = rig.broker.store.max_physical_offset
            answer = rig.ask(BATCH_ACK, None, body)
            assert answer.code == code
            assert rig.broker.store.max_physical_offset == end
