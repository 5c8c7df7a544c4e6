"""Every field of a record lies where the table says, whichever of them are read together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.record import BODY_LENGTH_AT, FIXED, HEAD, MAGIC_V1, STORE_TIME_AT, decode_record, encode_record
from understudy.format.record_layout import FIELD_NAMES, layout, place_of, places_of

#: Name, byte and width of each field of a record with IPv4 hosts, as the reference writes it (CommitLog.java).
PLACES = [
    ("size", 0, 4),
    ("magic", 4, 4),
    ("body_crc", 8, 4),
    ("queue_id", 12, 4),
    ("flag", 16, 4),
    ("queue_offset", 20, 8),
    ("physical_offset", 28, 8),
    ("sys_flag", 36, 4),
    ("born_ms", 40, 8),
    ("born_host", 48, 8),
    ("store_ms", 56, 8),
    ("store_host", 64, 8),
    ("reconsume_times", 72, 4),
    ("prepared_transaction_offset", 76, 8),
    ("body_length", 84, 4),
]
LENGTHS = [(8, 8), (20, 8), (8, 20), (20, 20)]


@pytest.mark.parametrize(("name", "at", "width"), PLACES)
def test_a_field_lies_where_the_reference_writes_it(name: str, at: int, width: int) -> None:
    assert (at, width) == (place_of(name), layout(name, begin=name).size)


def test_no_field_is_forgotten() -> None:
    assert [name for name, _, _ in PLACES] == list(FIELD_NAMES)
    assert FIXED[8, 8].size == PLACES[-1][1] + PLACES[-1][2]
    assert (places_of("store_ms"), places_of("body_length")) == (STORE_TIME_AT, BODY_LENGTH_AT)


@given(st.sampled_from(LENGTHS), st.sets(st.sampled_from(FIELD_NAMES), min_size=1), st.sampled_from(FIELD_NAMES))
def test_any_fields_are_read_and_written_as_all_of_them_are(
    lengths: tuple[int, int], wanted: set[str], begin: str
) -> None:
    born, store = lengths
    numbers = [100 + number for number in range(len(FIELD_NAMES))]
    values: dict[str, int | bytes] = dict(zip(FIELD_NAMES, numbers, strict=True))
    values |= {"born_host": bytes(range(born)), "store_host": bytes(range(50, 50 + store))}
    raw = FIXED[born, store].pack(*values.values())
    order = [name for name in FIELD_NAMES if name in wanted and FIELD_NAMES.index(name) >= FIELD_NAMES.index(begin)]
    chosen = layout(*order, begin=begin, born=born, store=store)
    at = place_of(begin, born=born, store=store)
    expected = tuple(values[name] for name in order)
    assert chosen.unpack_from(raw, at) == expected
    # what is packed into nothing but zeros is there and nowhere else
    if order:
        assert chosen.unpack(chosen.pack(*expected)) == expected
        assert at + chosen.size == place_of(order[-1], born=born, store=store) + width_of(order[-1], values)


def width_of(name: str, values: dict[str, int | bytes]) -> int:
    value = values[name]
    return len(value) if isinstance(value, bytes) else next(width for each, _, width in PLACES if each == name)


@pytest.mark.parametrize(("born", "store"), LENGTHS)
def test_the_places_of_ipv6_hosts_are_those_that_the_flags_say(born: int, store: int) -> None:
    host = {"born_host": bytes(born), "store_host": bytes(store)}
    raw = encode_record("T", 0, 0, 0, b"body", b"", born_ms=1, store_ms=77, **host)  # type: ignore[arg-type]
    hosts = decode_record(raw).sys_flag >> 4 & 3
    assert layout("store_ms", begin="store_ms").unpack_from(raw, STORE_TIME_AT[hosts]) == (77,)
    assert layout("body_length", begin="body_length").unpack_from(raw, BODY_LENGTH_AT[hosts]) == (4,)
    assert HEAD.unpack_from(raw)[:2] == (len(raw), MAGIC_V1)


def test_fields_in_another_order_are_a_mistake_of_the_caller() -> None:
    for names in (("magic", "size"), ("size", "size"), ("offset",)):
        with pytest.raises(ValueError, match="not in"):
            layout(*names)
    with pytest.raises(ValueError, match="not in"):
        layout("size", begin="magic")


def test_no_room_says_for_itself_where_the_fields_of_a_record_lie() -> None:
    root, found = Path(__file__).resolve().parents[2], list[str]()
    for room in ("store", "broker", "container", "ha", "mqclient", "proxy", "spark_tools", "console", "testkit"):
        for path in (root / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.name}: {each}" for each in re.findall(r'">(?:iI\w|i16xq|4xI|28xq|36xi)\w*"', text)]
    assert found == []
