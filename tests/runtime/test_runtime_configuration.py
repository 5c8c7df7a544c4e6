"""One conversion of settings: the reference's spelling; errors that name file, key, text and what is allowed."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.runtime.configuration import INT, LONG, key_of, read_value, shown, value_text, with_values
from understudy.runtime.properties import ConfigError


@attrs.frozen
class Example:
    listen_port: int = 1
    order_message_enable: bool = False
    ratio: float = 0.5
    kv_config_path: str = attrs.field(factory=lambda: "here", metadata={"key": "kvPath"})


FIELDS = {key_of(field): field for field in attrs.fields(Example)}


def test_keys_are_camel_case_unless_a_field_names_its_own() -> None:
    assert ["listenPort", "orderMessageEnable", "ratio", "kvPath"] == list(FIELDS)


def test_known_keys_replace_values_and_unknown_ones_are_left_out() -> None:
    given = {"listenPort": " 9876 ", "orderMessageEnable": "TRUE", "ratio": "1e-1", "kvPath": "/x", "other": "1"}
    assert Example(9876, True, 0.1, "/x") == with_values(Example(), FIELDS, given, "n.conf", {})


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("listenPort", "many", "a whole number from 0 to 65535"),
        ("listenPort", "65536", "a whole number from 0 to 65535"),
        ("listenPort", "", "a whole number from 0 to 65535"),
        ("listenPort", "9" * 5000, "a whole number from 0 to 65535"),
        ("orderMessageEnable", "yes", "true or false"),
        ("ratio", "nan", "a number"),
        ("ratio", "half", "a number"),
    ],
)
def test_a_text_that_is_no_value_is_one_line_with_what_is_allowed(key: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        with_values(Example(), FIELDS, {key: text}, "n.conf", {"listenPort": (0, 65535)})
    assert f"n.conf: {key}={text[:64]}: expected {allowed}" == str(error.value)


@given(st.one_of(st.booleans(), st.integers(*INT), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_value_is_read_back_from_its_text(value: bool | int | float) -> None:
    assert value == read_value("file", "key", value_text(value), type(value).__name__)


def test_longs_have_bounds_of_their_own() -> None:
    assert LONG[1] == read_value("file", "key", str(LONG[1]), "int", LONG)
    with pytest.raises(ConfigError, match="from -2147483648 to 2147483647"):
        read_value("file", "key", str(LONG[1]), "int")


def test_what_is_shown_is_what_is_read() -> None:
    example = Example(9876, True, 0.25, "/x")
    assert example == with_values(Example(), FIELDS, shown(example, FIELDS), "file", {})
