"""One conversion of settings: the reference's spelling; errors that name place, key, text and what is allowed."""

from __future__ import annotations

from typing import Annotated

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.runtime.configuration import (
    LONG,
    Count,
    Form,
    Int,
    Port,
    fields_of,
    shown,
    structure,
    value_text,
    with_values,
)
from understudy.runtime.properties import ConfigError, Properties, parse_properties

Colour = Annotated[str | None, Form(lambda text: None if text in ("red", "blue") else "red or blue")]


@attrs.frozen
class Example:
    listen_port: Port = 1
    order_message_enable: bool = False
    ratio: float = 0.5
    kv_config_path: str = attrs.field(factory=lambda: "here", metadata={"key": "kvPath"})
    home: str | None = None
    colour: Colour = None
    size: int = 0
    short: Int = 0
    count: Count = 0


@attrs.define
class Other:
    listenPort: Port = 2
    size: int = 3


def test_keys_are_camel_case_unless_a_field_names_its_own() -> None:
    expected = ["listenPort", "orderMessageEnable", "ratio", "kvPath", "home", "colour", "size", "short", "count"]
    assert expected == list(fields_of(Example))


def test_known_keys_replace_values_and_unknown_ones_are_left_out() -> None:
    given = {"listenPort": " 9876 ", "orderMessageEnable": "TRUE", "ratio": "1e-1", "kvPath": "/x", "other": "1"}
    assert Example(9876, True, 0.1, "/x", "/h") == with_values(Example(home="/h"), given, "n.conf")


def test_nothing_known_changes_nothing() -> None:
    example = Example()
    assert example == with_values(example, {"other": "1"}, "n.conf")


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("listenPort", "many", "a port from 0 to 65535"),
        ("listenPort", "65536", "a port from 0 to 65535"),
        ("listenPort", "", "a port from 0 to 65535"),
        ("listenPort", "9" * 5000, "a port from 0 to 65535"),
        ("listenPort", "١", "a port from 0 to 65535"),
        ("orderMessageEnable", "yes", "true or false"),
        ("ratio", "nan", "a number"),
        ("ratio", "half", "a number"),
        ("colour", "green", "red or blue"),
        ("short", str(1 << 31), "a whole number from -2147483648 to 2147483647"),
        ("count", "-1", "a whole number from 0 to 2147483647"),
        ("size", str(LONG[1] + 1), f"a whole number from {LONG[0]} to {LONG[1]}"),
    ],
)
def test_a_text_that_is_no_value_is_one_line_with_what_is_allowed(key: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        with_values(Example(), {key: text}, "n.conf")
    assert f"n.conf: {key}={text[:64]}: expected {allowed}" == str(error.value)


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file_and_in_one_line() -> None:
    # given a file with five mistakes, one of them in a key that two classes know
    values = parse_properties("ratio=x\n\nlistenPort=a\\nb\nsize=1\nshort=y\ncount=z\ncolour=w\n", "n.conf")
    # when it is read, then the first three stand there with their lines, and how many more there are
    with pytest.raises(ConfigError) as error:
        structure(values, Other, Example)
    assert str(error.value) == (
        "n.conf:1: ratio=x: expected a number; n.conf:3: listenPort=a\\nb: expected a port from 0 to 65535; "
        "n.conf:5: short=y: expected a whole number from -2147483648 to 2147483647; and 2 more"
    )


def test_a_key_of_several_classes_is_read_for_each() -> None:
    values = Properties({"size": "7", "listenPort": "8"}, "n.conf")
    assert [{"size": 7, "listen_port": 8}, {"size": 7, "listenPort": 8}] == structure(values, Example, Other)


def test_a_fault_of_a_rule_is_not_taken_for_one_of_the_file() -> None:
    def broken(text: str) -> str | None:
        raise RuntimeError("broken")

    @attrs.define
    class Ruled:
        colour: Annotated[str, Form(broken)] = ""

    attrs.resolve_types(Ruled, globals(), {"broken": broken})
    with pytest.raises(RuntimeError, match="broken"):
        structure(Properties({"colour": "red"}, "n.conf"), Ruled)


@given(
    st.builds(
        Example,
        st.integers(0, 65535),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.from_regex(r"[a-z/]{0,9}", fullmatch=True),
        st.none() | st.just("/home"),
        st.sampled_from(["red", "blue", None]),
        st.integers(*LONG),
    )
)
def test_what_is_shown_is_what_is_read(example: Example) -> None:
    assert example == with_values(Example(), shown(example), "file")


def test_values_are_spelled_as_the_reference_spells_them() -> None:
    assert ["true", "false", "-5", "0.5", "x"] == [value_text(each) for each in (True, False, -5, 0.5, "x")]
    assert {"listenPort": "2", "size": "3"} == shown(Other())
    assert "home" not in shown(Example())
