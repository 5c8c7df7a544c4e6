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
