"""The real Java broker opens a store that ours wrote, and serves every message byte for byte."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, running, server

from understudy.format.batch import encode_batch
from understudy.format.properties import format_properties
from understudy.format.record import encode_host
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.port_blocks import PortBlocks

LONG_GROUP_TOPIC = "%RETRY%" + "g" * 100 + "_" + "t" * 60
TOPICS = {"OrderTopic": 2, "Gone": 1, LONG_GROUP_TOPIC: 1}
FILE_BYTES = 262_144
QUEUE_FILE_BYTES = 2_000
EXTENSION_FILE_BYTES = 1_024


def configuration(folder: Path, port: int) -> str:
    return "\n".join(
        [
            "brokerClusterName=DefaultCluster",
            "brokerName=broker-a",
            "brokerId=0",
            f"listenPort={port}",
            f"haListenPort={port + 1}",
            "brokerIP1=127.0.0.1",
            "namesrvAddr=127.0.0.1:1",
            f"storePathRootDir={folder}",
            f"storePathCommitLog={folder}/commitlog",
            f"mappedFileSizeCommitLog={FILE_BYTES}",
            f"mappedFileSizeConsumeQueue={QUEUE_FILE_BYTES}",
            "mappedFileSizeTimerLog=1024",
            "maxHashSlotNum=100",
            "maxIndexNum=400",
            "timerWheelEnable=false",
            "autoCreateSubscriptionGroup=true",
            "diskMaxUsedSpaceRatio=95",
            "",
        ]
    )


async def write(folder: Path, killed: bool, extended: bool = False) -> dict[tuple[str, int], list[bytes]]:
    """Write messages of every kind with our store and return the records of each queue."""
    config = StoreConfig(
        folder=str(folder),
        mapped_file_size_commit_log=FILE_BYTES,
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
        max_hash_slot_num=100,
        max_index_num=400,
        mapped_file_size_consume_queue_ext=EXTENSION_FILE_BYTES,
        enable_consume_queue_ext=extended,
    )
    store = await MessageStore.open(real_world(), config, ("127.0.0.1", 10911))
    store.extensions.bits = lambda topic, properties: bytes(14)
    producers = [encode_host("127.0.0.1", 4000), encode_host("2001:db8::17", 4001)]
    for number in range(600):
        properties = format_properties(
            {"UNIQ_KEY": f"7F0000010A2018B4AAC2{number:012X}", "KEYS": f"key-{number}", "TAGS": f"Tag{number % 3}"}
        ).encode()
        body = f"message {number} ".encode() * (1 + number % 100)
        store.append("OrderTopic", number % 2, body, properties, 1, producers[number % 2], flag=number)
        if number % 50 == 0:
            store.append(LONG_GROUP_TOPIC, 0, body, properties, 1, producers[0], reconsume_times=1)
            items = [(0, body, properties), (7, b"second", b"")]
            store.append_batch("OrderTopic", 1, encode_batch(items), 1, producers[0])
    written: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_id in store.queues():
        offset, records = 0, []
        while offset < store.max_queue_offset(topic, queue_id):
            found = store.get(topic, queue_id, offset, 1, 1 << 20)
            records.append(bytes(found.parts[0]))
            offset = found.next_begin_offset
        written[topic, queue_id] = records
    if killed:
        keep_files(folder)
    await store.close()
    if killed:
        bring_back_files(folder)
    return written


def keep_files(folder: Path) -> None:
    """Copy the files of a running broker, as a kill now would leave them; :func:`bring_back_files` puts them back.

    A thread may save a table meanwhile: when a file goes away while it is copied, the copy is taken again.
    """
    copy = folder.with_name("left")
    for tries_left in (2, 1, 0):
        try:
            shutil.copytree(folder, copy)
            return
        except shutil.Error:
            if not tries_left:
                raise
            shutil.rmtree(copy)


def bring_back_files(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.with_name("left").rename(folder)


def write_topics(folder: Path) -> None:
    table = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for topic, queues in TOPICS.items()
    }
    content = {"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": table}
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "topics.json").write_text(json.dumps(content))


def pull_all(connection: Connection, topic: str, queue_id: int, subscription: str = "*") -> bytes:
    body, offset = b"", 0
    while True:
        header, part = connection.call(
            11,
            {
                "consumerGroup": "g_reader",
                "topic": topic,
                "queueId": queue_id,
                "queueOffset": offset,
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subscription": subscription,
                "subVersion": 0,
                "expressionType": "TAG",
            },
        )
        if header["code"] == 19:
            return body
        assert header["code"] in (0, 20), header  # 20: none of those it has looked at
        body += part
        offset = int(header["extFields"]["nextBeginOffset"])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_java_broker_serves_what_our_store_wrote(
    killed: bool, java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a store directory that ours wrote, closed cleanly or left behind by a killed process
    folder = tmp_path / "store"
    written = trio.run(write, folder, killed)
    write_topics(folder)
    port = port_blocks.take()

    # When the real broker starts on it
    with running(server(JAVA, "broker", "broker", tmp_path / "java", configuration(folder, port))):
        connection = Connection(port)
        try:
            # Then every queue gives every record as we stored it
            for (topic, queue_id), records in written.items():
                assert pull_all(connection, topic, queue_id) == b"".join(records), (topic, queue_id)
                header, _ = connection.call(30, {"topic": topic, "queueId": queue_id})
                assert header["extFields"]["offset"] == str(len(records))
            # and the index finds each message by its key
            for number in range(0, 600, 37):
                header, body = connection.call(
                    12,
                    {
                        "topic": "OrderTopic",
                        "key": f"key-{number}",
                        "maxNum": 10,
                        "beginTimestamp": 0,
                        "endTimestamp": 1 << 62,
                    },
                )
                assert header["code"] == 0, header
                expected = [record for records in written.values() for record in records]
                wanted = f"\x02KEYS\x01key-{number}\x02".encode()
                of_topic = [record for record in expected if wanted in record and b"OrderTopic" in record]
                assert sorted(set(split(body))) == sorted(of_topic)
        finally:
            connection.close()


@pytest.mark.slow
def test_a_java_broker_reads_tags_where_our_units_are_extended(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a store that ours wrote with extended units
    folder = tmp_path / "store"
    written = trio.run(write, folder, False, True)
    write_topics(folder)
    files = sorted((folder / "consumequeue_ext" / "OrderTopic" / "1").iterdir())
    assert len(files) > 3
    before = [path.read_bytes() for path in files[:-1]]
    port = port_blocks.take()
    keys = f"enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt={EXTENSION_FILE_BYTES}\n"

    # When the real broker starts on it
    with running(server(JAVA, "broker", "broker", tmp_path / "java", configuration(folder, port) + keys)):
        connection = Connection(port)
        try:
            # Then who asks for a tag gets what has it, by the tags codes in the extensions
            for queue_id in range(2):
                records = written["OrderTopic", queue_id]
                tagged = [record for record in records if b"TAGS\x01Tag1\x02" in record]
                assert tagged and b"".join(tagged) == pull_all(connection, "OrderTopic", queue_id, "Tag1")
                assert b"".join(records) == pull_all(connection, "OrderTopic", queue_id)
        finally:
            connection.close()
    # and no file of ours was changed or cut
    assert before == [path.read_bytes() for path in files[:-1]]


def split(records: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        parts.append(records[at : at + size])
        at += size
    return parts
