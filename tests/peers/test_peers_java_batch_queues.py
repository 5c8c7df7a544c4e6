"""Batch queues: the real Java client at a broker of ours, and one store that both kinds of broker add to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, OURS, lone_broker_on, peer_cluster, run_client, run_tool, running, server

from understudy.format.batch import encode_batch, iter_batch
from understudy.format.properties import format_properties
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, Record, decode_records, encode_host
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.deletions import LivingTopics
from understudy.store.message_store import MessageStore
from understudy.testkit.port_blocks import PortBlocks

HERE = Path(__file__).parent
TOPIC, SIMPLE = "BatchTopic", "SimpleTopic"
PRODUCER = encode_host("127.0.0.1", 4000)
QUEUE_FILE_BYTES = 10 * 46
INNER = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP


@pytest.mark.slow
def test_the_java_client_sends_batches_and_consumes_them(
    servers_kind: str, java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a topic with batch queues
    delays = {"messageDelayLevel": "1s 1s 1s 1s"}
    with peer_cluster(servers_kind, servers_kind, tmp_path, port_blocks, **delays) as cluster:
        create = [sys.executable, str(HERE / "create_topic.py"), cluster.namesrv, TOPIC, "2", "+queue.type=BatchCQ"]
        run_tool(create)
        command = ["java", "-cp", f"{java_home}/lib/*", str(HERE / "SmokeBatchQueues.java")]
        # When an unmodified client sends batches and single messages, pulls and consumes, and fails one message
        (seen,) = run_client([*command, cluster.namesrv, "broker-a", TOPIC], 240)
    # Then it sees what it sees of the real system, which looks for tags in the batch as a whole
    every = [f"{number} m{number} tag" for number in range(6)]
    expected = {
        "sent": ["SEND_OK 0 1 1", "SEND_OK 3 1 1", "SEND_OK 4 1 1"],
        "all": every,
        "next": 6,
        "inside": every[:3],
        "insideNext": 3,
        "single": every[3:4],
        "tagged": every if servers_kind == OURS else every[3:4],
        "begin": 0,
        "end": 6,
        "consumed": [f"m{number}" for number in range(8)],
        "again": ["m1"],
    }
    assert seen == expected


def store_config(folder: Path) -> StoreConfig:
    return StoreConfig(
        folder=str(folder),
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=2_000,
        mapped_file_size_batch_consume_queue=QUEUE_FILE_BYTES,
        max_hash_slot_num=100,
        max_index_num=400,
    )


def write_topics(folder: Path) -> None:
    def row(name: str, attributes: dict[str, str]) -> dict[str, Any]:
        numbers = {"perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "topicSysFlag": 0}
        return {"topicName": name, "attributes": attributes, "order": False, "topicFilterType": "SINGLE_TAG", **numbers}

    table = {TOPIC: row(TOPIC, {"queue.type": "BatchCQ"}), SIMPLE: row(SIMPLE, {})}
    content = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": table}
    (folder / "config").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "topics.json").write_text(json.dumps(content))


def expanded(record: Record) -> list[tuple[int, str]]:
    """Return queue offset and body of every message of a record."""
    if not record.sys_flag & FLAG_INNER_BATCH:
        return [(record.queue_offset, record.body.decode())]
    items = enumerate(iter_batch(record.body), record.queue_offset)
    return [(offset, record.body[at : at + length].decode()) for offset, (_, at, length, _) in items]


Queues = dict[tuple[str, int], list[tuple[int, str]]]


async def add(folder: Path, numbers: range) -> Queues:
    """Add messages with our store; return all that its queues have then."""
    living = LivingTopics(frozenset({TOPIC, SIMPLE}), 0, frozenset({TOPIC}))
    store = await MessageStore.open(real_world(), store_config(folder), ("127.0.0.1", 10911), living)
    for number in numbers:
        single = format_properties({"UNIQ_KEY": f"{number:032X}", "TAGS": "t"}).encode()
        store.append(SIMPLE, number % 2, b"simple %d" % number, single, 1, PRODUCER)
        if number % 3:
            store.append(TOPIC, number % 2, b"single %d" % number, single, 1, PRODUCER)
            continue
        bodies = [b"inner %d-%d" % (number, each) for each in range(1 + number % 7)]
        body = encode_batch([(0, each, b"TAGS\x01t\x02") for each in bodies])
        pairs = {"UNIQ_KEY": f"B{number:031X}", "INNER_NUM": str(len(bodies))}
        properties = format_properties(pairs).encode()
        store.append(TOPIC, number % 2, body, properties, 1, PRODUCER, sys_flag=INNER)
    found: Queues = {}
    for topic, queue_id in store.queues():
        messages, offset = list[tuple[int, str]](), 0
        while (read := store.get(topic, queue_id, offset, 32, 1 << 20)).count:
            messages += [each for part in read.parts for one in decode_records(part) for each in expanded(one)]
            offset = read.next_begin_offset
        found[topic, queue_id] = messages
    await store.close()
    return found


def pulled(connection: Connection, topic: str, queue_id: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while True:
        header: dict[str, Any] = {
            "consumerGroup": "readers",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": len(found),
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        answer, body = connection.call(11, header)
        if answer["code"] == 19:
            return found
        assert answer["code"] == 0, answer
        found += [each for record in decode_records(body) for each in expanded(record)]
        assert int(answer["extFields"]["nextBeginOffset"]) == len(found)


@pytest.mark.slow
def test_a_store_with_batch_queues_goes_from_ours_to_java_and_back(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a store that ours wrote, with queues of several files
    folder, port = tmp_path / "store", port_blocks.take()
    ours = trio.run(add, folder, range(100))
    assert len(list((folder / "batchconsumequeue" / TOPIC / "0").iterdir())) > 1
    write_topics(folder)
    # When the real broker goes on with it
    with running(
        server(
            JAVA,
            "broker",
            "broker",
            tmp_path / "java",
            lone_broker_on(folder, port, mapperFileSizeBatchConsumeQueue=QUEUE_FILE_BYTES),
        )
    ):
        connection = Connection(port)
        try:
            # Then it serves every message of both kinds of queues where it is
            assert {queue: pulled(connection, *queue) for queue in ours} == ours
            # and numbers its own messages behind them
            header = {
                "a": "pg",
                "b": TOPIC,
                "c": "TBW102",
                "d": 4,
                "e": 0,
                "f": 0,
                "g": 1,
                "h": 0,
                "j": 0,
                "k": "false",
            }
            body = encode_batch([(0, b"java 0", b""), (0, b"java 1", b"")])
            batch = {**header, "m": "true", "i": format_properties({"UNIQ_KEY": "F" * 32, "WAIT": "true"})}
            answer, _ = connection.call(320, batch, body)
            assert answer["code"] == 0, answer
            at = len(ours[TOPIC, 0])
            assert answer["extFields"]["queueOffset"] == str(at)
            answer, _ = connection.call(310, {**header, "m": "false", "i": "UNIQ_KEY\x01E\x02"}, b"java 2")
            assert answer["extFields"]["queueOffset"] == str(at + 2)
            theirs = ours[TOPIC, 0] + [(at + number, f"java {number}") for number in range(3)]
            assert pulled(connection, TOPIC, 0) == theirs
        finally:
            connection.close()
    # and ours goes on behind it, after the real one was killed
    more = trio.run(add, folder, range(100, 130))
    assert more[TOPIC, 0][: len(theirs)] == theirs
    for queue, messages in more.items():
        assert [offset for offset, _ in messages] == list(range(len(messages))), queue
    assert [body for _, body in more[SIMPLE, 1]] == [f"simple {number}" for number in range(130) if number % 2]
