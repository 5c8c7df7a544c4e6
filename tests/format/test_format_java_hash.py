"""One hash for tags, index keys and queues; the values are well known, or follow from the definition."""

from __future__ import annotations

import pytest

from understudy.format.java_hash import index_key_hash, java_hash, java_hash_of_bytes

VALUES = [
    ("", 0),
    ("TagA", 2598919),
    ("\u6807\u7b7e", 26631 * 31 + 31614),
    ("polygenelubricants", -(1 << 31)),
    ("\U0001f600", 1772899),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert expected == java_hash(text)
    assert expected == java_hash_of_bytes(text.encode())


def test_half_a_surrogate_pair_is_a_unit_of_its_own() -> None:
    assert 0xD83D == java_hash("\ud83d")
    assert 31 * ord("a") + 0xD83D == java_hash("a\ud83d")


@pytest.mark.parametrize(
    ("key", "expected"), [("TagA", 2598919), ("polygenelubricants", 0), ("GydZG_", 0), ("DESIGNING WORKHOUSES", 0)]
)
def test_the_index_takes_the_absolute_value(key: str, expected: int) -> None:
    assert expected == index_key_hash(key)


def test_a_negative_hash_becomes_positive() -> None:
    assert -1818553355 == java_hash("topic#key-7")
    assert 1818553355 == index_key_hash("topic#key-7")


#: Bytes that are no UTF-8, and what `new String(bytes, UTF_8).hashCode()` is of them.
NO_UTF_8 = [
    ("e0ed", 2097056),
    ("41e49fed90bf41", 66598078),
    ("e4f5a090edef", 1662371552),
    ("f4ededbac3a0f4", -1888064454),
    ("edbae4e4bfa0", 65029184),
    ("41baed", 2159521),
    ("feededf080e4", 1662371552),
    ("9fc3edf0", 2017367872),
    ("ed9090c041f49f", 550953620),
    ("edfef441a0", -1888069383),
    ("ed", 65533),
    ("bff0e0f0f0f5ed", -6023907),
    ("a0edfee4ed9f", -1886039875),
    ("edc041", 65008801),
    ("ed9fa0e480a0", 1729600),
    ("f0bfed90ed90", 65074269),
    ("f0f0f0c3", 2017367872),
    ("80c0e4bfef80fe", -1886039875),
    ("f4f0a080f4", 65074269),
    ("c3baeff0f4c341", 976215111),
    ("e4f09fef", 65074269),
    ("efbfefe4ba", 65074269),
    ("f0", 65533),
    ("c3f0fe", 65074269),
]


@pytest.mark.parametrize(("text", "expected"), NO_UTF_8)
def test_bytes_that_are_no_text_have_the_hash_of_what_java_reads(text: str, expected: int) -> None:
    assert expected == java_hash_of_bytes(bytes.fromhex(text))
