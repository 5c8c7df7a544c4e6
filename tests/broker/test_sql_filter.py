"""SQL92 conditions: what the reference's compiler and evaluator made of 183 texts, where ours differs, and bounds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.broker.property_filter import PropertyFilter
from understudy.broker.sql_filter.expression import ExpressionCache, compile_expression
from understudy.broker.sql_filter.lexer import MAX_TEXT, SqlError
from understudy.broker.sql_filter.parser import MAX_DEPTH, MAX_LISTED
from understudy.broker.sql_filter.values import EvaluationError, compare_doubles, to_double, to_int, to_long
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import encode_host, encode_record, properties_of
from understudy.testkit.processor_time import least_seconds

CAPTURED = Path(__file__).parents[1] / "data" / "sql_filter" / "cases.jsonl"
HEAD, *CASES = [json.loads(line) for line in CAPTURED.read_text().splitlines()]
PROPERTIES: dict[str, str] = HEAD["properties"]
LEFT_OUT = {"s LIKE 'a%'", "a + 1 = 4", "a = 0x10", "a = 03", "x-y = 1", "a = 3 a = 3"}
"""Texts of which the reference reads the beginning only; ours are refused."""


def result_of(text: str, properties: dict[str, str]) -> str:
    try:
        expression = compile_expression(text)
    except SqlError:
        return "COMPILE-ERR"
    try:
        found = {True: "true", False: "false", None: "null"}[expression.evaluate(properties)]
    except EvaluationError:
        found = "EVAL-ERR"
    assert expression.matches(properties) is (found == "true")
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["expression"] for case in CASES])
def test_captured_cases(case: dict[str, str]) -> None:
    text = case["expression"]
    expected = "COMPILE-ERR" if text in LEFT_OUT else case["result"]
    assert expected == result_of(text, PROPERTIES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = 3 b", "the condition ends before 'b', which would be left out (at line 1, column 7)"),
        ("a >\n  'x'", "Value ''x'' cannot be compared. (at line 1, column 3)"),
        ("a = 3 AND\n  b ! 4", "'!' begins no word (at line 2, column 5)"),
        ("a = ", "a value must follow (at line 1, column 5)"),
        ("", "a value must follow (at line 1, column 1)"),
        ("(a = 3", ") must follow (at line 1, column 7)"),
        ("a IN (3)", "a string must stand here, not '3' (at line 1, column 7)"),
        ("a IS b", "NULL must stand here, not 'b' (at line 1, column 6)"),
        ("a NOT 3", "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH must follow this NOT (at line 1, column 7)"),
        ("s = 'it", "a string without its closing quote (at line 1, column 5)"),
        ("a /* b", "a comment without its end (at line 1, column 3)"),
        ("a = 0.0", "0.0 is less than 4.9E-324; the whole number 0 is written 0 (at line 1, column 5)"),
        ("1 + 1", "the condition ends before '+', which would be left out (at line 1, column 3)"),
        ("1", "Expression will not result in a boolean value: 1 (at line 1, column 1)"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, why: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_expression(text)
    assert str(caught.value) == f"Invalid MessageSelector. {why}"


def test_names_are_those_that_are_looked_at() -> None:
    assert compile_expression("a > 1 AND (TAGS IN ('x') OR NOT b)").names == {"a", "TAGS", "b"}


LITERALS = st.sampled_from(["'3'", "'x'", "3", "-2", "4L", "2.5", "9999999999"])
NAMES = st.sampled_from(["a", "b", "s", "missing"])
LEAVES = st.one_of(
    st.tuples(st.just("="), NAMES, LITERALS),
    st.tuples(st.just("<>"), NAMES, LITERALS),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), NAMES, LITERALS.filter(lambda text: text[0] != "'")),
    st.tuples(st.just("null"), NAMES),
    st.tuples(st.just("in"), NAMES),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.tuples(st.sampled_from(["AND", "OR"]), inner, inner), st.tuples(st.just("NOT"), inner)),
    max_leaves=12,
)


def written(tree: Any) -> str:
    match tree:
        case ("null", name):
            return f"{name} IS NULL"
        case ("in", name):
            return f"{name} IN ('3', 'x')"
        case ("NOT", inner):
            return f"NOT ({written(inner)})"
        case ("AND" | "OR" as word, left, right):
            return f"({written(left)}) {word} ({written(right)})"
    sign, name, literal = tree
    return f"{name} {sign} {literal}"


def meant(tree: Any, held: dict[str, str]) -> bool | None:
    """The truth of a tree, by the rules as they are written down and not as they are compiled."""
    match tree:
        case ("null", name):
            return name not in held
        case ("in", name):
            return held[name] in ("3", "x") if name in held else None
        case ("NOT", inner):
            value = meant(inner, held)
            return None if value is None else not value
        case ("AND" | "OR" as word, left, right):
            first = meant(left, held)
            if first is (word == "OR"):
                return first
            second = meant(right, held)
            if second is (word == "OR"):
                return second
            return None if first is None or second is None else word == "AND"
    sign, name, literal = tree
    if name not in held:
        return None
    if literal[0] == "'":
        order = 0 if held[name] == literal[1:-1] else 1
    elif "." in literal:
        order = compare_doubles(to_double(held[name]), float(literal))
    else:
        value = int(literal.rstrip("L"))
        number = to_long(held[name]) if value > 2**31 else to_int(held[name])
        order = (number > value) - (number < value)
    return {"=": order == 0, "<>": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]


@given(TREES, st.dictionaries(st.sampled_from(["a", "b", "s"]), st.sampled_from(["3", "-2", "x", "4000000000", "2.5"])))
def test_whatever_is_written_means_what_the_rules_say(tree: Any, held: dict[str, str]) -> None:
    try:
        expected = {True: "true", False: "false", None: "null"}[meant(tree, held)]
    except EvaluationError:
        expected = "EVAL-ERR"

    assert expected == result_of(written(tree), held)


@given(st.text("ab=<>()'-+ ,.\n/*09NOTANDREISLU\\\"%", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    assert result_of(text, {"a": "1", "b": "x"}) in {"COMPILE-ERR", "EVAL-ERR", "true", "false", "null"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3.0),
        (" 3 ", 3.0),
        ("3d", 3.0),
        ("-.5F", -0.5),
        ("1e400", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("0x.8P1d", 1.0),
        ("0x1p99999", math.inf),
    ],
)
def test_doubles_as_java_reads_them(text: str, value: float) -> None:
    assert to_double(text) == value


@pytest.mark.parametrize("text", ["", "1_0", "inf", "nan", "0x1", "1e", "３", "1 2", "--1", "9" * 5000])
def test_texts_java_reads_no_double_from(text: str) -> None:
    with pytest.raises(EvaluationError):
        to_double(text)


def test_whole_numbers_as_java_reads_them() -> None:
    assert [to_int(text) for text in ("+3", "-2147483648", "３", "007")] == [3, -(2**31), 3, 7]
    assert to_long("9223372036854775807") == 2**63 - 1
    for text in ("2147483648", " 3", "3 ", "1_0", "", "+", "𝟛", "9" * 5000):
        with pytest.raises(EvaluationError):
            to_int(text)


def test_the_order_of_doubles_is_javas() -> None:
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for one, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            assert compare_doubles(left, right) == (one > other) - (one < other)


def test_two_properties_are_ordered_as_doubles() -> None:
    held = {"a": "-0.0", "b": "0.0", "n": "NaN"}
    assert [result_of(text, held) for text in ("a < b", "b <= a", "n > b", "n >= n")] == [
        "true",
        "false",
        "true",
        "true",
    ]


HOSTILE = {
    "parentheses": "(" * 4000 + "a = 1" + ")" * 4000,
    "nots": "NOT " * 2000 + "a",
    "signs": "- " * 4000 + "a = 1",
    "equalities": "a" + " = TRUE" * 1000,
    "searches": "a" + " CONTAINS 'x'" * 600,
    "length": "a = 1 OR " * 900 + "a = 1",
    "list": "a IN (" + "'x'," * MAX_LISTED + "'x')",
    "unclosed quotes": "'" * (MAX_TEXT - 1),
    "unclosed string": "'" + "x" * (MAX_TEXT - 1),
    "unclosed comment": "/*" * (MAX_TEXT // 2),
    "digits": "a = " + "9" * 8_000,
    "fraction": "a = 1." + "9" * 8_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_cost_little(kind: str) -> None:
    assert least_seconds(lambda: result_of(HOSTILE[kind], {"a": "1"}), 0.2) < 0.2


def test_long_chains_are_no_deep_trees() -> None:
    text = " OR ".join(f"a = {number}" for number in range(600)) + " OR (b = 1 AND " + "a = 1 AND " * 100 + "b = 1)"
    assert len(text) < MAX_TEXT
    assert result_of(text, {"a": "1", "b": "1"}) == "true"
    assert result_of(text, {"a": "-1", "b": "2"}) == "false"


def test_what_is_as_deep_as_allowed_is_evaluated() -> None:
    assert result_of("NOT " * (MAX_DEPTH - 3) + "a", {"a": "1"}) == "true"
    assert result_of("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH, {"a": "1"}) == "true"
    assert result_of("(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1), {"a": "1"}) == "COMPILE-ERR"


def test_a_cache_keeps_what_was_asked_for_lately_and_errors_too() -> None:
    cache = ExpressionCache(most=2, most_characters=1000)
    first = cache.get("a = 1")
    assert cache.get("a = 1") is first
    for _ in range(2):
        with pytest.raises(SqlError, match="a value must follow"):
            cache.get("a =")
    cache.get("a = 1")
    cache.get("b = 1")
    assert len(cache) == 2
    assert cache.get("a = 1") is first
    cache.get("a = 1" + " " * 2000)
    assert cache.get("a = 1") is first
    cache.get("a = 1" + " " * 991)
    assert len(cache) == 1


@given(
    st.dictionaries(
        st.sampled_from(["a", "aa", "TAGS", "b", "UNIQ_KEY"]),
        st.text("a\x00b1é", min_size=1, max_size=5),
    ),
    st.sampled_from(["a = 'a'", "aa <> 'b' OR b IS NULL", "a IS NULL OR aa IS NULL OR b IS NULL OR TAGS IS NULL OR x"]),
    st.sampled_from(["T", "t" * 127, "t" * 200]),
    st.sampled_from(["127.0.0.1", "::1"]),
)
def test_stored_messages_are_judged_by_their_properties(
    held: dict[str, str], text: str, topic: str, address: str
) -> None:
    properties = format_properties(held).encode()
    host = encode_host(address, 10911)
    sys_flag = 0x30 if ":" in address else 0
    record = encode_record(
        topic,
        0,
        0,
        0,
        b"a\x01a\x02",
        properties,
        sys_flag=sys_flag,
        born_ms=1,
        born_host=host,
        store_ms=1,
        store_host=host,
    )

    assert properties_of(memoryview(record)) == properties
    expression = compile_expression(text)
    assert PropertyFilter(expression).passes(properties_of(memoryview(record))) is expression.matches(held)


CONDITIONS = [
    "a = 3",
    "a > 2",
    "a IS NULL",
    "a IS NOT NULL AND NOT a = 'x'",
    "a <> 'x' OR b IS NULL",
    "a = 3 AND b IN ('3', 'x') AND TAGS IS NULL",
    "a = 3 OR b = 3 OR c = 3 OR d = 3 OR TAGS = 'x'",
    "1 = 1",
]
"""Of one name, of a few, of many and of none."""
PIECES = [
    "a",
    "b",
    "ba",
    "TAGS",
    "\x01",
    "\x02",
    "a\x01",
    "\x02a\x01",
    "b\x013\x02",
    "3",
    "+3",
    "03",
    "\uff13",
    "x",
    "4e0",
    " 3",
]
BLOCKS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.one_of(st.sampled_from(PIECES).map(str.encode), st.binary(max_size=3)), max_size=14).map(b"".join),
    st.dictionaries(st.sampled_from(["a", "b", "c", "TAGS"]), st.sampled_from(["3", "4", "x", "3" * 70])).map(
        lambda held: format_properties(held).encode()
    ),
)


ODD = [
    b"ba\x013\x02",
    b"a\x013\x02ba\x014\x02",
    b"a\x013\x02a\x01\x02",
    b"a\x013\x02a\x014",
    b"a\x01",
    b"\x01a\x013",
    b"a\x01\xc3\x02",
]
"""A name that ends as another one, an empty value, a name twice, no end, no name, half a character."""


@given(st.sampled_from(CONDITIONS), st.lists(BLOCKS, max_size=30))
@example("a = 3", ODD)
@example("a = 3 AND b IS NULL", ODD)
def test_a_read_says_of_any_properties_what_the_condition_says_of_each(text: str, blocks: list[bytes]) -> None:
    expression = compile_expression(text)
    found = PropertyFilter(expression)
    passes = found.reading()
    expected = [expression.matches(parse_properties(properties)) for properties in blocks]
    assert expected == [found.passes(properties) for properties in blocks]
    assert expected * 2 == [passes(properties) for properties in blocks * 2]


@pytest.mark.parametrize("text", ["a = 3", "a = 3 AND b IS NULL"])
def test_a_read_of_many_values_remembers_a_few(text: str) -> None:
    passes = PropertyFilter(compile_expression(text)).reading()
    for _ in range(2):
        assert [number == 3 for number in range(2_000)] == [passes(b"a\x01%d\x02" % n) for n in range(2_000)]


def test_a_message_costs_little() -> None:
    """A bound far above what it takes (1 to 3 us)."""
    found = PropertyFilter(compile_expression("a > 5 AND TAGS IN ('x', 'y')"))
    held = format_properties({f"name{number}": "v" * 20 for number in range(10)} | {"a": "7", "TAGS": "x"}).encode()
    assert found.passes(held)
    assert least_seconds(lambda: [found.passes(held) for _ in range(1000)], 0.05) < 0.05
