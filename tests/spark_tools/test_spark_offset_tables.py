"""Offset tables cut by patterns give exactly what the parser gives, and what has another shape goes to the parser."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("numpy")

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.spark_tools.kernels import offset_tables, tables
from understudy.spark_tools.kernels.offset_tables import OffsetTable, read_offset_table
from understudy.spark_tools.kernels.tables import DataVersion

NAMES = st.text(st.characters(exclude_characters="@", exclude_categories=["Cs"]), max_size=6)
QUEUES = st.dictionaries(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1), max_size=5)
TABLES = st.dictionaries(st.tuples(NAMES, NAMES).map("@".join), QUEUES, max_size=6)
VERSION = {"counter": 3, "stateVersion": 1, "timestamp": 1_700_000_000_000}


def rows(table: OffsetTable) -> list[tuple[str, str, int, int]]:
    return [
        (table.topics[key], table.groups[key], queue, offset)
        for key, queue, offset in zip(table.keys.tolist(), table.queues.tolist(), table.offsets.tolist(), strict=True)
    ]


def expected(entries: dict[str, dict[int, int]]) -> list[tuple[str, str, int, int]]:
    parts = [(key.partition("@"), queues) for key, queues in entries.items()]
    return [(topic, group, queue, offset) for (topic, _, group), q in parts for queue, offset in q.items()]


@settings(max_examples=200, deadline=None)
@given(TABLES, st.sampled_from(["fastjson", "strict", "compact"]))
def test_every_table_reads_as_it_was_written(entries: dict[str, dict[int, int]], written: str) -> None:
    content = {"dataVersion": VERSION, "offsetTable": entries}
    if written == "fastjson":
        text = tables.dumps(content)
    else:
        text = json.dumps(content, separators=(",", ":") if written == "compact" else None)

    found = read_offset_table(text.encode())

    assert rows(found) == expected(entries)
    assert (found.version, found.odd) == (DataVersion(1, 3, 1_700_000_000_000), [])


@settings(max_examples=300, deadline=None)
@given(TABLES, st.data())
def test_the_pattern_never_takes_what_the_parser_reads_differently(
    entries: dict[str, dict[int, int]], data: st.DataObject
) -> None:
    """Given a table with a few bytes changed; when the pattern accepts it; then the parser says the same."""
    text = bytearray(tables.dumps({"dataVersion": VERSION, "offsetTable": entries}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from(['"', ",", "{", "}", ":", "0", "1", "-", "@", "\\", " ", ".", "e", "\x01", "ÿ", ""])
        ).encode()

    found = offset_tables._by_pattern(bytes(text))

    if found is not None:
        parsed = offset_tables._by_parser(bytes(text))
        assert (rows(found), found.version, parsed.odd) == (rows(parsed), parsed.version, [])


def test_a_brokers_own_table_needs_no_parser() -> None:
    entries = {f"Topic{n % 7}@group{n}": {queue: queue * n for queue in range(8)} for n in range(50)}
    text = tables.dumps({"dataVersion": VERSION, "offsetTable": entries}).encode()

    found = offset_tables._by_pattern(text)

    assert found is not None
    assert rows(found) == expected(entries)


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"a@b":{0:1,0:2}}}',
        '{"offsetTable":{"a@b":{0:1},"a@b":{0:2}}}',
        '{"offsetTable":{"a@b":{0:2,}}}',
    ],
)
def test_of_what_stands_twice_the_last_counts(text: str) -> None:
    assert rows(read_offset_table(text.encode())) == [("a", "b", 0, 2)]


@pytest.mark.parametrize("pair", ["0:99999999999999999999", "99999999999:5", "0:1.5", "x:1"])
def test_numbers_a_broker_cannot_hold_are_named(pair: str) -> None:
    key, value = pair.split(":")
    found = read_offset_table(f'{{"offsetTable":{{"a@b":{{"{key}":{value},1:7}}}}}}'.encode())

    assert rows(found) == [("a", "b", 1, 7)]
    assert len(found.odd) == 1
    assert repr(key) in found.odd[0]
