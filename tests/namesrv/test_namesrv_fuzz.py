"""Every handler with missing, wrong and hostile fields and bodies: an answer always, the table unharmed."""

from __future__ import annotations

import json
import random
import string
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as some
from namesrv_wire import captured, config_in, connected, registration_body, running
from test_namesrv_invariants import check_laws

from understudy.namesrv.registration_body import (
    INFLATED_LIMIT_BYTES,
    BodyError,
    read_data_version,
    read_queues,
    read_registration,
)
from understudy.remoting.command import Command

CODES = (
    100,
    101,
    102,
    103,
    104,
    105,
    106,
    205,
    206,
    216,
    217,
    219,
    224,
    304,
    311,
    312,
    313,
    318,
    319,
    322,
    327,
    901,
    904,
)
FIELDS = [
    "brokerName",
    "brokerAddr",
    "clusterName",
    "haServerAddr",
    "brokerId",
    "heartbeatTimeoutMillis",
    "enableActingMaster",
    "compressed",
    "bodyCrc32",
    "topic",
    "acceptStandardJsonOnly",
    "namespace",
    "key",
    "value",
    "cluster",
    "__ZONE_NAME",
    "__ZONE_MODE",
]
TEXTS = (
    "",
    " ",
    "0",
    "1",
    "-1",
    "a",
    "b",
    "true",
    "TRUE",
    "10.0.0.1:1",
    "9" * 30,
    "T1",
    "%",
    "\x00",
    "é\u2028",
    "null",
    "{}",
)
COMPRESSED = bytes.fromhex(captured("compressed_register")[0]["body_hex"])
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b"x",
    b"x\x9c",
    b'{"topicConfigSerializeWrapper":null}',
    b'{"topicConfigSerializeWrapper":[]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud800":{},"T":{}}}}',
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1e400}}}',
    b'{"queueDatas":[{"brokerName":"a","perm":99999999999999999999}]}',
    b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":"4","topicSynFlag":1}]}',
    b"listenPort=x\n",
    b"a=\\u00",
    registration_body({"T1": 6, "T2": 6}),
    registration_body({"T1": 6}),
    COMPRESSED,
    COMPRESSED[: len(COMPRESSED) // 2],
    zlib.compress(b"\x7f\xff\xff\xff" * 4),
)


@pytest.mark.covers("NS-22")
async def test_every_code_answers_whatever_it_is_asked(tmp_path: Path) -> None:
    # given a name server with a broker, whose requests are then spoiled in every field
    choose = random.Random(7)
    async with running(config_in(tmp_path, notify_min_broker_id_changed=True)) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", {"T1": 6, "T2": 6})
        for code in CODES:
            seen = set()
            for _ in range(60):
                ext = {field: choose.choice(TEXTS) for field in FIELDS if choose.random() < 0.7}
                body = choose.choice(BODIES)
                # when it is asked, then there is an answer with a code of the reference
                answer = await peer.ask(code, ext, body, version=choose.choice([0, 36, 317, 413, 493, 10_000]))
                assert answer.code in (0, 1, 16, 17, 22, 29), (code, ext, body, answer.remark)
                assert not str(answer.remark).startswith(("KeyError", "TypeError", "AttributeError", "ValueError"))
                assert (answer.code == 0) or answer.remark
                seen.add(answer.code)
            check_laws(server.table)
        # then lists and routes can still be written
        for code, ext in ((106, {}), (206, {}), (304, {}), (105, {"topic": "T1"}), (901, {"brokerName": "a"})):
            assert (await peer.ask(code, ext)).code in (0, 17)


async def test_one_way_requests_are_never_answered(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        for row in captured("acting_master_broker"):
            if row["kind"] == "oneway":
                await peer.stream.send_all(bytes.fromhex(row["frame_hex"]))
        assert (await peer.ask(106)).code == 0  # the first answer that comes is this one's


async def test_a_flood_on_one_connection_leaves_the_others_alone(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as flood, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", {"T1": 6, "T2": 6})
        frames = b"".join(
            bytes.fromhex(row["frame_hex"])
            for row in captured("namesrv_requests")
            if row["kind"] == "request" and row["code"] == 105
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood.stream.send_all, frames * 200)  # never reads an answer
            for _ in range(20):
                with trio.fail_after(30):
                    assert await peer.route("T1") is not None
            nursery.cancel_scope.cancel()


scalars = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5)
trees = some.recursive(
    scalars, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3)
)
configs = some.dictionaries(
    some.sampled_from(["perm", "readQueueNums", "writeQueueNums", "topicName", "topicSysFlag", "order"]),
    trees,
    max_size=4,
)
wrappers = some.fixed_dictionaries(
    {},
    optional={
        "dataVersion": trees | some.fixed_dictionaries({"counter": scalars}),
        "topicConfigTable": trees | some.dictionaries(some.text(string.ascii_letters, max_size=4), configs, max_size=4),
        "topicQueueMappingInfoMap": trees
        | some.dictionaries(
            some.text(max_size=3), some.fixed_dictionaries({"bname": scalars, "currIdMap": trees}), max_size=2
        ),
    },
)
documents = some.fixed_dictionaries(
    {},
    optional={
        "filterServerList": trees,
        "topicConfigSerializeWrapper": wrappers | trees,
        "queueDatas": trees | some.lists(configs),
    },
)


@settings(max_examples=150)
@given(
    some.binary(max_size=200) | documents.map(lambda value: json.dumps(value).encode()),
    some.sampled_from([0, 413, 493]),
)
def test_any_body_is_read_or_refused_with_a_sentence(body: bytes, version: int) -> None:
    readers: list[Any] = [
        lambda data: read_data_version(Command(body=data)),
        lambda data: read_queues(Command(body=data)),
        lambda data: read_registration(data, version, "a"),
    ]
    for reader in readers:
        try:
            result = reader(body)
        except BodyError as error:
            assert str(error)
        else:
            assert result is None or result is not body


@given(some.binary(max_size=300))
def test_any_compressed_body_is_read_or_refused_with_a_sentence(inside: bytes) -> None:
    try:
        found = read_registration(zlib.compress(inside), 493, "a")
    except BodyError as error:
        assert str(error)
    else:
        assert all(name == "a" for name in (queues.broker_name for queues in found.topics.values()))


def means_the_same(damaged: bytes) -> bool:
    """Whether a stream differs only where nothing is said: the effort of compressing, bits behind the last block."""
    try:
        return zlib.decompress(damaged) == zlib.decompress(COMPRESSED)
    except zlib.error:
        return False


@example(1, COMPRESSED[1] ^ 0x5E)
@example(len(COMPRESSED) - 5, 4)
@given(some.integers(0, len(COMPRESSED) - 1), some.integers(1, 255))
def test_a_damaged_compressed_body_is_refused(at: int, by: int) -> None:
    damaged = COMPRESSED[:at] + bytes([COMPRESSED[at] ^ by]) + COMPRESSED[at + 1 :]
    if means_the_same(damaged):
        read = read_registration(COMPRESSED, 493, "a", compressed=True)
        assert read == read_registration(damaged, 493, "a", compressed=True)
        return
    with pytest.raises(BodyError):
        read_registration(damaged, 493, "a", compressed=True)


def test_a_small_stream_cannot_fill_the_memory() -> None:
    bomb = zlib.compress(b"\x00" * (INFLATED_LIMIT_BYTES + 1))
    with pytest.raises(BodyError, match="above"):
        read_registration(bomb, 493, "a")
