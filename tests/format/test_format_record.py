"""Records, properties, ids and batches against byte-exact vectors, and round trips of anything."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.batch import BatchError, encode_batch, iter_batch
from understudy.format.java_hash import java_hash, unsigned_hash
from understudy.format.properties import find_property, format_properties, parse_properties
from understudy.format.record import (
    RecordError,
    decode_host,
    decode_offset_message_id,
    decode_record,
    encode_host,
    encode_record,
)

VECTORS: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "store" / "records.json.gz").read_bytes())
)
PLAIN_RECORDS = [vector for vector in VECTORS["records"] if not vector["input"]["appendPropCRC"]]
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)


@pytest.mark.parametrize(("value", "expected"), VECTORS["javaStringHash"].items())
def test_hash_is_that_of_java(value: str, expected: int) -> None:
    assert java_hash(value) == expected


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=600), st.text(max_size=8).filter(str.isascii))
def test_hash_of_a_concatenation_goes_on_from_the_hash_of_its_beginning(first: str, second: str) -> None:
    units = (first + second).encode("utf-16-be")
    expected = 0
    for (unit,) in struct.iter_unpack(">H", units):
        expected = (expected * 31 + unit) & 0xFFFFFFFF
    assert unsigned_hash(second.encode(), unsigned_hash(first.encode())) == expected


@pytest.mark.parametrize("vector", PLAIN_RECORDS, ids=[vector["name"] for vector in PLAIN_RECORDS])
def test_records_are_byte_for_byte_those_of_the_reference(vector: dict[str, Any]) -> None:
    given_, expected = vector["input"], vector["expected"]
    encoded = encode_record(
        given_["topic"],
        given_["queueId"],
        given_["queueOffset"],
        given_["physicalOffset"],
        bytes.fromhex(given_["bodyHex"]),
        given_["propertiesString"].encode(),
        flag=given_["flag"],
        sys_flag=given_["sysFlag"],
        born_ms=given_["bornTimestamp"],
        born_host=encode_host(*given_["bornHost"]),
        store_ms=given_["storeTimestamp"],
        store_host=encode_host(*given_["storeHost"]),
        reconsume_times=given_["reconsumeTimes"],
        prepared_transaction_offset=given_["preparedTransactionOffset"],
    )
    assert encoded.hex() == expected["recordHex"]
    record = decode_record(encoded)
    assert record.message_id == expected["offsetMsgId"]
    assert record.sys_flag == expected["sysFlagStored"]
    assert decode_offset_message_id(record.message_id) == (*decode_host(record.store_host), record.physical_offset)


@given(
    body=st.binary(max_size=300),
    pairs=st.dictionaries(text.filter(bool), text.filter(bool), max_size=5),
    topic=st.text(st.sampled_from("abcXYZ_%-主题"), min_size=1, max_size=40),
    queue_id=st.integers(0, 1 << 20),
    offsets=st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)),
    hosts=st.tuples(st.ip_addresses(), st.ip_addresses()),
)
def test_what_is_encoded_is_decoded(
    body: bytes,
    pairs: dict[str, str],
    topic: str,
    queue_id: int,
    offsets: tuple[int, int],
    hosts: tuple[object, object],
) -> None:
    born, stored = (encode_host(str(host), 1234) for host in hosts)
    properties = format_properties(pairs)
    encoded = encode_record(
        topic, queue_id, *offsets, body, properties.encode(), born_host=born, store_host=stored, store_ms=5
    )
    record = decode_record(b"before" + encoded + b"after", 6)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == (topic, queue_id, *offsets)
    assert (record.body, record.properties, record.size_bytes) == (body, pairs, len(encoded))
    assert (record.born_host, record.store_host, record.store_ms) == (born, stored, 5)


@given(st.data())
def test_a_changed_or_cut_record_is_refused_or_differs_outside_its_body(data: st.DataObject) -> None:
    encoded = bytearray(encode_record("Topic", 1, 2, 3, b"a body of some length", b"A\x01b\x02"))
    original = decode_record(bytes(encoded))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        record = decode_record(bytes(encoded))
    except RecordError:
        return
    assert record.body == original.body


@given(st.binary(max_size=400))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    try:
        assert decode_record(data).size_bytes <= len(data)
    except RecordError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("A\x01b\x02", {"A": "b"}),
        ("A\x01b", {"A": "b"}),
        ("A\x01\x02B\x01c\x02", {"B": "c"}),
        ("\x01v\x02B\x01c\x02", {"B": "c"}),
        ("A\x01b\x02A\x01c\x02", {"A": "c"}),
        ("A\x01b\x01c\x02", {"A": "b\x01c"}),
        ("nonsense", {}),
        ("", {}),
    ],
)
def test_properties_are_read_as_the_reference_reads_them(raw: str, expected: dict[str, str]) -> None:
    assert parse_properties(raw) == expected
    for name, value in expected.items():
        assert find_property(raw.encode(), name.encode() + b"\x01") == value.encode()


@given(st.dictionaries(text.filter(bool), text, max_size=6), st.sampled_from(["KEYS", "TAGS", "A"]))
def test_one_property_is_found_as_in_all_of_them(pairs: dict[str, str], name: str) -> None:
    raw = format_properties(pairs | {"A": "1", "xTAGS": "no"})
    value = parse_properties(raw).get(name)
    assert find_property(raw.encode(), name.encode() + b"\x01") == (None if value is None else value.encode())


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=50), st.binary(max_size=30)), max_size=6))
def test_batches_are_decoded_as_they_were_encoded(messages: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(messages)
    decoded = [
        (flag, body[at : at + length], body[at + length + 2 : end]) for flag, at, length, end in iter_batch(body)
    ]
    assert decoded == messages


@given(st.binary(min_size=1, max_size=100))
def test_any_bytes_are_a_batch_or_refused_with_a_reason(data: bytes) -> None:
    try:
        items = list(iter_batch(data))
    except BatchError as error:
        assert "batch item at byte" in str(error)
    else:
        assert items[-1][3] == len(data)


def test_topics_without_a_length_that_fits_are_refused() -> None:
    with pytest.raises(RecordError, match="has 150 bytes"):
        encode_record("主" * 50, 0, 0, 0, b"", b"")
