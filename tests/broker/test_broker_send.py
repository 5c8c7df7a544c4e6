"""Sends: what is stored, what is answered, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_rig import Peer, code_and_remark, open_rig, properties, pull_header, send_header

from understudy.broker.topics import TopicConfig
from understudy.format.batch import encode_batch
from understudy.format.properties import parse_properties
from understudy.runtime.clock import SystemClock

REGION = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
UNIQUE = "FD000000000000000000000000000002444C4E0E2F2A6884C5670000"


class SettableClock(SystemClock):
    """Wall time moves when the test says so."""

    now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.mark.covers("IT-01", "IT-22")
async def test_answer_and_record_of_an_ordinary_send(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        text = properties(KEYS="k1", UNIQ_KEY=UNIQUE, WAIT="true", TAGS="TagA")

        answer = rig.send("TopicTest", b"hello-0", text)

        assert answer.code == 0 and answer.remark is None
        assert answer.ext == {  # captured from 5.4.0
            **REGION,
            "queueId": "0",
            "transactionId": UNIQUE,
            "msgId": "7F00000100004E840000000000000000",
            "queueOffset": "0",
        }
        (record,) = rig.stored("TopicTest")
        assert record.body == b"hello-0"
        assert record.size_bytes == 263  # captured from 5.4.0 for the same message
        assert record.properties == {
            "KEYS": "k1",
            "UNIQ_KEY": UNIQUE,
            "WAIT": "true",
            "TAGS": "TagA",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        assert record.born_ms == 1795245197902
        assert record.message_id == answer.ext["msgId"]


@pytest.mark.covers("IT-22")
async def test_header_spelled_out(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        header = {
            "producerGroup": "p",
            "topic": "BenchmarkTest",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "5",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "-5",
            "properties": properties(TAGS="TagA"),
            "reconsumeTimes": "3",
            "unitMode": "false",
            "batch": "false",
        }
        answer = rig.ask(10, header, b"code10")
        assert answer.code == 0
        (record,) = rig.stored("BenchmarkTest", 5)
        assert (record.flag, record.reconsume_times, record.born_ms) == (-5, 3, 1700000000000)
        assert record.properties["UNIQ_KEY"] == (answer.ext or {})["transactionId"]


async def test_properties_are_completed_and_cleaned(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T", b"no end mark", "A\x01b")
        rig.send("T", b"lies", properties(CLUSTER="x", MSG_REGION="y", TRACE_ON="z", POP_CK="c", UNIQ_KEY="u"))
        rig.send("T", b"look-alikes", properties(MY_UNIQ_KEY="1", XTAGS="no", TAGS="yes", UNIQ_KEY="u2"))
        first, second, third = rig.stored("T")
        assert first.properties["A"] == "b" and len(first.properties["UNIQ_KEY"]) == 32
        assert second.properties == {
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "UNIQ_KEY": "u",
        }
        assert third.properties["UNIQ_KEY"] == "u2"
        found = rig.pull("T", subscription="yes")
        assert found.code == 0 and b"look-alikes" in found.body


async def test_negative_queue_means_any_write_queue(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        chosen = {(rig.send("T", queue_id=-1).ext or {})["queueId"] for _ in range(100)}
        assert chosen == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [  # captured from 5.4.0
        (
            "bad topic!",
            29,
            "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("T" * 128, 29, f"The specified topic: {'T' * 128}, is longer than topic max length: 127"),
        ("SCHEDULE_TOPIC_XXXX", 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 16, "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is forbidden."),
    ],
)
@pytest.mark.covers("IT-12")
async def test_refused_topics(tmp_path: Path, topic: str, code: int, remark: str) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer = rig.send(topic)
        assert code_and_remark(answer) == (code, remark)
        assert answer.ext == REGION


@pytest.mark.covers("IT-12")
async def test_other_refusals_in_the_words_of_the_reference(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("PopRaw", 2, 2), TopicConfig("Ordered", 1, 1, order=True)])
        unknown = rig.send("AutoByRaw", header={"c": "BenchmarkTest"})
        assert code_and_remark(unknown) == (
            17,
            "topic[AutoByRaw] not exist, apply first please!"
            "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
        )
        queue = rig.send("PopRaw", queue_id=9)
        assert code_and_remark(queue) == (
            29,
            "request queueId[9] is illegal, TopicConfig [topicName=PopRaw, readQueueNums=2, writeQueueNums=2, "
            "perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}] "
            "Producer: 127.0.0.1:46322",
        )
        illegal = (
            "the message is illegal, maybe msg body or properties length not matched. "
            "msg body length limit 4194304B, msg properties length limit 32KB."
        )
        assert code_and_remark(rig.send("PopRaw", b"x" * 4_194_305)) == (13, illegal)
        assert code_and_remark(rig.send("PopRaw", properties=properties(big="p" * 40_000))) == (13, illegal)
        empty = rig.send("PopRaw", b"")
        assert empty.code == 1 and empty.ext is None
        rig.broker.options.broker.broker_permission = 4
        assert code_and_remark(rig.send("Ordered")) == (16, "the broker[127.0.0.1] sending message is forbidden")
        assert rig.send("PopRaw").code == 0
        assert rig.stored("PopRaw")[0].body == b"x"


async def test_what_is_not_served_is_refused_clearly(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        assert rig.send("T").code == 0
        assert rig.ask(5001).code == 3
        assert len(rig.stored("T")) == 1


async def test_delayed_message_goes_to_the_schedule_topic(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer = rig.send("T", properties=properties(DELAY="99", UNIQ_KEY="u"), queue_id=3)
        assert (answer.ext or {})["queueId"] == "3"
        (record,) = rig.stored("SCHEDULE_TOPIC_XXXX", 17)
        assert {name: record.properties[name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID")} == {
            "DELAY": "18",
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
        }


@pytest.mark.covers("SC-04")
async def test_delayed_message_arrives_after_its_wait_with_its_properties(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"messageDelayLevel": "1s 2s"}) as rig:
        started = trio.current_time()
        rig.send("T", b"later", properties(DELAY="1", TAGS="TagD"), queue_id=2)
        command = rig.tell(11, pull_header("T", 2, sysFlag="6", suspendTimeoutMillis="15000"))
        answer = await rig.wait(command)
        if answer.code != 0:  # a queue without messages answers NO_MESSAGE_IN_QUEUE at offset 0: held all the same
            pytest.fail(f"{answer.code} {answer.remark}")
        assert 0.9 <= trio.current_time() - started
        (record,) = rig.stored("T", 2)
        assert record.body == b"later"
        assert record.properties["DELAY"] == "1" and record.properties["REAL_TOPIC"] == "T"
        assert rig.broker.schedule_progress.offsets == {1: 1}


@pytest.mark.covers("IT-12")
async def test_batch(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        body = encode_batch(
            [(number, b"batch-%d" % number, f"TAGS\x01Tag{number}\x02".encode()) for number in range(3)]
        )
        answer = rig.ask(320, send_header("T", properties(UNIQ_KEY="u"), 1, m="true"), body)
        assert answer.code == 0
        ext = answer.ext or {}
        records = rig.stored("T", 1)
        assert ext["msgId"] == ",".join(record.message_id for record in records)
        assert (ext["queueOffset"], ext["transactionId"], ext["queueId"]) == ("0", "u", "1")
        assert [(record.flag, record.body, record.properties) for record in records] == [
            (number, b"batch-%d" % number, {"TAGS": f"Tag{number}"}) for number in range(3)
        ]


async def test_batch_refusals(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("%RETRY%brandnew")
        retry = rig.ask(320, send_header("%RETRY%brandnew", m="true"), b"x")
        assert code_and_remark(retry) == (13, "batch request does not support retry group %RETRY%brandnew")
        body = encode_batch([(0, b"x", b"")])
        assert rig.ask(320, send_header("T", properties(DELAY="3"), m="true"), body).code == 13
        assert rig.ask(320, send_header("T", m="true", f="4"), body).code == 13
        assert rig.ask(320, send_header("T", m="true"), body[:-1]).code == 13
        assert rig.ask(320, send_header("T", m="true"), b"\xff" * 50).code == 13
        assert rig.stored("T") == []


async def test_one_way_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.tell(310, send_header("T"), b"one-way", flag=2)
        rig.tell(310, send_header("bad topic!"), b"one-way", flag=2)
        assert rig.peer.replies == {}
        assert [record.body for record in rig.stored("T")] == [b"one-way"]


@pytest.mark.covers("IT-22")
async def test_synchronous_flush_answers_after_the_flush_in_order(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"flushDiskType": "SYNC_FLUSH"}) as rig:
        rig.broker.topics.update([TopicConfig("T", 1, 1)])
        other = Peer(rig.nursery, 50000)
        sends = [rig.tell(310, send_header("T"), b"%d" % number) for number in range(20)]
        foreign = rig.tell(310, send_header("T"), b"other", peer=other)
        not_waiting = rig.ask(310, send_header("T", properties(WAIT="false")), b"no wait")
        assert not_waiting.code == 0
        assert rig.peer.replies == {}
        answers = [await rig.wait(command) for command in sends]
        assert [answer.code for answer in answers] == [0] * 20
        assert (await rig.wait(foreign, other)).code == 0
        last = int((answers[-1].ext or {})["msgId"][16:], 16)
        assert rig.broker.store.flushed_offset > last


async def test_only_the_property_itself_says_that_nobody_waits_for_copies(tmp_path: Path) -> None:
    keys = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2"}
    async with open_rig(str(tmp_path), keys) as rig:
        assert 0 == rig.send("T", b"x", properties(UNIQ_KEY=UNIQUE, WAIT="false")).code
        assert 0 == rig.send("T", b"x", properties(A="b", WAIT="false")).code
        rig.tell(310, send_header("T", properties(UNIQ_KEY=UNIQUE, MYWAIT="false")), b"x")
        assert 1 == len(rig.broker.acknowledgements) and not rig.peer.replies


@pytest.mark.parametrize("word", ["true", "True", "TRUE"])
async def test_who_wants_to_wait_waits_however_it_is_spelled(tmp_path: Path, word: str) -> None:
    async with open_rig(str(tmp_path), {"flushDiskType": "SYNC_FLUSH"}) as rig:
        for text in (properties(UNIQ_KEY=UNIQUE, WAIT=word), properties(WAIT=word)):
            rig.tell(310, send_header("T", text), b"x")
        assert 2 == len(rig.broker.acknowledgements) and not rig.peer.replies


async def test_more_waiting_sends_than_allowed_are_busy(tmp_path: Path) -> None:
    keys = {"flushDiskType": "SYNC_FLUSH", "sendThreadPoolQueueCapacity": "2"}
    async with open_rig(str(tmp_path), keys) as rig:
        commands = [rig.tell(310, send_header("T"), b"x") for _ in range(3)]
        answers = [await rig.wait(command) for command in commands]
        assert [answer.code for answer in answers] == [0, 0, 2]
        assert (answers[2].remark or "").startswith("[OVERLOAD]system busy, start flow control for a while")
        assert len(rig.stored("T")) == 2


@pytest.mark.covers("R324")
@pytest.mark.parametrize(("keys", "codes"), [({}, [0, 0, 2, 0]), ({"brokerFastFailureEnable": "false"}, [0, 0, 0, 0])])
async def test_send_that_waited_too_long_behind_others_is_refused(
    tmp_path: Path, keys: dict[str, str], codes: list[int]
) -> None:
    async with open_rig(str(tmp_path), keys, clock=(clock := SettableClock())) as rig:
        answers = []
        for _ in range(2):  # one receive that took too long may be a pause of the machine, the second is overload
            answers = []
            for wait_ms in (0, 150, 60):
                clock.now_ms += wait_ms
                answers.append(rig.send("T", more_follow=wait_ms != 60))
        answers.append(rig.send("T"))
        assert [answer.code for answer in answers] == codes
        assert len(rig.stored("T")) == (6 if codes[2] else 7)
        if codes[2]:
            assert answers[2].remark == (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 210ms, limit: 200ms"
            )


async def test_slave_takes_no_messages(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"brokerRole": "SLAVE", "brokerId": "1"}) as rig:
        answer = rig.send("T")
        assert answer.code == 2
        assert (answer.remark or "").startswith("[REJECTREQUEST]system busy, start flow control for a while")


async def test_not_yet_open_for_sends(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"startAcceptSendRequestTimeStamp": "99999999999999"}) as rig:
        answer = rig.send("T")
        assert answer.code == 1 and "unable to service" in (answer.remark or "")


def test_properties_helper_is_what_clients_write() -> None:
    assert parse_properties(properties(A="1", B="2")) == {"A": "1", "B": "2"}


async def test_the_sends_of_one_receive_are_timed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(str(tmp_path)) as rig:
        counted: list[int] = []
        monkeypatch.setattr(rig.broker.stats, "put_took", lambda elapsed_ms, requests: counted.append(requests))
        # given two sends; when the receive that brought them is done, and one that brought none
        rig.send("TopicTest", b"one", more_follow=True)
        rig.send("TopicTest", b"two")
        rig.broker.send.end_receive()
        # then both were counted once
        assert [2] == counted
