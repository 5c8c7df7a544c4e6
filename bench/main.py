"""`./understudy bench [NAME] [OPTIONS]`: runs one benchmark, or without a name the micro-benchmarks and the comparison.

A benchmark is a module of this folder with `main(arguments)`, or of `testkit/bench/` if it needs no checkout; `java` is
the comparison with the real Java broker.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from pathlib import Path

from understudy.testkit.bench.main import BENCHMARKS, module_of

HERE = Path(__file__).resolve().parent
COMPARISON = "java"
BY_DEFAULT = ("micro", COMPARISON)


def has_main(path: Path) -> bool:
    """Whether a module is a benchmark, and no part of others; told without importing it."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in module.body)


def benchmarks() -> dict[str, str]:
    """Returns {name: module} of the benchmarks that are there."""
    stems = [path.stem for path in sorted(HERE.glob("*.py")) if path.stem != "main" and has_main(path)]
    here = {stem.replace("_", "-"): f"bench.{stem}" for stem in stems} | {COMPARISON: "bench.comparison.main"}
    return here | {name: module_of(name) for name in BENCHMARKS}


def description(module: str) -> str:
    """Returns the first line of a benchmark's docstring without importing it."""
    name = module.rpartition(".")[2]
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    path = HERE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def usage() -> str:
    lines = ["usage: ./understudy bench [NAME] [OPTIONS]      (NAME --help lists a benchmark's options)", ""]
    lines += [f"  {name:14} {description(module)}" for name, module in benchmarks().items()]
    return "\n".join([*lines, "", f"  without a name: {', then '.join(BY_DEFAULT)}"])


def run(name: str, arguments: list[str]) -> int:
    sys.argv = [f"understudy bench {name}", *arguments]
    return int(importlib.import_module(benchmarks()[name]).main(arguments) or 0)


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("--help", "-h", "help"):
        print(usage())
        return 0
    if not arguments:
        return max(run(name, []) for name in BY_DEFAULT if name in benchmarks())
    if arguments[0].startswith("-"):
        return run(COMPARISON, arguments)
    if arguments[0] not in benchmarks():
        near = difflib.get_close_matches(arguments[0], benchmarks(), n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else "there are: " + ", ".join(benchmarks())
        print(f"understudy bench: unknown benchmark '{arguments[0]}'; {hint}", file=sys.stderr)
        return 2
    return run(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.path[0] = str(HERE.parent)  # this folder holds names such as `java` that must not hide anything
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
