"""JSON as Java peers write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.json_dialect import JsonError, ObjectKey, dumps, loads, loads_in_steps

DATA = Path(__file__).parents[1] / "data"

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc\"'\\,:{}[]é0 1", max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_standard_json_survives_a_round_trip(value: object) -> None:
    assert value == loads(dumps(value))
    assert value == json.loads(dumps(value))


@given(plain)
def test_the_tolerant_reader_reads_what_the_standard_one_reads(value: object) -> None:
    text = dumps(value).decode()
    assert [value] == loads("[" + text + ",,]")  # the stray commas keep the standard reader out
    assert [value] == loads("[" + text + ",'x']")[:1]
    assert value == loads_in_steps(text)


@given(st.dictionaries(st.integers(0, 1000), st.integers(-(1 << 63), (1 << 63) - 1), max_size=5))
def test_numeric_keys_are_written_bare_or_quoted_and_read_alike(table: dict[int, int]) -> None:
    expected = {str(key): value for key, value in table.items()}
    assert expected == loads(dumps(table, bare_keys=True)) == loads(dumps(table))


def test_objects_as_keys() -> None:
    queue = {"topic": "t", "brokerName": "b", "queueId": 0}
    text = '{"brokerName":"b","queueId":0,"topic":"t"}'

    assert b'{{"brokerName":"b","queueId":0,"topic":"t"}:1}' == dumps({ObjectKey(queue): 1}, bare_keys=True)
    assert {text: 1} == loads(dumps({ObjectKey(queue): 1}, bare_keys=True)) == loads(dumps({ObjectKey(queue): 1}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1,1:2}", {"0": 1, "1": 2}),
        ("{-1:1}", {"-1": 1}),
        ("{a:'x\\'y',b:[1,2,],}", {"a": "x'y", "b": [1, 2]}),
        ('{"$ref":"$.a",}', {"$ref": "$.a"}),
        ('{a:"\\u00e9\\ud83d\\ude00\\n"}', {"a": "é😀\n"}),
        ("[1.5e3,-2,true,false,null,]", [1500.0, -2, True, False, None]),
    ],
)
def test_the_dialect(text: str, value: object) -> None:
    assert value == loads(text)


@pytest.mark.parametrize(
    "text", ["", "{", "{a", "{a:", "[1", '"x', "{a:1}}", "nul", "{a:\\}", "[" * 100_000, "{'\\ud83d\\u12"]
)
def test_damaged_text_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(JsonError, match=r"character|levels"):
        loads(text)


@given(st.text("{}[]:,\"'\\0aétrue- 1u", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        loads(text)
    except JsonError as error:
        assert str(error)


def bodies(value: object) -> Iterator[str]:
    """Every JSON object inside the texts of a capture, one capture a file."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, str) and item.startswith("{") and item.endswith("}") and ":" in item:
            yield item
        yield from bodies(item)


def test_captured_bodies_mean_the_same_however_they_are_read() -> None:
    texts = [
        text
        for path in sorted([*DATA.rglob("*.json"), *DATA.rglob("*.jsonl")])
        for line in ([path.read_text()] if path.suffix == ".json" else path.read_text().splitlines())
        for text in bodies(json.loads(line))
    ]
    dialect = 0
    for text in texts:
        value = loads_in_steps(text)
        try:
            assert value == json.loads(text)
        except json.JSONDecodeError:
            dialect += 1
            assert value == loads(dumps(value)) == loads(text)
    assert len(texts) > 100
    assert dialect > 10
