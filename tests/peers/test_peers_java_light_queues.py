"""Light message queues: the real Java client at a broker of ours, and one store that both kinds of broker add to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, OURS, lone_broker_on, peer_cluster, run_client, running, server

from understudy.format.properties import format_properties
from understudy.format.record import decode_records, encode_host
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.port_blocks import PortBlocks

HERE = Path(__file__).parent
ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
PARENT, A, B, C = "LightParent", "%LMQ%a", "%LMQ%b", "%LMQ%c"
PRODUCER = encode_host("127.0.0.1", 4000)


@pytest.mark.slow
def test_the_java_client_sends_to_and_pulls_light_queues(
    servers_kind: str, java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a cluster with light queues
    with peer_cluster(servers_kind, servers_kind, tmp_path, port_blocks, **ON) as cluster:
        command = ["java", "-cp", f"{java_home}/lib/*", str(HERE / "SmokeLightQueues.java")]
        # When an unmodified client sends, pulls, asks, commits and waits
        (seen,) = run_client([*command, cluster.namesrv, "broker-a"], 120)
    # Then it sees what it sees of the real system, which takes the last one and enters nothing any more
    expected = {
        "all": [f"m{number}" for number in range(5)],
        "some": ["m3"],
        "next": 5,
        "begin": 0,
        "end": 5,
        "byTime": 0,
        "committed": 3,
        "awaited": ["awaited"],
        "offsets": ["0", "0,1", "2", "1,3", "4"],
        "refused": "13" if servers_kind == OURS else "",
    }
    assert seen == expected


def store_config(folder: Path) -> StoreConfig:
    return StoreConfig(
        folder=str(folder),
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=2_000,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )


async def add(folder: Path, numbers: range) -> dict[str, list[str]]:
    """Add messages with our store; return what its light queues have then."""
    store = await MessageStore.open(real_world(), store_config(folder), ("127.0.0.1", 10911))
    for number in numbers:
        names = ",".join(name for name, every in ((A, 1), (B, 2), (C, 5)) if number % every == 0)
        pairs = {"UNIQ_KEY": f"{number:032X}", "INNER_MULTI_DISPATCH": names}
        store.append(PARENT, 0, b"m%d" % number, format_properties(pairs).encode(), 1, PRODUCER)
    found: dict[str, list[str]] = {}
    for name in (A, B, C):
        offset = 0
        while (read := store.get(name, 0, offset, 32, 1 << 20)).count:
            found[name] = found.get(name, []) + [
                each.body.decode() for part in read.parts for each in decode_records(part)
            ]
            offset = read.next_begin_offset
    await store.close()
    return found


def pulled(connection: Connection, topic: str) -> list[str]:
    found: list[str] = []
    while True:
        header: dict[str, Any] = {
            "consumerGroup": "%LMQ%readers",
            "topic": topic,
            "queueId": 0,
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
        found += [record.body.decode() for record in decode_records(body)]


@pytest.mark.slow
def test_a_store_with_light_queues_goes_from_ours_to_java_and_back(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    # Given a store that ours wrote
    folder, port = tmp_path / "store", port_blocks.take()
    ours = trio.run(add, folder, range(100))
    # When the real broker goes on with it
    with running(server(JAVA, "broker", "broker", tmp_path / "java", lone_broker_on(folder, port, **ON))):
        connection = Connection(port)
        try:
            # Then it serves our light queues
            assert {name: pulled(connection, name) for name in ours} == ours
            # and numbers its own messages of queues that it did not know yet from 0 on
            header = {"a": "pg", "b": PARENT, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0}
            pairs = {"UNIQ_KEY": "F" * 32, "INNER_MULTI_DISPATCH": "%LMQ%java"}
            answer, _ = connection.call(
                310, {**header, "k": "false", "m": "false", "i": format_properties(pairs)}, b"of java"
            )
            assert answer["code"] == 0, answer
            # it enters them into queues a moment after it has answered
            deadline = time.monotonic() + 10
            while not (entered := pulled(connection, "%LMQ%java")) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert entered == ["of java"]
        finally:
            connection.close()
    # and ours goes on behind it, after the real one was killed
    more = trio.run(add, folder, range(100, 140))
    assert more == {
        name: [f"m{number}" for number in range(140) if number % every == 0] for name, every in ((A, 1), (B, 2), (C, 5))
    }
