"""No module grows beyond what one can read at a sitting; what does is divided by what its parts mean. Nor do pages."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
"""Below the module's own docstring: the laws at the top of a module are not what makes it long."""
#: Made by programs, for programs.
GENERATED = {"proxy/messages/rocketmq_v2.py"}
NOT_OURS = {"build", "data", "src"}


def lines_of(path: Path) -> int:
    """Return how many lines a module has below its docstring."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines <= MOST_LINES:
        return lines
    body = ast.parse(text).body
    first = body[0] if body else None
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return lines - (first.end_lineno or 0) if first is not None and is_docstring else lines


def test_no_module_is_too_long_to_be_read_at_once() -> None:
    tops = [top for top in ROOT.iterdir() if top.is_dir() and not top.name.startswith(".") and top.name not in NOT_OURS]
    found = {str(path.relative_to(ROOT)): lines_of(path) for top in tops for path in top.rglob("*.py")}
    assert len(found) > 800
    assert set(found) >= GENERATED
    assert {} == {path: lines for path, lines in found.items() if lines > MOST_LINES and path not in GENERATED}


def test_a_module_is_measured_below_its_docstring(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""What it is.\n\nIts laws.\n"""\n' + "a = 1\n" * MOST_LINES)
    assert MOST_LINES == lines_of(module)
    module.write_text("a = 1\n" * (MOST_LINES + 1))
    assert MOST_LINES + 1 == lines_of(module)


def test_what_is_added_most_is_told_to_contributors_in_ten_lines_each() -> None:
    sections = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) == 4
    lines = {section.splitlines()[0]: sum(map(bool, section.splitlines()[1:])) for section in sections}
    assert {} == {title: count for title, count in lines.items() if count > 10}
