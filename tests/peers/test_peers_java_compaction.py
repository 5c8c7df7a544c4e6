"""Compaction topics: one store that both kinds of broker add to and compact."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, lone_broker_on, running, server

from understudy.format.properties import format_properties
from understudy.format.record import decode_records, encode_host
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

TOPIC = "CompactedTopic"
PRODUCER = encode_host("127.0.0.1", 4000)
QUEUE_FILE_BYTES, LOG_FILE_BYTES = 10 * 46, 2_300


def store_config(folder: Path) -> StoreConfig:
    return StoreConfig(
        folder=str(folder),
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=2_000,
        compaction_file_bytes=LOG_FILE_BYTES,
        compaction_queue_file_bytes=QUEUE_FILE_BYTES,
        max_hash_slot_num=100,
        max_index_num=400,
    )


def configuration(folder: Path, port: int, interval_ms: int) -> str:
    return lone_broker_on(
        folder,
        port,
        compactionMappedFileSize=LOG_FILE_BYTES,
        compactionCqMappedFileSize=QUEUE_FILE_BYTES,
        compactionScheduleInternal=interval_ms,
    )


def write_topics(folder: Path) -> None:
    numbers = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}
    row = {"topicName": TOPIC, "attributes": {"cleanup.policy": "COMPACTION"}, "order": False, **numbers}
    table = {TOPIC: {**row, "topicFilterType": "SINGLE_TAG"}}
    content = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": table}
    (folder / "config").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "topics.json").write_text(json.dumps(content))


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    trio.run(partial(until, condition, seconds, 0.2))


def key(number: int) -> str:
    return f"k{number % 4}"


async def add(folder: Path, numbers: range) -> dict[int, str]:
    """Add messages with our store and compact; return what a consumer gets then, by queue offset."""
    store = await MessageStore.open(real_world(), store_config(folder), ("127.0.0.1", 10911))
    store.declare_compacted([TOPIC], [])
    for number in numbers:
        text = format_properties({"UNIQ_KEY": f"{number:032X}", "KEYS": key(number), "TAGS": "t"}).encode()
        store.append(TOPIC, 0, b"ours %d" % number, text, 1, PRODUCER)
    await store.flush()
    await store._compaction.copy()
    await store._compaction.compact()
    found, at = dict[int, str](), 0
    while (read := store.get(TOPIC, 0, at, 32, 1 << 20)).count:
        found |= {one.queue_offset: one.body.decode() for part in read.parts for one in decode_records(part)}
        at = read.next_begin_offset
    await store.close()
    return found


def pulled(connection: Connection) -> dict[int, str]:
    """Return what a consumer gets, by queue offset."""
    found, at = dict[int, str](), 0
    while True:
        header: dict[str, Any] = {
            "consumerGroup": "readers",
            "topic": TOPIC,
            "queueId": 0,
            "queueOffset": at,
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
        if answer["code"] == 0:
            found |= {record.queue_offset: record.body.decode() for record in decode_records(body)}
        else:
            assert answer["code"] in (20, 21), answer
        assert int(answer["extFields"]["nextBeginOffset"]) > at, answer
        at = int(answer["extFields"]["nextBeginOffset"])


def send(connection: Connection, number: int) -> int:
    text = format_properties({"UNIQ_KEY": f"{number:032X}", "KEYS": key(number)})
    header = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0, "k": "false"}
    answer, _ = connection.call(310, {**header, "m": "false", "i": text}, b"java %d" % number)
    assert answer["code"] == 0, answer
    return int(answer["extFields"]["queueOffset"])


def newest(messages: dict[int, str]) -> dict[str, int]:
    """Return the last queue offset of each key."""
    return {key(int(body.split()[1])): offset for offset, body in sorted(messages.items())}


@pytest.mark.slow
def test_a_compacted_store_goes_from_ours_to_java_and_back(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a store that ours wrote and compacted
    folder, port = tmp_path / "store", port_blocks.take()
    ours = trio.run(add, folder, range(100))
    assert 4 <= len(ours) < 25
    write_topics(folder)
    # When the real broker goes on with it
    with running(server(JAVA, "broker", "broker", tmp_path / "java", configuration(folder, port, 900_000))):
        connection = Connection(port)
        try:
            # Then it serves what is left where it is, and adds behind it
            assert pulled(connection) == ours
            theirs = ours | {send(connection, number): f"java {number}" for number in range(40)}
            assert max(theirs) == 139
            wait_for(lambda: pulled(connection) == theirs, 20)
        finally:
            connection.close()
    # and ours goes on behind it, after the real one was killed
    more = trio.run(add, folder, range(140, 160))
    assert set(newest(theirs | more).values()) <= set(more)
    assert {offset: body for offset, body in more.items() if offset < 140}.items() <= theirs.items()
    assert [more[offset] for offset in range(156, 160)] == [f"ours {number}" for number in range(156, 160)]
    assert len(more) < 40


@pytest.mark.slow
def test_a_store_that_java_compacted_is_read_by_ours(java_home: Path, port_blocks: PortBlocks, tmp_path: Path) -> None:
    folder, port = tmp_path / "store", port_blocks.take()
    write_topics(folder)
    checkpoint = folder / "compaction" / "position-checkpoint"
    with running(server(JAVA, "broker", "broker", tmp_path / "java", configuration(folder, port, 1_000))):
        connection = Connection(port)
        try:
            for number in range(100):
                assert send(connection, number) == number
            wait_for(lambda: checkpoint.exists() and TOPIC in checkpoint.read_text(), 60)
            wait_for(lambda: len(pulled(connection)) < 25, 60)
            theirs = pulled(connection)
        finally:
            connection.close()
    assert set(range(96, 100)) <= set(theirs)
    more = trio.run(add, folder, range(100, 120))
    assert set(newest(theirs | more).values()) <= set(more)
    assert {offset: body for offset, body in more.items() if offset < 100}.items() <= theirs.items()
    assert max(more) == 119
