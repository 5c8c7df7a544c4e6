"""Log lines stay lines, whatever stands in their values."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from understudy.runtime.log import configure, get_logger
from understudy.runtime.properties import LIMIT_CHARACTERS, ConfigError, parse_properties


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger("understudy")
    before = (list(root.handlers), root.level, root.propagate)
    stream = io.StringIO()
    configure("INFO", stream)
    yield stream
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_a_value_that_came_from_the_network_cannot_forge_or_flood_lines(output: io.StringIO) -> None:
    get_logger("t").warning("seen", key="a\r\n2026 INFO forged\x1b[2J\0", long="x" * 1_000_000)
    text = output.getvalue()
    assert 1 == text.count("\n") and text.isascii()
    assert not {"\r", "\x1b", "\0"} & set(text)
    assert len(text) < 3000 and "(1000000 characters)" in text


def test_a_text_of_properties_is_bounded() -> None:
    assert {"a": "1"} == parse_properties("a=1\n")
    with pytest.raises(ConfigError, match=r"^request: 262145 characters are above the limit of 262144$"):
        parse_properties("x" * (LIMIT_CHARACTERS + 1), "request")
