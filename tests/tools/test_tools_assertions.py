"""Every test asserts something where its reader sees it, or calls something that is named for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
#: Names of what judges: helpers that are called so, tests in the examples, those of pytest, and waits that end with an
#: error when nothing comes.
JUDGES = re.compile(r"^_?(assert|check|judge|test)_|^(assert|check)$|^(raises|warns|fail|until|eventually|fail_after)$")
PROMISES = re.compile(r"^_?(assert|check|judge|test)_")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node.body)
        elif isinstance(node, Function):
            yield node


def judges(function: Function) -> bool:
    """Return whether a function, or one inside it, asserts or raises, or names something that judges."""
    for node in ast.walk(ast.Module(function.body, [])):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if JUDGES.search(name):
            return True
    return False


def silent_in(source: str) -> list[str]:
    """Return the names of tests, and of helpers that are called as if they judged, that judge nothing."""
    found = functions_of(ast.parse(source).body)
    return [function.name for function in found if PROMISES.search(function.name) and not judges(function)]


def test_every_test_asserts_where_its_reader_sees_it() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    assert len(paths) > 300
    silent = {str(path.relative_to(TESTS)): silent_in(path.read_text(encoding="utf-8")) for path in paths}
    assert {} == {path: names for path, names in silent.items() if names}


def test_a_test_that_judges_nothing_is_found() -> None:
    sources = {
        "def test_a():\n    do()\n": ["test_a"],
        "class TestA:\n    async def test_b(self):\n        await do()\n": ["test_b"],
        "def test_a():\n    assert do()\n": [],
        "def test_a():\n    def inner():\n        assert do()\n    inner()\n": [],
        "def test_a():\n    with pytest.raises(E):\n        do()\n": [],
        "def test_a():\n    run(check_lives, 1)\n": [],
        "def test_a():\n    unchecked()\n": ["test_a"],
        "def helper():\n    do()\n": [],
        "def check_it():\n    do()\n": ["check_it"],
    }
    assert sources == {source: silent_in(source) for source in sources}
