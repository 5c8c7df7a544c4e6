"""What is remembered of peers' texts is short and bounded, wherever it is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from understudy.broker.filters import tag_codes
from understudy.broker.processors.send_properties import CommonProperties, tags_hash
from understudy.format.remembered import LONGEST, MOST, Remembered, remember, remembered

ROOT = Path(__file__).parents[2]
SERVERS = "broker container controller format ha namesrv proxy remoting runtime security store"

NOT_OF_TEXTS = {
    "broker/absence.py": "numbers of settings, 64 of them",
    "broker/sql_filter/values.py": "numbers: texts of at most 4,096 characters, 256 of them",
    "container/failover_modules.py": "nothing: done once",
    "container/silence.py": "numbers of settings, 64 of them",
    "remoting/latencies.py": "codes of requests and answers, 1,000 of them, and what came of them",
    "runtime/configuration.py": "classes of settings",
    "runtime/exposition.py": "names of labels, which are the program's own",
    "store/consume_queue.py": "how many units are read at once",
    "store/index_file.py": "how many entries are read at once",
}
"""Modules that may use a cache of Python's, and by what it is keyed."""


def test_a_short_text_is_made_once_and_a_long_one_each_time() -> None:
    made: list[str] = []

    @remembered
    def length(text: str) -> int:
        made.append(text)
        return len(text)

    short, long = "s" * LONGEST, "l" * (LONGEST + 1)
    assert [length(short), length(long), length(short), length(long)] == [LONGEST, LONGEST + 1] * 2
    assert made == [short, long, long]


def test_a_full_table_starts_anew() -> None:
    table: Remembered[str, int] = Remembered(len)
    for number in range(3 * MOST):
        assert table[str(number)] == len(str(number))
        assert len(table) <= MOST
    small: dict[bytes, int] = {}
    for number in range(9):
        assert remember(small, b"%d" % number, number, 4) == number
        assert len(small) <= 4


def text(seed: int, characters: int) -> str:
    return "||".join(f"{Random(seed + number).getrandbits(32):08x}" for number in range(characters // 10))


@pytest.mark.parametrize(
    ("look_up", "kept"),
    [(tag_codes, tag_codes), (tags_hash, tags_hash)],
    ids=["subscriptions", "tags"],
)
def test_long_texts_of_peers_leave_nothing_behind(
    look_up: Callable[[str], object], kept: Callable[[str], object]
) -> None:
    table = kept.__self__  # type: ignore[attr-defined]
    table.clear()
    for number in range(20):
        look_up(text(number, 30_000))
    assert len(table) == 0
    for number in range(2 * MOST):
        look_up(text(number, 100))
    assert 0 < len(table) <= MOST
    assert sum(sys.getsizeof(key) for key in table) <= MOST * (4 * LONGEST + 100)


def test_long_properties_are_not_remembered() -> None:
    common = CommonProperties()
    for number in range(20):
        assert common.look_up(f"a\x01{text(number, 30_000)}\x02") is not None
    assert common._known == {}


def test_no_other_cache_is_keyed_by_what_peers_write() -> None:
    found = set()
    for room in SERVERS.split():
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
                if name in ("lru_cache", "cache"):
                    found.add(str(path.relative_to(ROOT)))
    assert found == set(NOT_OF_TEXTS)
