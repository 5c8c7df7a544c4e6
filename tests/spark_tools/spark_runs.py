"""Small stores with messages, the jobs over them, and what their reports say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_plans import CREATED_MS

from understudy.spark_tools.main import main
from understudy.spark_tools.synthetic import SyntheticStore

START_MS = 1_700_000_000_000
OLD, NEW = (0, 1, START_MS), (0, 2, START_MS + 5_000)


def run(*arguments: object) -> tuple[int, list[str]]:
    said: list[str] = []
    words = [str(argument) for argument in arguments]
    return main([*words, "--master", "local[2]", "--quiet"], CREATED_MS, said.append), said


def named(root: Path, *names: str) -> list[str]:
    """Command-line options for the stores of these names below a folder."""
    return [word for name in names for word in ("--store", f"{name}={root / name}")]


def filled(root: Path, messages: int = 400, prefix: int = 0, **options: Any) -> SyntheticStore:
    store = SyntheticStore(str(root), **options)
    for number in range(messages):
        store.append(
            "Orders",
            number % 4,
            b"b" * (60 + number % 9),
            store_timestamp=START_MS + number * 1_000,
            uniq_key=f"{prefix:016X}{number:016X}",
            tags=f"Tag{number % 3}",
            keys=f"order-{number}",
        )
    return store


def report(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / "report.json").read_text())
    return loaded


def rows(out: Path, title: str) -> list[list[Any]]:
    return next(table["rows"] for table in report(out)["tables"] if table["title"] == title)
