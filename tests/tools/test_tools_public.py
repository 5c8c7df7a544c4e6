"""What pages and examples teach is public: docs/api.md names its module, and the module its names."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import re
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import trio
from documentation import ROOT, checkout_commands, helps, installed_commands, public_modules

EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb"))
PAGES = [ROOT / name for name in ("README.md", "mqclient/README.md", "testkit/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
IMPORT = re.compile(
    r"^ *((?:from understudy[\w.]* )?import understudy[\w.]*|from understudy[\w.]* import [\w, ]+)", re.M
)
ERROR = re.compile(r"\b[A-Z]\w*Error\b")


def exported(module: ModuleType) -> set[str]:
    names = getattr(module, "__all__", None)
    return set(names) if names else {name for name in vars(module) if not name.startswith("_")}


def sources(path: Path) -> Iterator[str]:
    """Yield the Python in an example, a notebook or a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        yield from ("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    elif path.suffix == ".md":
        yield from (textwrap.dedent(found[1]) for found in IMPORT.finditer(text))
    else:
        yield text


def taught(path: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of everything that *path* imports of this package; no name for a module as a whole."""
    for source in sources(path):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("understudy"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield (whole, "") if whole in public_modules() else (str(node.module), alias.name)
            elif isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names if alias.name.startswith("understudy"))


@pytest.mark.parametrize("path", EXAMPLES + PAGES, ids=lambda path: path.name)
def test_what_is_taught_is_public(path: Path) -> None:
    public = public_modules()
    found = list(taught(path))
    assert found or path.suffix == ".md", "no import was read"
    for module, name in found:
        assert module in public, f"docs/api.md does not name {module}"
        assert not name or name in exported(importlib.import_module(module)), f"{module} does not export {name}"


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every public function, class and method, with the name a reader finds it by."""
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        for name in sorted(exported(module)):
            found = getattr(module, name)
            ours = getattr(found, "__module__", "").startswith("understudy")
            if not ours or (found.__module__ != module_name and not hasattr(module, "__all__")):
                continue
            yield f"{module_name}.{name}", found
            for below, member in vars(found).items() if inspect.isclass(found) else ():
                if callable(member) and not below.startswith("_"):
                    yield f"{module_name}.{name}.{below}", member


def public_names() -> set[str]:
    return {name for module in public_modules() for name in exported(importlib.import_module(module))}


def test_every_error_that_public_docstrings_name_can_be_imported() -> None:
    known = public_names() | set(dir(builtins)) | set(dir(trio))
    named = {
        (where, error) for where, found in public_objects() for error in ERROR.findall(inspect.getdoc(found) or "")
    }
    assert len(named) > 50
    assert {(where, error) for where, error in named if error not in known} == set()


def test_every_class_that_a_public_option_takes_can_be_imported() -> None:
    known, asked = public_names(), set[tuple[str, str, str]]()
    for where, found in public_objects():
        if inspect.isclass(found) and attrs.has(found) and where.endswith("Options") and "mqclient" in where:
            scope = vars(inspect.getmodule(found))
            for field in attrs.fields(found):
                for name in re.findall(r"\b[A-Z]\w+", str(field.type)):
                    if inspect.isclass(scope.get(name)) and scope[name].__module__.startswith("understudy"):
                        asked.add((where, field.name, name))
    assert {"Credentials", "SessionOptions"} <= {name for _, _, name in asked}
    assert {each for each in asked if each[2] not in known} == set()


def test_every_command_of_a_checkout_and_of_an_installation_is_in_the_reference() -> None:
    installed, more = installed_commands(), checkout_commands()
    assert {"understudy up", "understudy bench micro", "understudy drill acting-master", "mqadmin"} <= installed.keys()
    assert {"./understudy test", "./understudy matrix", "./understudy bench", "./understudy bench java"} <= more.keys()
    assert {"./understudy bench role-switch", "./understudy bench store"} <= more.keys()


def test_every_benchmark_of_a_checkout_can_be_run() -> None:
    benchmarks = runpy.run_path(str(ROOT / "bench" / "main.py"))["benchmarks"]()
    assert len(benchmarks) > 10
    assert [] == [name for name, module in benchmarks.items() if not callable(importlib.import_module(module).main)]


def test_the_reference_has_what_a_command_of_a_checkout_says_of_itself() -> None:
    (suite,) = helps({"./understudy test": checkout_commands()["./understudy test"]})
    assert suite.startswith("## ./understudy test\n")
    assert "--install-only" in suite


def test_public_classes_of_fields_describe_them_as_attributes() -> None:
    # The site takes only what a signature that was written has for an argument.
    described = {where: inspect.getdoc(found) or "" for where, found in public_objects() if attrs.has(found)}
    assert len(described) > 10
    assert [] == [where for where, text in described.items() if "Args:" in text]
