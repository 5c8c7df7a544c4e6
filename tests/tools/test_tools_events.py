"""A trio event is for what happens once; what wakes tasks again and again is a signal (``runtime/signal.py``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if path.is_dir())
OF_A_PROCESS = "of one process, which ends once; a host starts several"
#: Attributes that get another event later on, and why that is right.
ALLOWED = {
    "broker/transactions/service.py: opened": "a state that is asked for as well: it is let go only where it is set, "
    "so that nobody waits for the one before",
    "runtime/signal.py: _next": "the signal itself, which makes one for each change that is waited for",
    "testkit/quorum/controllers.py: _gone": OF_A_PROCESS,
    "testkit/quorum/simulation.py: _gone": OF_A_PROCESS,
    "testkit/led/hangs.py: answers": "of one time that a disk hangs, which ends once",
}


def targets_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with what it gets."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def armed_again_in(source: str) -> list[str]:
    """Return the attributes that get an event outside ``__init__``."""
    if "Event(" not in source:
        return []  # most of them, which need not be parsed
    found, outside = list[str](), list[ast.AST]([ast.parse(source)])
    while outside:
        node = outside.pop()
        for target, value in targets_of(node):
            is_event = isinstance(value, ast.Call) and ast.unparse(value.func) in ("trio.Event", "Event")
            if is_event and isinstance(target, ast.Attribute):
                found.append(target.attr)
        outside += [
            each
            for each in ast.iter_child_nodes(node)
            if not (isinstance(each, ast.FunctionDef) and each.name == "__init__")
        ]
    return sorted(set(found))


def test_what_wakes_more_than_once_is_a_signal() -> None:
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 500
    again = [
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in paths
        for name in armed_again_in(path.read_text(encoding="utf-8"))
    ]
    assert sorted(ALLOWED) == sorted(again)


def test_an_event_that_is_armed_again_is_found() -> None:
    sources = {
        "class A:\n def __init__(self):\n  self.one = trio.Event()\n": [],
        "class A:\n async def run(self):\n  while True:\n   self.one = trio.Event()\n": ["one"],
        "class A:\n def start(self):\n  self.b, self.one = 1, trio.Event()\n": ["one"],
        "class A:\n def start(self):\n  self.one: trio.Event = trio.Event()\n": ["one"],
        "def start(a):\n answers = a.b.one = trio.Event()\n": ["one"],
        "def ask():\n done = trio.Event()\n rows[1] = trio.Event()\n": [],
    }
    assert sources == {source: armed_again_in(source) for source in sources}
