"""Stored records, batches and properties as bytes, against frames captured from 5.4.0."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.properties import parse_properties
from understudy.format.record import FLAG_COMPRESSED
from understudy.mqclient.errors import InvalidMessageError, RecordDamagedError
from understudy.mqclient.message import (
    Message,
    ReceivedMessage,
    encode_properties,
    message,
    offset_message_id,
    split_offset_message_id,
)
from understudy.mqclient.records import (
    INFLATED_LIMIT_BYTES,
    LZ4,
    ZLIB,
    ZSTD,
    compress,
    decode_records,
    decompress,
    encode_batch,
)

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data/mqclient/recorded.json").read_text())

names = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), min_size=1, max_size=20)


def record(body: bytes = b"hello", *, topic: str = "Topic", properties: str = "", sys_flag: int = 0) -> bytes:
    """One stored record, written without the code under test."""
    host = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
    host6 = bytes(15) + b"\x01" + struct.pack(">i", 10911)
    magic = 0xDAA320A7 if len(topic) <= 127 else 0xDAA320AB
    after = struct.pack(">iIiiqqiq", 0, 0, 7, 3, 42, 4096, sys_flag, 1000)[8:]
    after += (host6 if sys_flag & 0x10 else host) + struct.pack(">q", 2000) + (host6 if sys_flag & 0x20 else host)
    after += struct.pack(">iqi", 2, 77, len(body)) + body
    after += struct.pack(">B" if magic == 0xDAA320A7 else ">h", len(topic)) + topic.encode()
    after += struct.pack(">h", len(properties.encode())) + properties.encode()
    return struct.pack(">iII", len(after) + 12, magic, zlib.crc32(body) & 0x7FFFFFFF) + after


@pytest.mark.parametrize("recorded", RECORDED["pulls"])
def test_decodes_what_the_real_broker_sent(recorded: dict[str, Any]) -> None:
    decoded = decode_records(bytes.fromhex(recorded["body"]), "broker-a")
    expected = recorded["records"]
    assert len(decoded) >= len(expected)
    for wanted, got in zip(expected, decoded, strict=False):
        seen = (got.stored_topic, got.queue_id, got.queue_offset, got.commit_log_offset, got.stored_bytes)
        assert seen == tuple(wanted[n] for n in ("topic", "queueId", "queueOffset", "physicOffset", "size"))
        assert (got.born_host, got.store_host) == (wanted["bornHost"], wanted["storeHost"])
        assert (got.born_timestamp_ms, got.store_timestamp_ms) == (wanted["bornTimestamp"], wanted["storeTimestamp"])
        assert (got.body.decode(), got.body_crc) == (wanted["body"], wanted["crc"])
        assert got.properties == parse_properties(wanted["properties"])


@pytest.mark.parametrize("recorded", RECORDED["batches"])
def test_encodes_batches_as_the_real_client(recorded: dict[str, Any]) -> None:
    messages = [
        Message("T", entry["body"].encode(), parse_properties(entry["properties"]), entry["flag"])
        for entry in recorded["messages"]
    ]
    assert bytes.fromhex(recorded["body"]) == encode_batch(messages)


@pytest.mark.parametrize("recorded", RECORDED["compressed"])
def test_inflates_what_the_real_client_compressed(recorded: dict[str, Any]) -> None:
    if recorded["sys_flag"] & 0x700 == LZ4:
        pytest.importorskip("lz4.frame")
    inflated = decompress(bytes.fromhex(recorded["body"]), recorded["sys_flag"])
    assert len(inflated) > len(recorded["body"]) // 2


@pytest.mark.parametrize(("sys_flag", "shown"), [(0, "127.0.0.1:10911"), (0x30, "[::1]:10911")])
def test_reads_both_kinds_of_hosts(sys_flag: int, shown: str) -> None:
    (got,) = decode_records(record(sys_flag=sys_flag))
    assert (got.born_host, got.store_host, got.reconsume_times, got.flag) == (shown, shown, 2, 3)
    assert split_offset_message_id(got.offset_message_id) == (shown, 4096)


def test_long_topics_use_the_second_layout() -> None:
    (got,) = decode_records(record(topic="%RETRY%" + "g" * 200))
    assert got.stored_topic == "%RETRY%" + "g" * 200


def test_retried_messages_show_their_own_topic() -> None:
    (got,) = decode_records(record(topic="%RETRY%g", properties="RETRY_TOPIC\x01Orders\x02"))
    assert (got.topic, got.stored_topic, got.queue.topic) == ("Orders", "%RETRY%g", "%RETRY%g")


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_compression_comes_back(kind: int) -> None:
    if kind == LZ4:
        pytest.importorskip("lz4.frame")
    if kind == ZSTD:
        pytest.importorskip("zstandard")
    body = b"a long body " * 1000
    small = compress(body, kind, 3)
    assert len(small) < len(body)
    (got,) = decode_records(record(small, sys_flag=FLAG_COMPRESSED | kind))
    assert body == got.body


def test_a_wrong_checksum_is_damage() -> None:
    data = bytearray(record(b"hello"))
    data[data.index(b"hello")] ^= 1
    with pytest.raises(RecordDamagedError, match="log offset 4096 does not match its checksum"):
        decode_records(bytes(data))


def test_a_body_that_does_not_inflate_is_damage() -> None:
    with pytest.raises(RecordDamagedError, match="cannot be inflated"):
        decode_records(record(b"not zlib", sys_flag=FLAG_COMPRESSED))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_damage_or_nothing(data: bytes) -> None:
    try:
        messages = decode_records(data)
    except RecordDamagedError:
        return
    assert sum(got.stored_bytes for got in messages) == len(data)


@given(st.data())
def test_cut_or_changed_records_never_crash(data: st.DataObject) -> None:
    whole = bytearray(record(properties="TAGS\x01a\x02") * 2)
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        messages = decode_records(cut)
    except RecordDamagedError:
        return
    assert all(isinstance(got, ReceivedMessage) for got in messages)


@given(st.dictionaries(names, names, max_size=8))
def test_properties_come_back(properties: dict[str, str]) -> None:
    assert properties == parse_properties(encode_properties(properties))


def test_separators_in_properties_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="remove it"):
        encode_properties({"a": "b\x02c"})


def test_too_many_properties_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="32767 are allowed"):
        encode_batch([message("T", b"x", properties={"p": "v" * 33000})])


@given(st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_offset_ids_come_back(port: int, offset: int) -> None:
    host = f"10.1.2.3:{port}"
    assert split_offset_message_id(offset_message_id(host, offset)) == (host, offset)


@pytest.mark.parametrize("text", ["", "xyz", "7F" * 5, "ZZ" * 16])
def test_other_texts_are_no_offset_ids(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        split_offset_message_id(text)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_a_small_body_that_is_a_large_one_is_refused_before_it_is_there(kind: int) -> None:
    largest = compress(bytes(INFLATED_LIMIT_BYTES), kind, 5)
    bomb = compress(bytes(INFLATED_LIMIT_BYTES * 20), kind, 5)
    assert len(decompress(largest, FLAG_COMPRESSED | kind)) == INFLATED_LIMIT_BYTES
    tracemalloc.start()
    with pytest.raises(RecordDamagedError, match="once inflated"):
        decompress(bomb, FLAG_COMPRESSED | kind)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * INFLATED_LIMIT_BYTES
