"""Half messages: how they are kept, what a producer's decision does, and what becomes of those that nobody decides."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_rig import code_and_remark, properties
from test_broker_captured import frame, told
from transaction_rig import (
    COMMIT,
    FOLDER,
    GIVEN_UP,
    GROUP,
    HALF,
    OPS,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    decision,
    killed,
    open_producer,
)
from trio.testing import MockClock

from understudy.format.record import decode_record
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

DATA = Path(__file__).parents[1] / "data"
EXCHANGE: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "broker" / "transaction.json.gz").read_bytes()))
GOLDEN: dict[str, Any] = json.loads(gzip.decompress((DATA / "store" / "transaction.json.gz").read_bytes()))


@pytest.mark.covers("TX-06", "TX-09", "R240")
async def test_a_captured_producer_gets_the_same_answers_and_is_asked_the_same(
    disk: SimDisk, autojump_clock: MockClock
) -> None:
    born_ms = int((frame(EXCHANGE[0]["frame"]).ext or {})["g"])
    async with open_producer(disk, clock=VirtualClock(born_ms)) as producer:
        rig, began = producer.rig, trio.current_time()
        rig.peer.peer, rig.peer.address = ("127.0.0.1", 52736), "127.0.0.1:52736"
        for row in EXCHANGE:
            await trio.sleep_until(began + row["t"])
            command = frame(row["frame"])
            if row["from"] == "client":
                if command.code == 37:  # where the record begins is another place in another log
                    ext = command.ext or {}
                    half = rig.stored(HALF)[int(ext["tranStateTableOffset"])]
                    ext["commitLogOffset"] = str(half.physical_offset)
                rig.tell(command.code, command.ext, command.body, flag=command.flag, opaque=command.opaque)
            elif row["kind"] == "response":
                answer = rig.peer.replies.pop(command.opaque or 0)
                assert told(answer, frozenset({"msgId"})) == told(command, frozenset({"msgId"})), row
            else:
                asked = rig.peer.received.pop(0)
                moved = frozenset({"commitLogOffset", "offsetMsgId"})
                assert told(asked, moved) == told(command, moved), row
                assert asked.code == command.code == 39
                expected, found = decode_record(command.body), decode_record(asked.body)
                assert found.properties == expected.properties
                for name in ("topic", "queue_id", "queue_offset", "body", "born_ms", "born_host", "sys_flag", "flag"):
                    assert getattr(found, name) == getattr(expected, name), name
                copy = rig.stored(HALF)[found.queue_offset]
                assert (asked.ext or {})["commitLogOffset"] == str(copy.physical_offset) == str(found.physical_offset)
                assert (asked.ext or {})["offsetMsgId"] == copy.message_id
        assert not rig.peer.received
        assert [each.body for queue in range(4) for each in rig.stored("TopicTx", queue)] == [b"tx later", b"tx commit"]


@pytest.mark.covers("TX-01", "TX-05", "CT-21")
async def test_the_captured_store_comes_about_again(disk: SimDisk, autojump_clock: MockClock) -> None:
    # Given the sends of the captured run, in its times
    rows = GOLDEN["messages"]
    first_ms = rows[0]["bornTimestamp"]
    keys = {name: GOLDEN["config"][name] for name in GOLDEN["config"] if name.startswith("transaction")}
    async with open_producer(disk, keys, VirtualClock(first_ms - 2_000)) as producer:
        rig = producer.rig
        rig.broker.topics.ensure("OrderTopic", 4)
        await trio.sleep(2)
        copies = ("CLUSTER", "MSG_REGION", "TRACE_ON", "REAL_TOPIC", "REAL_QID", "__transactionId__")
        for number, row in enumerate(each for each in rows if each["topic"] == HALF and each["queueOffset"] < 12):
            pairs = {name: text for name, text in row["properties"].items() if name not in copies}
            header = {"f": "4", "g": str(row["bornTimestamp"])}
            sent = rig.send("OrderTopic", row["bodyText"].encode(), properties(**pairs), number % 4, header=header)
            assert (sent.ext or {})["queueOffset"] == str(number)
            choice = {"COMMIT_MESSAGE": COMMIT, "ROLLBACK_MESSAGE": ROLLBACK, "UNKNOW": UNKNOWN}[
                row["bodyText"].rpartition(" ")[2]
            ]
            rig.tell(37, decision(rig.stored(HALF)[-1], choice, producerGroup="p_trans"), flag=2)
        # When nobody decides about the others
        await trio.sleep(60)

        # Then the log has the same messages in the same queues
        def told_of(queue: Any) -> list[Any]:
            return [
                (each["queueOffset"], each["properties"], each["bodyText"], each["sysFlag"], each["tagsHash"])
                for each in rows
                if (each["topic"], each["queueId"]) == queue
            ]

        for queue in {(each["topic"], each["queueId"]) for each in rows}:
            found = [
                (each.queue_offset, each.properties, each.body.decode(), each.sys_flag) for each in rig.stored(*queue)
            ]
            assert found == [row[:4] for row in told_of(queue)], queue
        assert rig.stored(OPS)[0].properties_text == "WAIT\x01true\x02TAGS\x01d\x02"
        assert [each.prepared_transaction_offset for each in rig.stored("OrderTopic", 1)] == [
            rig.stored(HALF)[9].physical_offset
        ]
        # and the progress is the captured one
        assert {key: dict(queues) for key, queues in rig.broker.offsets.committed.items()} == {
            key: {int(queue): offset for queue, offset in queues.items()}
            for key, queues in GOLDEN["configFiles"]["consumerOffset.json"]["offsetTable"].items()
        }


class TestDecisions:
    @pytest.mark.covers("TX-01", "TX-09")
    async def test_the_first_one_counts(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            first, second = producer.prepare("A"), producer.prepare("B")
            for choice in (COMMIT, COMMIT, ROLLBACK, COMMIT):
                assert code_and_remark(producer.decide(first, choice)) == (0, None)
            for choice in (ROLLBACK, COMMIT):
                assert code_and_remark(producer.decide(second, choice)) == (0, None)
            await trio.sleep(100)
            assert producer.decide(second, COMMIT, fromTransactionCheck="true").code == 0
            assert producer.delivered() == ["A"]
            assert producer.checks() == []
            counts = producer.rig.broker.transactions.counts
            assert (counts.open[TOPIC], counts.commits[TOPIC], counts.rollbacks[TOPIC]) == (0, 1, 1)

    async def test_a_committed_message_is_what_was_sent(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            half = producer.prepare("A", 3, b"body", KEYS="k", TAGS="t", mine="x")
            producer.decide(half, COMMIT)
            (record,) = producer.rig.stored(TOPIC, 3)
            assert (record.body, record.sys_flag, record.born_ms) == (b"body", 8, half.born_ms)
            assert record.properties == {
                "KEYS": "k",
                "TAGS": "t",
                "mine": "x",
                "TRAN_MSG": "true",
                "PGROUP": GROUP,
                "UNIQ_KEY": "A",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "CLUSTER": "DefaultCluster",
                "__transactionId__": "A",
            }
            found = producer.rig.pull(TOPIC, 3, subscription="t")
            assert found.code == 0

    async def test_a_committed_message_may_be_delayed(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            producer.decide(producer.prepare("A", DELAY="2"), COMMIT)
            assert producer.delivered() == []
            await trio.sleep(6)
            assert producer.delivered() == ["A"]

    @pytest.mark.parametrize(
        ("change", "code", "remark"),
        [
            ({"producerGroup": "other"}, 1, "The producer group wrong: .* send that one's name"),
            ({"tranStateTableOffset": "1"}, 1, "The transaction state table offset wrong: send the queue offset .*"),
            ({"commitLogOffset": "1"}, 1, "Find prepared transaction message failed: .*; decide at the broker .*"),
            ({"commitLogOffset": "-1"}, 1, "Find prepared transaction message failed: .*; decide at the broker .*"),
            ({"commitLogOffset": str(1 << 62)}, 1, "Find prepared transaction message failed: .*; decide at .*"),
            ({"commitLogOffset": "x"}, 1, "field commitLogOffset is 'x', not a number"),
        ],
    )
    async def test_what_does_not_fit_is_refused(
        self, change: dict[str, str], code: int, remark: str, disk: SimDisk
    ) -> None:
        async with open_producer(disk) as producer:
            half = producer.prepare("A")
            for choice in (COMMIT, ROLLBACK):
                refused = producer.decide(half, choice, **change)
                assert refused.code == code
                assert re.fullmatch(remark, refused.remark or "")
            assert producer.delivered() == []
            assert producer.decide(half, COMMIT).code == 0
            assert producer.delivered() == ["A"]

    async def test_what_is_no_half_message_cannot_be_committed(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk) as producer:
            producer.rig.send(TOPIC, properties=properties(PGROUP=GROUP, UNIQ_KEY="B"))
            (plain,) = producer.rig.stored(TOPIC)
            refused = producer.decide(plain, COMMIT)
            assert refused.code == 1 and (refused.remark or "").startswith("Find prepared transaction message failed: ")
            assert len(producer.rig.stored(TOPIC)) == 1

    @pytest.mark.parametrize("choice", [UNKNOWN, "4", "7"])
    async def test_what_decides_nothing_is_not_answered(
        self, choice: str, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            command = producer.rig.tell(37, decision(producer.prepare("A"), choice))
            assert command.opaque not in producer.rig.peer.replies
            assert producer.rig.broker.transactions.counts.open[TOPIC] == 1

    @pytest.mark.covers("TX-09")
    async def test_one_that_comes_after_the_wished_immunity_waits_for_the_check(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            half = producer.prepare("A", CHECK_IMMUNITY_TIME_IN_SECONDS="7")
            await trio.sleep(7.001)
            answer = producer.decide(half, COMMIT)
            assert (answer.code, producer.delivered()) == (604, [])
            assert producer.decide(half, COMMIT, fromTransactionCheck="true").code == 0
            assert producer.delivered() == ["A"]

    async def test_they_are_refused_while_the_broker_may_not_store(
        self, disk: SimDisk, autojump_clock: MockClock
    ) -> None:
        async with open_producer(disk) as producer:
            half = producer.prepare("A")
            producer.rig.broker.options.broker.enable_slave_acting_master = True
            producer.rig.broker.presence.began("test")
            assert producer.decide(half, COMMIT).code == 14
            assert producer.delivered() == []

    async def test_half_messages_can_be_forbidden(self, disk: SimDisk, autojump_clock: MockClock) -> None:
        async with open_producer(disk, {"rejectTransactionMessage": "true"}) as producer:
            answer = producer.rig.send(TOPIC, properties=properties(TRAN_MSG="true", PGROUP=GROUP))
            assert code_and_remark(answer) == (16, "the broker[127.0.0.1] sending transaction message is forbidden")


async def test_what_a_slave_took_to_another_master_is_done(disk: SimDisk, autojump_clock: MockClock) -> None:
    async with open_producer(disk) as producer:
        halves = [producer.prepare(key) for key in "ABC"]
        # When progress that a slave made meanwhile is taken over from it
        producer.rig.broker.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 2)
        # Then decisions about what is done change nothing
        assert [producer.decide(each, COMMIT).code for each in halves[:2]] == [0, 0]
        await trio.sleep(40)
        assert [(each.ext or {})["msgId"] for each in producer.checks()] == ["C"]
        assert producer.delivered() == []
        assert producer.rig.broker.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 3


async def test_another_message_with_the_same_key_is_another_one(disk: SimDisk, autojump_clock: MockClock) -> None:
    async with open_producer(disk) as producer:
        producer.decide(producer.prepare("A"), COMMIT)
        await trio.sleep(1)
        again = producer.prepare("A")
        producer.rig.broker.store.enter_keys()
        left = killed(disk)
    async with open_producer(left) as producer:
        assert producer.decide(again, COMMIT).code == 0
        assert producer.delivered() == ["A", "A"]


async def test_a_decision_that_java_wrote_about_an_older_copy_counts(disk: SimDisk, autojump_clock: MockClock) -> None:
    # Given a copy that a Java broker made of a half message, and its op message that names the first one
    async with open_producer(disk) as producer:
        half = producer.prepare("A")
        store, host = producer.rig.broker.store, half.store_host
        copied = half.properties_text + "TRANSACTION_CHECK_TIMES\x011\x02"
        store.append(HALF, 0, half.body, copied.encode(), half.born_ms, half.born_host)
        store.append(OPS, 0, b"0,", b"WAIT\x01true\x02TAGS\x01d\x02", half.born_ms, host)
        left = killed(disk)
    # Then nothing is open
    async with open_producer(left) as producer:
        assert producer.rig.broker.transactions.counts.open[TOPIC] == 0
        await trio.sleep(100)
        assert producer.checks() == []
        assert producer.decide(producer.rig.stored(HALF)[1], COMMIT).code == 0
        assert producer.delivered() == []


def unpack_killed(disk: SimDisk) -> None:
    """Put the captured store below :data:`FOLDER` of *disk*, without what its broker writes at a clean end only."""
    disk.make_folder(FOLDER)
    with tarfile.open(DATA / "store" / "transaction.tar.gz") as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            content = archive.extractfile(member)
            if content is None or path.startswith(
                ("consumequeue", "index", "checkpoint", "abort", "config/consumerOff")
            ):
                continue
            disk.make_folder(f"{FOLDER}/{path.rpartition('/')[0]}")
            file = disk.open(f"{FOLDER}/{path}")
            file.write_at(0, content.read())
            file.close()


@pytest.mark.covers("TX-01", "TX-03", "TX-05")
@pytest.mark.parametrize("checks", [0, 1, 2])
async def test_a_store_that_java_left_in_the_middle_is_finished(
    checks: int, disk: SimDisk, autojump_clock: MockClock
) -> None:
    # Given the captured store as its broker would have left it, killed after so many rounds of checks
    halves = [each for each in GOLDEN["messages"] if each["topic"] == HALF]
    cut = next(each for each in halves if each["queueOffset"] == 12 + 4 * checks)
    unpack_killed(disk)
    log = f"{FOLDER}/commitlog/00000000000000000000"
    disk.damage(log, lambda content: content[: cut["physicalOffset"]].ljust(len(content), b"\0"))
    keys = {name: GOLDEN["config"][name] for name in GOLDEN["config"] if name.startswith("transaction")}
    sizes = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    keys |= {name: GOLDEN["config"][name] for name in sizes}
    clock = VirtualClock(cut["storeTimestamp"])
    # When ours opens it and the producer comes back
    async with open_producer(disk, keys, clock) as producer:
        producer.beat("p_trans")
        assert producer.rig.broker.transactions.counts.open == {"OrderTopic": 4}
        await trio.sleep(5.5)
        # Then it asks about each undecided one, once, with the checks of the former life counted
        asked = producer.checks()
        bodies = [decode_record(each.body) for each in asked]
        assert [each.body.split()[1] for each in bodies] == [b"2", b"5", b"8", b"11"]
        assert {each.properties["TRANSACTION_CHECK_TIMES"] for each in bodies} == {str(checks + 1)}
        for command, choice in zip(asked, (COMMIT, ROLLBACK, COMMIT, UNKNOWN), strict=True):
            ext = {**(command.ext or {}), "commitOrRollback": choice, "producerGroup": "p_trans"}
            producer.rig.tell(37, ext | {"fromTransactionCheck": "true"}, flag=2)
        await trio.sleep(60)
        orders = [each.body for queue in range(4) for each in producer.rig.stored("OrderTopic", queue)]
        assert sorted(int(each.split()[1]) for each in orders) == [0, 2, 3, 6, 8, 9]
        assert [each.body.split()[1] for each in producer.rig.stored(GIVEN_UP)] == [b"11"]
