"""Light message queues of a broker: sent to by a property, read by name, with offsets of their own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Peer, Rig, open_rig, pull_header
from pop_rig import ACK, POP, ack_header, open_virtual, pop_header, receipts, until_something
from trio.testing import MockClock

from understudy.broker.offsets import OffsetTable
from understudy.broker.replicated.rules import read_offsets
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import dumps, loads
from understudy.format.record import decode_records
from understudy.remoting.command import Command

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
A, B, GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%a"
GOLDEN = Path(__file__).parents[1] / "data" / "store" / "lmq.json.gz"


def send(rig: Rig, body: bytes, names: str, topic: str = "Parent", queue_id: int = 0, more: str = "") -> Command:
    unique = f"UNIQ_KEY\x01{body.hex()}\x02"
    return rig.send(topic, body, f"{unique}INNER_MULTI_DISPATCH\x01{names}\x02{more}", queue_id)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_records(memoryview(answer.body))]


def place(topic: str, group: str = GROUP, **more: str) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": "0"} | more


def saved(folder: Path, name: str = "lmqConsumerOffset.json") -> dict[str, Any]:
    content: dict[str, Any] = loads((folder / "config" / name).read_bytes())
    return content


async def test_readers_pull_a_light_queue_by_its_name(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        rig.broker.topics.update([TopicConfig("Parent", 2, 2)])
        versions = rig.broker.topics.version, rig.broker.groups.version
        # Given messages of two queues of a topic
        assert send(rig, b"1", A).code == 0
        assert send(rig, b"2", f"{A},{B}", queue_id=1).code == 0
        assert send(rig, b"3", B).code == 0
        # When light queues are pulled by name, with a group that has a name like theirs, or any other one
        first, second = rig.pull(A, group=GROUP), rig.pull(B, offset=1, group="readers")
        # Then they come as they lie there
        assert (first.code, bodies(first)) == (0, [b"1", b"2"])
        assert (second.code, bodies(second)) == (0, [b"3"])
        assert first.ext is not None
        assert (first.ext["nextBeginOffset"], first.ext["minOffset"], first.ext["maxOffset"]) == ("2", "0", "2")
        # and questions about the queue are answered as for any other
        assert rig.ask(30, {"topic": A, "queueId": "0"}).ext == {"offset": "2"}
        assert rig.ask(31, {"topic": A, "queueId": "0"}).ext == {"offset": "0"}
        assert rig.ask(29, {"topic": A, "queueId": "0", "timestamp": "1"}).ext == {"offset": "0"}
        # and neither is a row that is saved, told to name servers, or copied
        assert A not in rig.broker.topics.rows
        assert GROUP not in rig.broker.groups.rows
        assert versions[0] == rig.broker.topics.version
        assert rig.pull(A, queue_id=1).code == 29  # it has one queue


async def test_who_waits_at_a_light_queue_is_told_of_its_messages_only(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        waiting, other = Peer(rig.nursery, 50_001), Peer(rig.nursery, 50_002)
        suspended = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
        pull = rig.tell(11, pull_header(A, 0, 0, GROUP, **suspended), peer=waiting)
        rig.tell(11, pull_header(B, 0, 0, "%LMQ%b", **suspended), peer=other)
        assert not waiting.replies
        send(rig, b"1", "%LMQ%c")
        assert not waiting.replies
        send(rig, b"2", A)
        answer = await rig.wait(pull, waiting)
        assert (answer.code, bodies(answer)) == (0, [b"2"])
        assert not other.replies


async def test_offsets_of_light_queues_are_committed_kept_and_read_again(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        for number in range(5):
            send(rig, b"%d" % number, A)
        # When a group that has no row, and one that has, commit
        assert rig.ask(15, place(A, commitOffset="3")).code == 0
        rig.pull(A, group="readers")
        assert rig.ask(15, place(A, "readers", commitOffset="2")).code == 0
        rig.pull("Parent", group="readers", commitOffset="1", sysFlag="5")
        # and one commits beyond the end, or in what is no queue
        assert rig.ask(15, place(A, commitOffset="6")).code == 29
        assert rig.ask(15, place("Absent", commitOffset="1")).code == 17
        await rig.broker.persistence.save("offsets")
        # Then they stand in the reference's file for such a broker, in its tables
        content = saved(tmp_path)
        assert content["lmqOffsetTable"] == {f"{A}@{GROUP}": 3}
        assert content["offsetTable"] == {f"{A}@readers": {"0": 2}, "Parent@readers": {"0": 1}}
        assert not (tmp_path / "config" / "consumerOffset.json").exists()
    async with open_rig(str(tmp_path), ON) as rig:
        assert rig.ask(14, place(A)).ext == {"offset": "3"}
        assert rig.ask(14, place(A, "readers")).ext == {"offset": "2"}
        assert bodies(rig.pull(A, offset=3, group=GROUP)) == [b"3", b"4"]


async def test_offsets_that_were_saved_without_light_queues_are_taken_over(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        rig.pull("T", group="readers", commitOffset="1", sysFlag="5")
        await rig.broker.persistence.save("offsets")
    async with open_rig(str(tmp_path), ON) as rig:
        assert rig.ask(14, place("T", "readers")).ext == {"offset": "1"}
        assert saved(tmp_path)["offsetTable"] == {"T@readers": {"0": 1}}


def test_tables_of_the_reference_are_read_and_replicas_learn_all_offsets() -> None:
    # Given what the reference saved, and what it writes for a group of a light queue
    captured = json.loads(gzip.decompress(GOLDEN.read_bytes()))["configFiles"]["lmqConsumerOffset.json"]
    captured["lmqOffsetTable"] = {f"{A}@{GROUP}": 7}
    offsets = OffsetTable(lambda: 1)
    offsets.light_queues = True
    # When it is read
    offsets.merge_json(captured)
    # Then every offset is there
    assert offsets.query("g_lmq", "%LMQ%dev1", 0) == 3
    assert offsets.query("g_lmq", "OrderTopic", 0) == 1
    assert offsets.query(GROUP, A, 0) == 7
    # and what is written says the same, to replicas too
    written = loads(dumps(offsets.to_json()))
    assert (written["offsetTable"], written["lmqOffsetTable"]) == (captured["offsetTable"], captured["lmqOffsetTable"])
    assert read_offsets(dumps(offsets.to_json())).table == offsets.committed
    # and queues of another topic that such a group reads are told apart
    offsets.commit(GROUP, "Parent", 0, 4)
    offsets.commit(GROUP, "Parent", 1, 5)
    assert read_offsets(dumps(offsets.to_json())).table == offsets.committed


@pytest.mark.parametrize(
    ("names", "code", "why"),
    [
        ("plain", 13, "the message is illegal: 'plain' is no light queue"),
        (f"{A},%LMQ%b/c", 13, "the message is illegal: '%LMQ%b/c' cannot name a light queue"),
        ("%LMQ%c", 1, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch"),
    ],
)
async def test_a_send_that_names_what_cannot_be_is_refused(names: str, code: int, why: str, tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON | {"maxLmqConsumeQueueNum": "2"}) as rig:
        send(rig, b"1", f"{A},{B}")
        end = rig.broker.store.max_physical_offset
        answer = send(rig, b"2", names)
        assert (answer.code, (answer.remark or "")[: len(why)]) == (code, why)
        assert rig.broker.store.max_physical_offset == end


async def test_nothing_is_sent_to_a_light_queue_itself(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        send(rig, b"1", A)
        answer = rig.send(A, b"2")
        assert (answer.code, answer.remark) == (
            16,
            "topic[%LMQ%a] is a light message queue; send to a topic and name it in INNER_MULTI_DISPATCH",
        )
        assert bodies(rig.pull(A, group=GROUP)) == [b"1"]


async def test_without_the_settings_the_property_is_one_like_any_other(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        assert send(rig, b"1", f"{A},plain").code == 0
        assert rig.pull(A, group=GROUP).code == 17
        (record,) = rig.stored("Parent")
        assert record.properties["INNER_MULTI_DISPATCH"] == f"{A},plain"
        assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties
        assert list(rig.broker.store.queues()) == [("Parent", 0)]


@pytest.mark.parametrize("apart", [False, True])
async def test_reads_of_light_queues_are_counted_together_unless_told_apart(apart: bool, tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON | {"enableLmqStats": str(apart).lower()}) as rig:
        send(rig, b"1", f"{A},{B}")
        rig.pull(A, group=GROUP)
        rig.pull(B, group="readers")
        expected = [(A, GROUP), (B, "readers")] if apart else [("%LMQ%", "%LMQ%"), ("%LMQ%", "readers")]
        assert [(topic, group) for topic, group, _, _ in rig.broker.stats.gets()] == expected


async def test_what_is_popped_of_a_light_queue_is_acknowledged_there_or_comes_back(autojump_clock: MockClock) -> None:
    async with open_virtual(ON) as rig:
        rig.broker.topics.update([TopicConfig("Parent", 2, 2)])
        # Given a light queue whose messages lie in two queues of their topic, with another one in between
        for number in range(6):
            send(
                rig, b"%d" % number, A, queue_id=number % 2, more=f"TAGS\x01{'even' if number % 2 == 0 else 'odd'}\x02"
            )
            send(rig, b"of another", B)
        # When some of them are popped, and all but one are acknowledged
        answer = rig.ask(POP, pop_header(A, GROUP, exp="odd"))
        found = receipts(answer)
        assert [(record.body, receipt.queue_id, receipt.offset) for record, receipt in found] == [
            *((b"1", 0, 1), (b"3", 0, 3), (b"5", 0, 5))
        ]
        for _, receipt in (found[0], found[2]):
            assert rig.ask(ACK, ack_header(receipt, A, GROUP)).code == 0
        # Then that one comes again, as a message of the light queue, and is not entered there once more
        again = await until_something(rig, topic=A, group=GROUP)
        ((record, receipt),) = receipts(again)
        assert (record.topic, record.body, record.reconsume_times, receipt.retry) == (A, b"3", 1, "1")
        assert rig.ask(ACK, ack_header(receipt, A, GROUP)).code == 0
        await rig.broker.world.clock.sleep(120)
        assert rig.ask(POP, pop_header(A, GROUP)).code == 210
        assert rig.ask(30, {"topic": A, "queueId": "0"}).ext == {"offset": "6"}


async def test_a_pop_that_waits_at_a_light_queue_is_answered(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        born_ms = str(rig.broker.world.clock.wall_ms())
        command = rig.tell(POP, pop_header(A, GROUP, pollTime="15000", bornTime=born_ms))
        send(rig, b"1", A)
        answer = await rig.wait(command)
        assert (answer.code, bodies(answer)) == (0, [b"1"])


async def test_a_light_queue_is_deleted_like_a_topic(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        send(rig, b"1", f"{A},{B}")
        assert rig.ask(15, place(A, commitOffset="1")).code == 0
        assert (await rig.wait(rig.tell(215, {"topic": A}))).code == 0
        assert not rig.broker.store.has_queue(A, 0)
        assert rig.ask(14, place(A) | {"setZeroIfNotFound": "false"}).code == 22
        # and begins anew
        send(rig, b"2", f"{A},{B}")
        assert (bodies(rig.pull(A, group=GROUP)), bodies(rig.pull(B, group=GROUP))) == ([b"2"], [b"1", b"2"])
