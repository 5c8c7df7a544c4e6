"""Offset tables cut by patterns give exactly what the parser gives, and what has another shape goes to the parser."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("numpy")

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.format.data_version import DataVersion
from understudy.spark_tools.kernels import offset_tables, tables
from understudy.spark_tools.kernels.offset_tables import OffsetTable, read_offset_table

NAMES = st.text(st.characters(exclude_characters="@", exclude_categories=["Cs"]), max_size=6)
QUEUES = st.dictionaries(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1), max_size=5)
TABLES = st.dictionaries(
    st.tuples(NAMES, st.one_of(NAMES, NAMES.map("%LMQ%{}".format))).map("@".join), QUEUES, max_size=6
)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
LIGHTS = st.dictionaries(
    st.tuples(NAMES.map("%LMQ%{}".format), NAMES.map("%LMQ%{}".format)).map("@".join), NUMBERS, max_size=3
)
"""The table of a broker with light queues."""
BEHIND = st.dictionaries(
    st.sampled_from(
        ["resetStampTable", "removedTopicTable", "dataVersion", "offsetTable", "more", "0", "lmqOffsetTable"]
    ),
    st.one_of(
        NUMBERS,
        LIGHTS,
        st.dictionaries(NAMES, NUMBERS, max_size=3),
        st.dictionaries(NAMES, st.dictionaries(st.integers(0, 300).map(str), NUMBERS, max_size=3), max_size=3),
    ),
    max_size=3,
)
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
    behind = data.draw(st.one_of(st.just({}), BEHIND))
    text = bytearray(tables.dumps({"dataVersion": VERSION, "offsetTable": entries} | behind).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from(['"', ",", "{", "}", ":", "0", "1", "-", "@", "\\", " ", ".", "e", "\x01", "ÿ", ""])
        ).encode()

    found = offset_tables._by_pattern(bytes(text))

    if found is not None:
        parsed = offset_tables._by_parser(bytes(text))
        assert (rows(found), found.version, parsed.odd) == (rows(parsed), parsed.version, [])


@settings(max_examples=300, deadline=None)
@given(TABLES, BEHIND, st.sampled_from(["fastjson", "strict", "compact"]))
def test_what_stands_behind_the_entries_changes_nothing(
    entries: dict[str, dict[int, int]], behind: dict[str, Any], written: str
) -> None:
    """Given a table with further keys, some of them standing twice; then pattern and parser agree on it."""
    first = {"dataVersion": VERSION, "offsetTable": entries}
    if written == "fastjson":
        head, rest = tables.dumps(first), tables.dumps(behind)
    else:
        separators = (",", ":") if written == "compact" else None
        head, rest = json.dumps(first, separators=separators), json.dumps(behind, separators=separators)
    text = (head.rstrip()[:-1] + ("," if behind else "") + rest.lstrip()[1:]).encode()

    found = read_offset_table(text)

    parsed = offset_tables._by_parser(text)
    assert (rows(found), found.version, found.odd) == (rows(parsed), parsed.version, parsed.odd)
    if "offsetTable" not in behind and "lmqOffsetTable" not in behind:
        assert rows(found) == expected(entries)


@pytest.mark.parametrize(
    "behind",
    [
        {"resetStampTable": {"Topic1@group1": {"0": 1_700_000_000_123, "1": 5}}},
        {"removedTopicTable": {"Gone": 1_700_000_000_000}},
        {"resetStampTable": {"Topic1@group1": {"0": 5}}, "removedTopicTable": {"Gone": 6}},
        {"resetStampTable": {}, "later": 7},
    ],
)
def test_a_table_with_resets_and_removed_topics_behind_it_needs_no_parser(behind: dict[str, Any]) -> None:
    entries = {f"Topic{n % 7}@group{n}": {queue: queue * n for queue in range(8)} for n in range(50)}
    content = {"dataVersion": VERSION, "offsetTable": entries} | behind
    for text in (tables.dumps(content), json.dumps(content, indent=2), json.dumps(content, separators=(",", ":"))):
        found = offset_tables._by_pattern(text.encode())

        assert found is not None
        assert (rows(found), found.version) == (expected(entries), DataVersion(1, 3, 1_700_000_000_000))


def test_a_brokers_own_table_needs_no_parser() -> None:
    entries = {f"Topic{n % 7}@group{n}": {queue: queue * n for queue in range(8)} for n in range(50)}
    text = tables.dumps({"dataVersion": VERSION, "offsetTable": entries}).encode()

    found = offset_tables._by_pattern(text)

    assert found is not None
    assert rows(found) == expected(entries)


@settings(max_examples=300, deadline=None)
@given(TABLES, LIGHTS, st.sampled_from(["fastjson", "strict", "compact"]), st.booleans())
def test_offsets_of_light_queues_stand_before_or_behind_the_others_and_count_before_them(
    entries: dict[str, dict[int, int]], lights: dict[str, int], written: str, before: bool
) -> None:
    tops = {"groupTopicMap": {"g": ["T", "U"]}, "lmqOffsetTable": lights} if before else {}
    ends = {} if before else {"lmqOffsetTable": lights}
    content = {"dataVersion": VERSION} | tops | {"offsetTable": entries} | ends
    if written == "fastjson":
        text = tables.dumps(content)
    else:
        text = json.dumps(content, separators=(",", ":") if written == "compact" else None)

    found = read_offset_table(text.encode())

    numbers = {key: value for key, value in lights.items() if -(1 << 63) <= value < 1 << 63}
    wanted = [row for row in expected(entries) if row[2] != 0 or f"{row[0]}@{row[1]}" not in numbers]
    wanted += [(*key.split("@", 1), 0, value) for key, value in numbers.items()]  # type: ignore[misc]
    assert rows(found) == wanted
    assert (found.version, found.odd) == (DataVersion(1, 3, 1_700_000_000_000), [])


@pytest.mark.parametrize("before", [True, False])
def test_a_table_of_a_broker_with_light_queues_needs_no_parser(before: bool) -> None:
    entries = {f"Topic{n % 7}@group{n}": {queue: queue * n for queue in range(8)} for n in range(50)}
    lights = {f"%LMQ%{n}@%LMQ%{n}": n for n in range(100)}
    first = {"dataVersion": VERSION} | (
        {"groupTopicMap": {"g": ["a", "b"]}, "lmqOffsetTable": lights} if before else {}
    )
    content = first | {"offsetTable": entries} | ({} if before else {"lmqOffsetTable": lights})
    found = offset_tables._by_pattern(tables.dumps(content).encode())

    assert found is not None
    assert rows(found) == expected(entries) + [(f"%LMQ%{n}", f"%LMQ%{n}", 0, n) for n in range(100)]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"%LMQ%a@%LMQ%g": "x"}, "lmqOffsetTable entry '%LMQ%a@%LMQ%g' with 'x' is no offset"),
        ({"%LMQ%a@%LMQ%g": 1 << 63}, "is no offset of a light queue's group"),
        ({"%LMQ%a@plain": 1}, "lmqOffsetTable entry '%LMQ%a@plain' with 1 is no offset"),
        ({"%LMQ%a": 1}, "lmqOffsetTable entry '%LMQ%a' with 1 is no offset"),
        ([7], "lmqOffsetTable is no map"),
    ],
)
def test_what_is_no_offset_of_a_light_queue_is_named_and_left_out(table: Any, complaint: str) -> None:
    found = read_offset_table(json.dumps({"offsetTable": {"T@g": {"0": 5}}, "lmqOffsetTable": table}).encode())

    assert rows(found) == [("T", "g", 0, 5)]
    assert complaint in found.odd[0]
    assert len(found.odd) == 1


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


@pytest.mark.parametrize("pair", ["0:9999999999999999999", "99999999999:5", "0:1.5", "x:1"])
def test_numbers_a_broker_cannot_hold_are_named(pair: str) -> None:
    key, value = pair.split(":")
    found = read_offset_table(f'{{"offsetTable":{{"a@b":{{"{key}":{value},1:7}}}}}}'.encode())

    assert rows(found) == [("a", "b", 1, 7)]
    assert len(found.odd) == 1
    assert repr(key) in found.odd[0]


def test_a_number_that_no_broker_reads_makes_its_table_a_damaged_one() -> None:
    with pytest.raises(tables.TableError, match="more than 64 bits hold"):
        read_offset_table(b'{"offsetTable":{"a@b":{"0":99999999999999999999,1:7}}}')
