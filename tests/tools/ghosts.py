"""Names of the package that nothing but tests refers to: what only a test calls is dead, or belongs to the tests.

Looked for are functions, classes, methods, constants, and fields of classes. A name of a module counts as used where it
is loaded in that module outside itself, or imported, or asked of the module. A method or field counts as used where an
attribute of that name is read anywhere; so a ghost whose name others have, too, is not found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "understudy").iterdir() if path.is_dir())
BESIDE = ("bench", "examples", "tests/tools", "understudy")
"""What else runs beside tests."""
FOR_TESTS = "testkit"
"""This room serves tests, so they count as its users."""
PLAIN_DECORATORS = re.compile(
    r"(staticmethod|classmethod|property|(functools\.)?(cache|lru_cache|cached_property|wraps|singledispatch)|overload"
    r"|(contextlib\.)?(async)?contextmanager|final|override|(abc\.)?abstractmethod|runtime_checkable"
    r"|(attrs|attr|dataclasses)\.\w+)\b.*",
    re.DOTALL,
)
"""These leave a function to be called by its name; any other decorator takes it somewhere, and so uses it."""
DOTTED = re.compile(r"[\w.]+(:\w+)?")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Spot = tuple[str, int]
"""Module and line."""


@attrs.frozen
class Named:
    """A name that is defined.

    Attributes:
        module: dotted, with the package.
        owner: the class it belongs to, empty for names of the module.
        name: its own.
        first, last: lines of the definition.
        bases: of the owner, as they are written.
    """

    module: str
    owner: str
    name: str
    first: int
    last: int
    bases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}:{self.owner + '.' if self.owner else ''}{self.name}"


class Uses:
    """Where names are used, of as many files as are read into it."""

    def __init__(self) -> None:
        self.names: dict[str, list[Spot]] = {}
        self.attributes: dict[str, list[Spot]] = {}
        self.asked: set[str] = set()

    def read(self, module: str, tree: ast.Module) -> None:
        """Note what the file of *module* uses."""
        modules: dict[str, str] = {}
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                self.asked.update(f"{node.module}.{each.name}" for each in node.names)
                modules |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Import):
                modules |= {each.asname or each.name: each.name for each in node.names}
        texts = {node.value for node in nodes if isinstance(node, ast.Expr) and type(node.value) is ast.Constant}
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.names.setdefault(node.id, []).append((module, node.lineno))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self.attributes.setdefault(node.attr, []).append((module, node.lineno))
                self.asked.add(f"{modules.get(dotted(node.value), '')}.{node.attr}")
            elif isinstance(node, ast.MatchClass):
                for name in node.kwd_attrs:
                    self.attributes.setdefault(name, []).append((module, node.lineno))
            elif isinstance(node, ast.Constant) and node not in texts and DOTTED.fullmatch(str(node.value)):
                text = str(node.value)  # what getattr, a lazy import or a process is given
                self.asked.add(text.replace(":", "."))
                for name in re.split(r"[.:]", text):
                    self.attributes.setdefault(name, []).append((module, node.lineno))

    def uses(self, named: Named) -> bool:
        """Tell whether *named* is used outside its own definition."""
        inside = range(named.first, named.last + 1)
        spots = self.attributes.get(named.name, []) if named.owner else self.names.get(named.name, [])
        if named.owner:
            return any(module != named.module or line not in inside for module, line in spots)
        if any(module == named.module and line not in inside for module, line in spots):
            return True
        # or of one of several modules: ``for each in (one, other): each.register()``
        of_any = named.module in self.asked and named.name in self.attributes
        return of_any or f"{named.module}.{named.name}" in self.asked


def dotted(node: ast.expr) -> str:
    """Return a name with its attributes, empty for any other expression."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def defined(module: str, tree: ast.Module) -> Iterator[Named]:
    """Yield the names that *tree* defines, but for those that Python itself or a decorator calls."""
    for node in tree.body:
        if isinstance(node, Definition):
            if not taken(node):
                yield Named(module, "", node.name, node.lineno, node.end_lineno or node.lineno)
            if isinstance(node, ast.ClassDef):
                yield from members(module, node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and not special(target.id):
                    yield Named(module, "", target.id, node.lineno, node.end_lineno or node.lineno)


def members(module: str, owner: ast.ClassDef) -> Iterator[Named]:
    """Yield the methods and fields of a class."""
    bases = tuple(ast.unparse(base) for base in owner.bases)
    for node in owner.body:
        if isinstance(node, Definition) and not taken(node):
            yield Named(module, owner.name, node.name, node.lineno, node.end_lineno or node.lineno, bases)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield Named(module, owner.name, node.target.id, node.lineno, node.lineno, bases)


def taken(node: Definition) -> bool:
    """Tell whether something takes the definition as it is made."""
    if special(node.name):
        return True
    return any(not PLAIN_DECORATORS.fullmatch(ast.unparse(each)) for each in node.decorator_list)


def special(name: str) -> bool:
    return name == "_" or (name.startswith("__") and name.endswith("__"))


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the repository."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = ("understudy", *parts) if parts[0] in ROOMS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(folders: Iterable[str]) -> Iterator[Path]:
    """Yield the source files of *folders*, without those that are generated."""
    for folder in folders:
        path = ROOT / folder
        found = [path] if path.is_file() else sorted(path.rglob("*.py"))
        yield from (each for each in found if "proxy/messages/" not in each.as_posix())


def ghosts() -> list[Named]:
    """Return every name of the package that only tests use."""
    package, tests, names = Uses(), Uses(), list[Named]()
    for path in sources([*ROOMS, *BESIDE]):
        if not path.name.startswith("test_"):
            module, tree = module_of(path), ast.parse(path.read_text(encoding="utf-8"))
            package.read(module, tree)
            if path.relative_to(ROOT).parts[0] in ROOMS:
                names += defined(module, tree)
    for path in sources(["tests"]):
        if path.parent != Path(__file__).parent:  # which knows names without using them
            tests.read(module_of(path), ast.parse(path.read_text(encoding="utf-8")))
    configured = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [
        name
        for name in names
        if not package.uses(name)
        and not (name.module.split(".")[1] == FOR_TESTS and tests.uses(name))
        and f"{name.module}:{name.name}" not in configured
    ]


if __name__ == "__main__":
    print("\n".join(map(str, ghosts())))
