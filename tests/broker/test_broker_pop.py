"""Pops, acknowledgements and what comes back, by the requests of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from broker_rig import Peer, code_and_remark, open_rig, properties
from pop_rig import (
    ACK,
    BATCH_ACK,
    CHANGE,
    NOTHING,
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

from understudy.broker.groups import GroupConfig
from understudy.broker.pop.revive_log import CheckPoint
from understudy.format.receipts import Receipt
from understudy.store.status import PutRejected, PutStatus
from understudy.testkit.turns import turns_beside


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

    async def test_changes_within_the_millisecond_of_the_pop_lose_nothing(self, autojump_clock: MockClock) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            rig.send("T", b"x")
            ((_, receipt),) = receipts(rig.ask(POP, pop_header(invisibleTime="2000")))
            first_ms = receipt.pop_ms
            for more in (1, 2, 3):
                changed = rig.ask(CHANGE, ack_header(receipt, invisibleTime="500"))
                assert changed.code == 0
                assert changed.ext is not None
                assert int(changed.ext["popTime"]) == first_ms + more
                receipt = attrs.evolve(receipt, pop_ms=first_ms + more, invisible_ms=500)
            assert rig.broker.world.clock.wall_ms() == first_ms
            assert bodies(await until_something(rig)) == [b"x"]

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
            assert "T" in rig.broker.arrivals._listeners
            rig.send("T", b"now", queue_id=1)
            answer = await rig.wait(waiting)
            assert bodies(answer) == [b"now"]
            assert second.opaque not in other.replies
            rig.send("T", b"then", queue_id=0)
            assert bodies(await rig.wait(second, other)) == [b"then"]
            assert len(rig.broker.store.arrived) == 1
            assert "T" not in rig.broker.arrivals._listeners

    @pytest.mark.parametrize(
        ("keys", "from_max", "from_min"),
        [
            ({}, [b"0", b"1", b"2"], [b"0", b"1", b"2"]),
            ({"accessMessageInMemoryMaxRatio": "0"}, [b"2"], [b"0", b"1", b"2"]),
            ({"initPopOffsetByCheckMsgInMem": "false"}, [b"2"], [b"0", b"1", b"2"]),
        ],
    )
    async def test_a_new_group_begins_at_the_end_unless_the_head_of_the_queue_is_near_it(
        self, tmp_path: Path, keys: dict[str, str], from_max: list[bytes], from_min: list[bytes]
    ) -> None:
        async with open_rig(str(tmp_path), keys) as rig:
            prepare(rig, queues=1)
            rig.broker.groups.update([GroupConfig("h")])
            for number in range(3):
                rig.send("T", b"%d" % number)
            assert bodies(rig.ask(POP, pop_header(initMode="1"))) == from_max
            assert bodies(rig.ask(POP, pop_header(group="h", initMode="0"))) == from_min

    async def test_one_whose_check_point_is_refused_is_tried_again_once_in_a_second(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_virtual() as rig:
            prepare(rig, queues=4)
            for number in range(100):
                rig.send("T", b"%d" % number, queue_id=number % 4)
            tries: list[object] = []

            def refuse(*entry: object) -> int:
                tries.append(entry)
                assert len(tries) < 100, "a pop spins"
                raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

            with monkeypatch.context() as patched:
                patched.setattr(rig.broker.pops.log, "write", refuse)
                # when no check point can be written, to the end of a pop and during another one
                given_up = rig.tell(POP, pop_header(pollTime="2500", maxMsgNums="8", exp="*"))
                assert (await rig.wait(given_up)).code == 210
                assert len(tries) == 4, "at once, after one and two seconds, and at its end"
                waiting = rig.tell(POP, pop_header(pollTime="20000", maxMsgNums="8"))
                await trio.sleep(0.5)
            # then that one is answered as soon as it can be, and nothing was passed
            before = trio.current_time()
            assert len(bodies(await rig.wait(waiting))) == 8
            assert trio.current_time() - before < 1
            found = [body for _ in range(4) for body in bodies(rig.ask(POP, pop_header()))]
            assert len(found) == 92
            assert len([each for each in caplog.messages if each.startswith("check point refused")]) == 5

    async def test_many_pops_at_a_full_disk_write_few_lines(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_virtual() as rig:
            prepare(rig)
            rig.send("T")

            def refuse(*entry: object) -> int:
                raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

            monkeypatch.setattr(rig.broker.pops.log, "write", refuse)
            assert [rig.ask(POP, pop_header()).code for _ in range(50)] == [210] * 50
            assert len([each for each in caplog.messages if each.startswith("check point refused")]) == 3

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
            await rig.broker.pops.recover()
            assert bodies(rig.ask(POP, pop_header())) == [b"2"]

    async def test_others_have_their_turn_while_very_many_check_points_are_read(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"mappedFileSizeConsumeQueue": str(20 * 10_000)}) as rig:
            prepare(rig, queues=1)
            pops, now_ms, count = rig.broker.pops, rig.broker.world.clock.wall_ms(), 3_000
            for number in range(count):
                point = CheckPoint("T", "g", 0, number, now_ms, 60_000, rig.broker.identity.name, (number,))
                pops.log.write(point, 0, point.revive_ms)
            assert await turns_beside(pops.recover) >= 10
            assert rig.broker.offsets.query("g", "T", 0) == count


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
