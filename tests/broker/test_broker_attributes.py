"""An object is whole once it is made: it gets no attribute later that it did not have then."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("broker", "container")


def born_late(tree: ast.AST) -> list[str]:
    """Return the attributes that objects of the classes in *tree* have only after some method has run."""
    owners = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    return [f"{owner.name}.{name}" for owner in owners for name in _of_class(owner)]


def _of_class(owner: ast.ClassDef) -> list[str]:
    if any(ast.unparse(each).startswith("attrs.") for each in owner.decorator_list):
        return []  # it has its fields from the first moment on, and takes no other ones
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    known = {each.id for each in _stored(owner.body) if isinstance(each, ast.Name)}
    known |= {each.name for each in methods if any(ast.unparse(by).endswith(".setter") for by in each.decorator_list)}
    for method in methods:
        if method.name == "__init__":
            known |= set(_own_attributes(method))
    late = [name for method in methods for name in _own_attributes(method) if name not in known]
    return list(dict.fromkeys(late))


def _stored(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for each in body:
        if isinstance(each, ast.Assign):
            yield from each.targets
        elif isinstance(each, ast.AnnAssign) and each.value is not None:
            yield each.target


def _own_attributes(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the attributes of the first argument that *method* sets."""
    own = method.args.args[0].arg if method.args.args else ""
    for each in ast.walk(method):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == own:
            yield each.attr


@pytest.mark.parametrize("room", ROOMS)
def test_objects_are_whole_once_they_are_made(room: str) -> None:
    paths = sorted((ROOT / room).rglob("*.py"))
    assert len(paths) > 10
    assert {} == {str(path): found for path in paths if (found := born_late(ast.parse(path.read_text())))}


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("self._lane = server.lane(LANE)", ["Handler._lane"]),
        ("self._lane: Lane = server.lane(LANE)", ["Handler._lane"]),
        ("self.known, self._lane = 1, 2", ["Handler._lane"]),
        ("with open() as self._file: self._file.read()", ["Handler._file"]),
        ("self.known = self.given = 2", []),
        ("other._lane = self.known", []),
    ],
)
def test_what_an_object_gets_later_is_found(method: str, found: list[str]) -> None:
    source = f"""
class Handler:
    given = 0
    declared: int

    def __init__(self) -> None:
        self.known = 0

    def register(self, server: Server) -> None:
        {method}
"""
    assert found == born_late(ast.parse(source))
    assert [] == born_late(ast.parse(source.replace("class", "@attrs.define\nclass")))
