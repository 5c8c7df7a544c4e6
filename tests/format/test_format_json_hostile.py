"""Text of hostile peers costs what its length allows, and what is read can be written again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.json_dialect import JsonError, dumps, loads, loads_in_steps
from understudy.testkit.processor_time import least_seconds, least_turns

KIB = 1024
SOON_TURNS = 450
"""Half a second on a quiet machine, and some room: where a turn is 1.5 ms the dearest family takes 0.42 to 0.48 s."""

FAMILIES: dict[str, Callable[[int], bytes]] = {
    "escaped quotes without an end": lambda size: b'{"a' + b'\\"' * (size // 2),
    "escaped quotes": lambda size: b'{a:"' + b'x\\"' * (size // 3) + b'"}',
    "backslashes": lambda size: b"['" + b"\\" * size,
    "surrogates": lambda size: b"['" + b"\\ud83d" * (size // 6) + b"']",
    "single quotes": lambda size: b"['" * (size // 2),
    "quotes": lambda size: b'"' * size,
    "open lists": lambda size: b"[" * size,
    "open objects": lambda size: b'{"a":' * (size // 5),
    "open objects in objects": lambda size: b"{" * size,
    "deep, again and again": lambda size: (b"[" * 60 + b"1" + b"]" * 60 + b",") * (size // 122),
    "empty lists": lambda size: b"[" + b"[]," * (size // 3) + b"]",
    "empty objects": lambda size: b"[" + b"{}," * (size // 3) + b"]",
    "identifiers as keys": lambda size: b"[" + b"{a:1}," * (size // 6) + b"]",
    "numbers as keys": lambda size: b"[" + b"{1:1}," * (size // 6) + b"]",
    "numbers as keys without an end": lambda size: b"{" + b"1:1," * (size // 4),
    "objects as keys": lambda size: b"{" + b'{"q":0,"t":"t"}:{"o":1},' * (size // 24) + b"}",
    "numbers": lambda size: b"[" + b"1," * (size // 2) + b",]",
    "fractions": lambda size: b"[" + b"1.5e3," * (size // 6) + b",]",
    "texts": lambda size: b"[" + b'"",' * (size // 3) + b",]",
    "digits": lambda size: b"{a:" + b"9" * size + b"}",
    "commas": lambda size: b"[" + b"," * size,
    "blanks": lambda size: b"{" + b" " * size,
    "commas with blanks": lambda size: b"{" + b", " * (size // 2),
    "keys without a value": lambda size: b"{" + b",1 " * (size // 3),
    "nothing fits a run": lambda size: b"[" + b"[[1],[[1]]]," * (size // 12) + b"]",
    "runs that end badly": lambda size: b"[" + (b"[" + b'"a",' * 900 + b"[[1]]],") * (size // 3600) + b"]",
}
#: What 16 MiB of a family cost, in turns of the loop; all others take 7 or 8.
TURNS = {
    "empty lists": 290,
    "empty objects": 144,
    "identifiers as keys": 126,
    "numbers as keys": 158,
    "numbers as keys without an end": 90,
    "objects as keys": 153,
    "numbers": 147,
    "fractions": 167,
    "texts": 86,
    "commas": 37,
    "blanks": 23,
    "commas with blanks": 31,
    "nothing fits a run": 111,
    "runs that end badly": 231,
}


def reading(read: Callable[[bytes], object], text: bytes) -> Callable[[], None]:
    def work() -> None:
        with contextlib.suppress(JsonError):
            read(text)

    return work


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("read", [loads, loads_in_steps])
def test_time_for_a_byte_does_not_grow_with_the_length(read: Callable[[bytes], object], family: str) -> None:
    small, large = FAMILIES[family](4 * KIB), FAMILIES[family](64 * KIB)

    first = least_seconds(reading(read, small), 0)

    # 16 times the length; what is quadratic takes 256 times as long. The 10 ms are for what takes no time at all.
    bound = 64 * first + 0.01
    assert least_seconds(reading(read, large), bound) < bound


@pytest.mark.parametrize("family", FAMILIES)
def test_sixteen_mebibytes_are_read_or_refused_soon(family: str) -> None:
    text = FAMILIES[family](16 * KIB * KIB)

    # What takes four times as long as it did fails, but for what is refused at once, in a hundredth of a second.
    # Another processor and another Python may take twice as long.
    bound = min(2 * TURNS.get(family, 8) + 10, SOON_TURNS)
    assert least_turns(reading(loads_in_steps, text), bound) < bound


def test_a_text_with_too_many_values_says_so_and_large_tables_are_read() -> None:
    topics = b",".join(
        b'"topic%05d":{"attributes":{},"perm":6,"topicName":"topic%05d"}' % (i, i) for i in range(20_000)
    )
    offsets = b",".join(b'"t%d@g":{0:1,1:2,2:3,3:4,4:5,5:6,6:7,7:8}' % i for i in range(10_000))

    assert len(loads_in_steps(b"{" + topics + b"}")) == 20_000
    assert len(loads_in_steps(b"{" + offsets + b"}")) == 10_000
    with pytest.raises(JsonError, match="too many values or escapes"):
        loads_in_steps(FAMILIES["empty lists"](16 * KIB * KIB))


@pytest.mark.parametrize("read", [loads, loads_in_steps])
@pytest.mark.parametrize(
    "text",
    [
        '["\\ud800"]',
        '["\\udc00x"]',
        '["\\ud800\\u0041"]',
        "{'\\udfff':1}",
        '{"a":{"b":"\\ud800"}}',
        "[1e999,]",
        "[-1e999]",
        f"[{10**30}]",
        f"{{a:{10**30}}}",
        f'{{"a":[{-(1 << 63) - 1}]}}',
        "9" * 5000,
        "[" * 66 + "]" * 66,
        '{"a":' * 70 + "1" + "}" * 70,
        "{a:" * 70 + "1" + "}" * 70,
    ],
)
def test_what_could_not_be_written_again_is_not_read(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(JsonError):
        read(text)


odd = st.text("{}[]:,\"'\\0aé1ud8- tr.e+", max_size=40)


@given(odd)
def test_what_is_read_can_be_written_and_read_again(text: str) -> None:
    try:
        value = loads(text)
    except JsonError:
        return
    assert loads(dumps(value)) == value
    assert loads(dumps(value, bare_keys=True)) == value


@given(odd)
def test_in_steps_and_in_one_go_the_same_is_read(text: str) -> None:
    results = []
    for read in (loads, loads_in_steps):
        try:
            results.append(repr(read(text)))
        except JsonError:
            results.append("refused")
    assert results[0] == results[1]
