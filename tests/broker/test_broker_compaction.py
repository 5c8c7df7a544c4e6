"""Compaction topics: what senders, consumers and operators see of a broker that serves them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from broker_rig import Rig, open_rig, properties

from understudy.format.batch import encode_batch
from understudy.format.record import decode_records
from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.remoting.command import Command
from understudy.runtime.world import real_world

TOPIC = "Compacted"
KEYS = {"compactionCqMappedFileSize": "460", "compactionMappedFileSize": "5000"}


async def make_topic(rig: Rig, name: str = TOPIC, attributes: str = "+cleanup.policy=COMPACTION") -> Command:
    header = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    more = {"defaultTopic": "TBW102", "topicSysFlag": "0", "order": "false", "attributes": attributes}
    return await rig.wait(rig.tell(17, header | more))


def send(rig: Rig, key: str, body: bytes) -> Command:
    return rig.send(TOPIC, body, properties(KEYS=key))


def read(rig: Rig, offset: int = 0) -> dict[int, bytes]:
    """Return what a consumer gets by pulls, by queue offset."""
    found: dict[int, bytes] = {}
    while (answer := rig.pull(TOPIC, 0, offset, sysFlag="4")).code == 0:
        found |= {record.queue_offset: record.body for record in decode_records(answer.body)}
        offset = int((answer.ext or {})["nextBeginOffset"])
    return found


async def compact(rig: Rig) -> None:
    await rig.broker.store.flush()
    await rig.broker.store._compaction.copy()
    await rig.broker.store._compaction.compact()


async def compacted(rig: Rig) -> None:
    """Make a compacted topic of three keys, each of which was sent twenty times."""
    await make_topic(rig)
    for number in range(60):
        send(rig, f"k{number % 3}", b"v%d" % number)
    await compact(rig)


async def test_the_last_message_of_each_key_is_kept(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        assert (await make_topic(rig)).code == 0
        for number in range(60):
            assert send(rig, f"k{number % 3}", b"v%d" % number).code == 0
        assert len(read(rig)) == 60
        await compact(rig)
        found = read(rig)
        assert len(found) < 20
        assert {57, 58, 59} <= set(found)
        # GET_MIN_OFFSET says where the first of them is, GET_MAX_OFFSET what it always says
        queue = {"topic": TOPIC, "queueId": "0"}
        assert rig.ask(31, queue).ext == {"offset": str(min(found))}
        assert (rig.ask(30, queue).ext or {})["offset"] == "60"
        # and so does the answer to a pull
        assert (rig.pull(TOPIC, 0, 0).ext or {})["minOffset"] == str(min(found))
        # a reset by time finds the first message that is left
        assert rig.ask(29, {**queue, "timestamp": "0"}).ext == {"offset": str(min(found))}
    async with open_rig(str(tmp_path), KEYS) as rig:
        assert read(rig) == found
        assert send(rig, "k1", b"more").code == 0
        assert read(rig)[60] == b"more"


@pytest.mark.parametrize("text", ["", properties(TAGS="a"), properties(KEYS=" ")])
async def test_a_send_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig)
        answer = rig.send(TOPIC, b"x", text)
        assert (answer.code, answer.remark) == (13, "Required message key is missing")
        assert rig.broker.store.max_queue_offset(TOPIC, 0) == 0


async def test_a_batch_needs_a_key_for_each_message(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig)
        header = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
        more = {"j": "0", "k": "false", "m": "true", "n": "broker-a"}
        keyed = [(0, b"a", properties(KEYS="k").encode()), (0, b"b", properties(KEYS="l").encode())]
        assert rig.ask(320, header | more, encode_batch(keyed)).code == 0
        answer = rig.ask(320, header | more, encode_batch([*keyed, (0, b"c", b"")]))
        assert (answer.code, answer.remark) == (13, "Required message key is missing")
        assert rig.ask(320, header | more, b"broken").code == 13
        assert read(rig) == {0: b"a", 1: b"b"}


async def test_the_policy_is_chosen_at_creation(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig, "Plain", "")
        answer = await make_topic(rig, "Plain")
        assert answer.code == 1
        assert "attempt to update an unchangeable attribute. key: cleanup.policy" in (answer.remark or "")
        assert rig.broker.store.compacted_topics == set()


async def test_a_parked_pull_is_answered_at_once(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig)
        for number in range(30):
            send(rig, "k", b"v%d" % number)
        await compact(rig)
        parked = rig.tell(11, {**_header(30), "sysFlag": "6", "suspendTimeoutMillis": "20000"})
        send(rig, "k", b"new")
        answer = await rig.wait(parked)
        assert answer.code == 0
        assert [record.body for record in decode_records(answer.body)] == [b"new"]


async def test_pops_get_what_is_left_and_it_can_be_acknowledged(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await compacted(rig)
        left = sorted(read(rig))
        header = {"consumerGroup": "pg", "topic": TOPIC, "queueId": "0", "maxMsgNums": "32", "invisibleTime": "60000"}
        more = {"pollTime": "0", "bornTime": "0", "initMode": "0", "exp": "*", "expType": "TAG", "order": "false"}
        answer = await rig.wait(rig.tell(200050, header | more))
        assert answer.code == 0, answer.remark
        assert [record.queue_offset for record in decode_records(answer.body)] == left


async def test_without_it_such_a_topic_is_an_ordinary_one(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {**KEYS, "enableCompaction": "false"}) as rig:
        await make_topic(rig)
        for number in range(40):
            send(rig, "k", b"v%d" % number)
        await compact(rig)
        assert len(read(rig)) == 40
        assert not (tmp_path / "compaction" / "compactionLog").exists()


async def test_a_deleted_topic_takes_its_compaction_log_along(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig)
        for number in range(40):
            send(rig, f"k{number}", b"v%d" % number)
        await compact(rig)
        assert (tmp_path / "compaction" / "compactionLog" / TOPIC / "0").is_dir()
        assert (await rig.wait(rig.tell(215, {"topic": TOPIC}))).code == 0
        await rig.broker.store._compaction.copy()
        assert not (tmp_path / "compaction" / "compactionLog" / TOPIC).exists()
        assert not (tmp_path / "compaction" / "compactionCq" / TOPIC).exists()
        # and one of the same name begins anew
        await make_topic(rig)
        send(rig, "k", b"new")
        assert read(rig) == {0: b"new"}


async def test_a_pull_gets_what_is_left_of_messages_that_the_log_has_not_any_more(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {**KEYS, "mappedFileSizeCommitLog": "8192"}) as rig:
        # given messages of which the commit log has the newest only
        await make_topic(rig)
        for number in range(120):
            send(rig, f"k{number}" if number < 10 else f"m{number % 2}", b"v%d" % number)
        await compact(rig)
        left = read(rig)
        await rig.broker.store._retention.delete_files(1 << 60, True)
        in_log = rig.broker.store._lookup.min_queue_offset(TOPIC, 0)
        assert 10 < in_log < 120
        # then a pull from the beginning, and from in between, gives all that is left, each message once
        assert set(range(10)) | {118, 119} <= set(left)
        assert left == read(rig)
        assert {offset: left[offset] for offset in left if offset >= 7} == read(rig, 7)
        answer = rig.pull(TOPIC, 0, 0, sysFlag="4")
        assert (0, "0", "120") == (answer.code, (answer.ext or {})["minOffset"], (answer.ext or {})["maxOffset"])
        # and so after a restart
        await rig.broker.store.close()
    async with open_rig(str(tmp_path), {**KEYS, "mappedFileSizeCommitLog": "8192"}) as rig:
        assert left == read(rig)


async def test_what_was_compacted_outlives_the_loss_of_the_table_of_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given a topic of which only some messages are left, and a table of topics that is lost with its copy
    async with open_rig(str(tmp_path), KEYS) as rig:
        await compacted(rig)
        left = read(rig)
    assert "compaction logs" not in caplog.text
    (tmp_path / "config" / "topics.json").write_text("{}")
    (tmp_path / "config" / "topics.json.bak").unlink(missing_ok=True)
    folder = tmp_path / "compaction"
    before = {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()}

    # when the operator goes on without it, and the topic is an ordinary one for a while
    async with open_rig(str(tmp_path), KEYS) as rig:
        assert 1 == caplog.text.count("these topics have compaction logs")
        await make_topic(rig, attributes="")
        assert list(range(60)) == sorted(read(rig))  # each message of the log once
        await compact(rig)
        assert before == {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()}

    # then it is what it was as soon as it is made as it was
    (tmp_path / "config" / "topics.json").write_text("{}")
    (tmp_path / "config" / "topics.json.bak").unlink(missing_ok=True)
    async with open_rig(str(tmp_path), KEYS) as rig:
        await make_topic(rig)
        assert left == read(rig)


async def test_a_failed_message_comes_again_wherever_it_was_read(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await compacted(rig)
        send(rig, "k0", b"v60")
        records = decode_records(rig.pull(TOPIC, 0, 0).body) + decode_records(rig.pull(TOPIC, 0, 60).body)
        assert records[0].queue_offset > 40
        assert records[-1].body == b"v60"
        for record in (records[0], records[-1]):
            header = {"offset": str(record.physical_offset), "group": "cg", "delayLevel": "-1", "originTopic": TOPIC}
            assert rig.ask(36, {**header, "originMsgId": "another"}).code == 1
            assert rig.ask(36, header).code == 1
            assert rig.ask(36, {**header, "originMsgId": record.properties["UNIQ_KEY"]}).code == 0
        assert [record.body for record in rig.stored("%DLQ%cg")] == [records[0].body, b"v60"]


def _header(offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "cg",
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "commitOffset": "0",
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
    }


async def test_a_file_of_its_log_can_be_printed_while_the_broker_runs(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), KEYS) as rig:
        await compacted(rig)
        printed = []
        for file in sorted((tmp_path / "compaction" / "compactionLog" / TOPIC / "0").glob("0*")):
            command, stream = load_commands()["dumpCompactionLog"], io.StringIO()
            await run_command(
                command, parse(command.all_options, ["-f", str(file)]), "", Output(False, stream), real_world()
            )
            printed += re.findall(r"queueOffset=(\d+).* properties={KEYS=k\d", stream.getvalue())
        assert [int(each) for each in printed] == sorted(read(rig))
