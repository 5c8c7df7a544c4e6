"""A topic with batch queues: what a sender, a puller and those who give messages back are answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import Rig, open_rig, properties, pull_header, send_header

from understudy.broker.topics import TopicConfig
from understudy.format.batch import encode_batch, iter_batch
from understudy.format.json_dialect import dumps
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, Record, decode_records
from understudy.remoting.command import Command

TOPIC = "T"
BATCH = {"queue.type": "BatchCQ"}
INNER = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP


async def make_topic(rig: Rig, name: str = TOPIC) -> None:
    header = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    more = {"defaultTopic": "TBW102", "topicSysFlag": "0", "order": "false", "attributes": "+queue.type=BatchCQ"}
    answer = await rig.wait(rig.tell(17, header | more))
    assert answer.code == 0, answer.remark


def send_batch(rig: Rig, bodies: list[bytes], text: str, **more: str) -> Command:
    body = encode_batch([(3, each, properties(TAGS=each.decode()[0]).encode()) for each in bodies])
    return rig.ask(320, {**send_header(TOPIC, text, **more), "m": "true"}, body)


def records(rig: Rig) -> list[Record]:
    return decode_records(rig.pull(TOPIC).body)


def expanded(record: Record) -> list[tuple[int, bytes]]:
    if not record.sys_flag & FLAG_INNER_BATCH:
        return [(record.queue_offset, record.body)]
    items = enumerate(iter_batch(record.body), record.queue_offset)
    return [(offset, record.body[at : at + length]) for offset, (_, at, length, _) in items]


def pulled(rig: Rig, offset: int = 0, **header: str) -> list[tuple[int, bytes]]:
    answer = rig.pull(TOPIC, 0, offset, **header)
    return [each for record in decode_records(answer.body) for each in expanded(record)] if answer.code == 0 else []


async def test_sends_and_pulls_of_single_messages_and_batches(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await make_topic(rig)
        single = rig.send(TOPIC, b"m0", properties(UNIQ_KEY="U0", TAGS="a"))
        inner = send_batch(rig, [b"m1", b"m2", b"m3"], properties(UNIQ_KEY="U1", WAIT="true"))
        old = send_batch(rig, [b"m4", b"m5"], properties(WAIT="true"))
        last = rig.send(TOPIC, b"m6")
        answers = [answer.ext or {} for answer in (single, inner, old, last)]
        assert [answer.code for answer in (single, inner, old, last)] == [0, 0, 0, 0]
        # then the offset of a batch is that of its first message, and its id says that it is one record
        assert [answer["queueOffset"] for answer in answers] == ["0", "1", "4", "6"]
        assert [answer.get("batchUniqId") for answer in answers] == [None, "U1", None, None]
        assert answers[1]["transactionId"] == "U1"
        assert [answer["msgId"].count(",") for answer in answers] == [0, 0, 1, 0]
        # and it is stored with what the reference gives it
        record = records(rig)[1]
        assert record.sys_flag == INNER
        assert record.properties == {
            "UNIQ_KEY": "U1",
            "WAIT": "true",
            "INNER_NUM": "3",
            "INNER_BASE": "1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        # and pulls give all of them, whole batches where they begin inside of one
        assert pulled(rig) == [(number, b"m%d" % number) for number in range(7)]
        assert [offset for offset, _ in pulled(rig, 2)] == [1, 2, 3, 4, 5, 6]
        inside = rig.pull(TOPIC, 0, 2, maxMsgNums="1").ext or {}
        assert (inside["nextBeginOffset"], inside["minOffset"], inside["maxOffset"]) == ("4", "0", "7")
        # and counts are of messages
        assert rig.broker.stats.topic(TOPIC) is not None
        offsets = rig.ask(30, {"topic": TOPIC, "queueId": "0"}).ext or {}
        assert offsets["offset"] == "7"
        entries = rig.broker.store.queue_offset_at(TOPIC, 0, record.physical_offset)
        assert entries == 1


async def test_a_batch_wakes_pulls_whatever_tags_they_want(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await make_topic(rig)
        header = pull_header(TOPIC, subscription="b", sysFlag="6", suspendTimeoutMillis="5000")
        waiting = rig.tell(11, header)
        assert waiting.opaque not in rig.peer.replies
        assert send_batch(rig, [b"a", b"b"], properties(UNIQ_KEY="U1")).code == 0
        answer = await rig.wait(waiting)
        assert answer.code == 0
        assert [body for record in decode_records(answer.body) for _, body in expanded(record)] == [b"a", b"b"]


async def test_large_batches_are_one_record_too(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await make_topic(rig)
        body = encode_batch([(0, b"%d" % number, b"TAGS\x01%d\x02" % (10**9 + number)) for number in range(3_000)])
        assert len(body) > 64 * 1024
        large = rig.tell(320, {**send_header(TOPIC, properties(UNIQ_KEY="U1")), "m": "true"}, body)
        answer = await rig.wait(large)
        assert (answer.code, (answer.ext or {}).get("batchUniqId")) == (0, "U1")
        assert rig.broker.store.max_queue_offset(TOPIC, 0) == 3_000
        assert len(records(rig)) == 1
        # and one that is more than a unit can count is refused, as is one that is broken in the middle
        too_many = encode_batch([(0, b"", b"")] * 32_768)
        for wrong in (too_many, body[:-1]):
            header = {**send_header(TOPIC, properties(UNIQ_KEY="U2")), "m": "true"}
            assert (await rig.wait(rig.tell(320, header, wrong))).code == 13
        assert rig.broker.store.max_queue_offset(TOPIC, 0) == 3_000


@pytest.mark.parametrize(
    ("topic", "sys_flag", "text"),
    [
        ("Simple", INNER, properties(UNIQ_KEY="U", INNER_NUM="1")),
        ("Simple", INNER, properties(UNIQ_KEY="U")),
        ("Simple", 0, properties(UNIQ_KEY="U", INNER_NUM="1")),
        ("Unknown", INNER, properties(UNIQ_KEY="U", INNER_NUM="1")),
        (TOPIC, 0, properties(UNIQ_KEY="U", INNER_NUM="1")),
        (TOPIC, INNER, properties(UNIQ_KEY="U")),
        (TOPIC, INNER, properties(UNIQ_KEY="U", INNER_NUM="2")),
        (TOPIC, INNER, properties(UNIQ_KEY="U", INNER_NUM="1", DELAY="3")),
        (TOPIC, INNER, properties(UNIQ_KEY="U", INNER_NUM="1", TIMER_DELAY_SEC="3")),
        (TOPIC, INNER, properties(UNIQ_KEY="U", INNER_NUM="1", TRAN_MSG="true")),
    ],
)
async def test_what_says_that_it_is_several_messages_must_be(
    topic: str, sys_flag: int, text: str, tmp_path: Path
) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await make_topic(rig)
        assert rig.send("Simple", b"before").code == 0
        body = encode_batch([(0, b"one", b"")])
        refused = rig.ask(310, send_header(topic, text, f=str(sys_flag)), body)
        assert refused.code == 13, refused.remark
        # and where it is all true, it is stored
        taken = rig.ask(310, send_header(TOPIC, properties(UNIQ_KEY="U", INNER_NUM="1"), f=str(INNER)), body)
        assert taken.code == 0, taken.remark
        assert pulled(rig) == [(0, b"one")]


async def test_delayed_and_transactional_messages_come_to_batch_queues(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"messageDelayLevel": "1s"}) as rig:
        await make_topic(rig)
        assert send_batch(rig, [b"a", b"b"], properties(UNIQ_KEY="U1", DELAY="1")).code == 13
        half = rig.send(TOPIC, b"half", properties(UNIQ_KEY="U2", TRAN_MSG="true", PGROUP="p"))
        told = half.ext or {}
        decision = {
            "topic": TOPIC,
            "producerGroup": "p",
            "tranStateTableOffset": told["queueOffset"],
            "commitLogOffset": str(int(told["msgId"][-16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "U2",
            "transactionId": "U2",
        }
        assert (await rig.wait(rig.tell(37, decision))).code == 0
        assert pulled(rig) == [(0, b"half")]


async def test_one_message_of_a_batch_cannot_be_given_back_and_none_be_popped(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await make_topic(rig)
        inner = send_batch(rig, [b"a", b"b"], properties(UNIQ_KEY="U1"))
        physical = str(int((inner.ext or {})["msgId"][-16:], 16))
        rig.pull(TOPIC)
        back = rig.ask(36, {"offset": physical, "group": "cg", "delayLevel": "0", "originTopic": TOPIC})
        assert back.code == 1
        assert "is one of a batch" in (back.remark or "")
        pop = {
            "consumerGroup": "cg",
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": "8",
            "invisibleTime": "10000",
            "pollTime": "0",
            "bornTime": "0",
            "initMode": "0",
        }
        popped = await rig.wait(rig.tell(200050, pop))
        assert (popped.code, "pull from it" in (popped.remark or "")) == (16, True)


@pytest.mark.parametrize("stored_before", [False, True])
async def test_a_row_from_elsewhere_or_of_the_file_decides(stored_before: bool, tmp_path: Path) -> None:
    row = TopicConfig(TOPIC, 4, 4, attributes=BATCH)
    async with open_rig(str(tmp_path)) as rig:
        if stored_before:
            assert rig.send(TOPIC, b"before").code == 0
        # when the row comes from another replica
        rig.broker.topics.take([row], overwrite=True)
        assert send_batch(rig, [b"a", b"b"], properties(UNIQ_KEY="U1")).code == 0
        await rig.broker.persistence.save("topics")
    # and when it is in the file at the start
    async with open_rig(str(tmp_path)) as rig:
        assert rig.send(TOPIC, b"after").code == 0
        assert not (tmp_path / "consumequeue" / TOPIC).exists()
        bodies = [b"before"] * stored_before + [b"a", b"b", b"after"]
        assert pulled(rig) == list(enumerate(bodies))
        # and a topic keeps its kind
        header = {"topic": TOPIC, "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        change = {"topicFilterType": "SINGLE_TAG", "attributes": "+queue.type=SimpleCQ"}
        refused = await rig.wait(rig.tell(17, header | change))
        assert (refused.code, "unchangeable attribute" in (refused.remark or "")) == (1, True)


async def test_a_topic_with_batch_queues_cannot_be_mapped_nor_a_mapped_one_get_them(tmp_path: Path) -> None:
    """The messages of a batch have the offsets of its physical queue, which clients would take for logical ones."""
    async with open_rig(str(tmp_path)) as rig:

        async def mapped(topic: str) -> Command:
            name = rig.broker.identity.name
            item = {"gen": 0, "queueId": 0, "bname": name, "logicOffset": 0, "startOffset": 0, "endOffset": -1}
            detail = {"topic": topic, "scope": "__global__", "totalQueues": 1, "bname": name, "epoch": 1}
            header = {"topic": topic, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "order": "false"}
            more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "force": "false"}
            body = dumps({**detail, "hostedQueues": {"0": [{**item, "timeOfStart": -1, "timeOfEnd": -1}]}})
            return await rig.wait(rig.tell(513, header | more, body))

        await make_topic(rig)
        answer = await mapped(TOPIC)
        assert (1, f"topic[{TOPIC}] has batch queues (queue.type=BatchCQ): its queues cannot be mapped") == (
            answer.code,
            answer.remark,
        )
        assert {} == dict(rig.broker.queue_mappings.table)
        assert 2 == rig.broker.topics.rows[TOPIC].read_queue_nums
        # the other way round
        assert 0 == (await mapped("Mapped")).code
        header = {"topic": "Mapped", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "order": "false"}
        more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
        answer = await rig.wait(rig.tell(17, header | more | {"attributes": "+queue.type=BatchCQ"}))
        assert 0 != answer.code
        assert {} == rig.broker.topics.rows["Mapped"].attributes
