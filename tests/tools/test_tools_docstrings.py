"""Public classes and functions say what they take, give, raise and hold in one form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if path.is_dir())
#: From so many parameters on; fewer are named in the sentence, or need no more than their names and types.
MANY = 4
OTHER_FORMS = re.compile(
    r"\*(Args|Arguments|Attributes|Errors|Raises|Resources|Returns?)\*"  # in the text, not as a section
    r"|^\s*(Arguments|Errors|Parameters|Raise|Resources|Return):\s*$"  # a section of another name
    r"|^\s*Raises [a-z][^.]*:"  # one that begins with a sentence
    r"|(^|[.;] )\*\w+\*: ",  # *one argument*: as a sentence of its own
    re.MULTILINE,
)
REFERENCE = re.compile(r"See :(meth|func):`[\w.]+`\.")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def public_classes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node
            yield from public_classes(node.body)


def wrong_in(source: str) -> list[str]:
    """Return the names of public classes and functions whose docstring has another form."""
    body = ast.parse(source).body
    found = [each.name for each in public_classes(body) if OTHER_FORMS.search(ast.get_docstring(each) or "")]
    for function in public_functions(body):
        text = ast.get_docstring(function) or ""
        arguments = function.args
        names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {
            "self",
            "cls",
        }
        says_all = (
            "Args:" in text or REFERENCE.fullmatch(text) or all(re.search(rf"\b{name}\b", text) for name in names)
        )
        if OTHER_FORMS.search(text) or (text and len(names) >= MANY and not says_all):
            found.append(function.name)
    return found


def test_public_functions_say_what_they_take_in_one_form() -> None:
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 500
    wrong = {str(path.relative_to(ROOT)): wrong_in(path.read_text(encoding="utf-8")) for path in paths}
    assert {} == {path: names for path, names in wrong.items() if names}


def test_another_form_and_a_missing_section_are_found() -> None:
    parameters = "one: int, two: int, three: int, four: int"
    sources = {
        f'def few(one: int) -> None:\n    """Do it."""\n\n\ndef many({parameters}) -> None:\n    """Do it."""\n': [
            "many"
        ],
        f'def many({parameters}) -> None:\n    """Do it.\n\n    Args:\n        one: it.\n    """\n': [],
        f'def many({parameters}) -> None:\n    """Do *one* to *two* of *three* with *four*."""\n': [],
        f'def many({parameters}) -> None:\n    """See :meth:`a.B.many`."""\n': [],
        'class A:\n    def b(self) -> None:\n        """Do it. *Errors*: ``OSError``."""\n': ["b"],
        'def run() -> None:\n    """Run. *Resources*: the port, until it ends."""\n': ["run"],
        'def run() -> None:\n    """Run.\n\n    Raises before it serves: ``OSError``, one clear line.\n    """\n': [
            "run"
        ],
        'def settle(anew: bool) -> None:\n    """Settle. *anew*: it is gone."""\n': ["settle"],
        'def settle(anew: bool) -> None:\n    """Settle *anew*: it is gone."""\n': [],
        'class Welcome:\n    """It is known. *blank*: so is its disk."""\n': ["Welcome"],
        'class Welcome:\n    """It is known.\n\n    Attributes:\n        blank: so is its disk.\n    """\n': [],
        'class _Own:\n    """It is known. *blank*: so is its disk."""\n': [],
        'def c() -> None:\n    """Do it.\n\n    Errors:\n        OSError: always.\n    """\n': ["c"],
        'def _own(a: int, b: int, c: int, d: int) -> None:\n    """Do it. *Errors*: no."""\n': [],
    }
    assert sources == {source: wrong_in(source) for source in sources}
