"""Header fields in bytes: read as hpack writes them, refused where they are none."""

from __future__ import annotations

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from understudy.proxy.grpc.fields import (
    TABLE_BYTES,
    FieldsError,
    FieldsReader,
    TooManyFieldsError,
    WrongFieldsError,
    block_of,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=40)
OF_CONNECTIONS = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Lu"]), min_size=1, max_size=40).filter(
    lambda name: name[0] != ":" and name not in OF_CONNECTIONS
)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.lists(st.tuples(NAMES, TEXTS), max_size=8), st.booleans()), max_size=12),
)
def test_fields_are_read_as_they_were_written_whatever_the_tables_size(
    blocks: list[tuple[int, list[tuple[str, str]], bool]],
) -> None:
    encoder, reader = Encoder(), FieldsReader(1 << 20)
    for size, fields, packed in blocks:
        encoder.header_table_size = min(size * 100, TABLE_BYTES)
        assert dict(fields) == reader.read(encoder.encode(fields, huffman=packed))


def test_wrong_bytes_in_a_text_move_nothing_in_the_table() -> None:
    """Each counts as one byte, whatever stands for it in the text: else fields would leave the table too soon."""
    encoder, reader = Encoder(), FieldsReader(1 << 20)
    for number in range(60):
        wrong = b"\xff" * 30 + b"%d" % number
        fields = [(b"x-wrong", wrong), (b"x-number", b"%d" % (number % 7)), (b"\xfe" * 5, b"x")]
        expected = {"x-wrong": wrong.decode("utf-8", "replace"), "x-number": str(number % 7), "\ufffd" * 5: "x"}
        assert expected == reader.read(encoder.encode(fields, huffman=False))


@given(st.binary(max_size=100))
def test_any_bytes_are_header_fields_or_refused(data: bytes) -> None:
    try:
        FieldsReader(500).read(data)
    except FieldsError as error:
        assert str(error)


@pytest.mark.parametrize(
    "block",
    [b"\x80", b"\xbe", b"\x7e\x01x", b"\x40\x05abc", b"\x3f\xe2\x1f", b"\x82\x20", b"\x20\x20\x20",
     b"\xff\x80\x80\x80\x80\x80\x01", b"\x40\x81\xff\x01x", b"\x40"],
    ids=["field 0", "no such field", "no such name", "cut", "a large table", "a table in the middle", "three tables",
         "an endless number", "no such code", "no name"],
)  # fmt: skip
def test_what_is_no_header_field_is_refused(block: bytes) -> None:
    with pytest.raises(FieldsError):
        FieldsReader(8_192).read(block)


def test_a_list_of_fields_has_a_limit_that_the_table_cannot_pass_by() -> None:
    reader = FieldsReader(1_000)
    (block,) = [Encoder().encode([("x-large", "y" * 300)])]
    assert {"x-large": "y" * 300} == reader.read(block)
    assert {"x-large": "y" * 300} == reader.read(b"\xbe" * 2)
    with pytest.raises(TooManyFieldsError):
        reader.read(b"\xbe" * 3)


def test_long_texts_have_their_length_before_them() -> None:
    for size in (126, 127, 128, 254, 255, 300, 20_000):
        fields = [(b"x", b"y" * size)]
        assert {"x": "y" * size} == FieldsReader(1 << 20).read(block_of(fields))


@pytest.mark.parametrize(
    "fields",
    [[("X-Upper", "x")], [("", "x")], [("x", "a\r\nb")], [("x", "a\nb")], [("x", "a\0b")], [("connection", "close")],
     [("transfer-encoding", "")], [("x", "y"), (":path", "/")], [(":path", "/"), (":path", "/")], [(":status", "200")],
     [(":foo", "1")]],
    ids=["upper case", "no name", "a line end", "a short line end", "a zero", "of a connection",
         "of a connection, known", "a late pseudo-field", "a pseudo-field twice", "a pseudo-field of answers",
         "an unknown pseudo-field"],
)  # fmt: skip
def test_what_no_request_may_have_is_refused(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(WrongFieldsError):
        FieldsReader(8_192).read(Encoder().encode(fields))


def test_a_table_that_was_made_small_keeps_no_more_than_that() -> None:
    reader, long = FieldsReader(8_192), (b"x-long", b"y" * 100)
    added = b"\x40" + block_of([long])[1:]  # a literal that enters the table
    assert {"x-long": "y" * 100} == reader.read(added) == reader.read(b"\xbe")
    reader.read(b"\x20")  # no room at all
    assert {"x-long": "y" * 100} == reader.read(added)
    with pytest.raises(FieldsError):
        reader.read(b"\xbe")
