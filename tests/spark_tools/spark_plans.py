"""Small replica sets with known faults, and plans for them made without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.main import main
from understudy.spark_tools.plan import CHANGES, Change, describe_store, load_plan, write_plan
from understudy.spark_tools.synthetic import SyntheticStore

CREATED_MS = 1_800_000_000_000
TABLE = "consumerOffset.json"
HELD = {
    "a": {"T1@g1": {0: 5, 1: 20}, "T1@g2": {0: 1}},
    "b": {"T1@g1": {0: 15, 1: 20}, "%RETRY%g1@g1": {0: 3}},
}


def write_stores(root: Path, messages: int = 100, seed: int = 0) -> dict[str, Path]:
    """Two replicas of one log whose offset tables differ."""
    for name, version in (("a", (0, 3, 1_700_000_000_500)), ("b", (0, 2, 1_700_000_000_400))):
        store = SyntheticStore(str(root / name))
        for number in range(messages):
            store.append(
                "T1",
                number % 4,
                b"body",
                store_timestamp=1_700_000_000_000 + number,
                uniq_key=f"{seed:016X}{number:016X}",
                tags="A",
            )
        store.save(HELD[name], version=version, previous_offsets=HELD[name] if name == "a" else None)
    return {name: root / name for name in ("a", "b")}


def changes() -> list[Change]:
    """What is right for `HELD`."""
    return [
        Change(1, "T1", "g1", 0, "lost-by-version-step", 15, {"a": 5, "b": 15}, "why", 0, 0, 10),
        Change(2, "T1", "g2", 0, "behind", 1, {"a": 1, "b": None}, "why", 0, 0, 1),
    ]


def write_test_plan(stores: dict[str, Path], path: Path, made: list[Change] | None = None) -> Path:
    """A sealed plan for the stores."""
    described = []
    for name, root in stores.items():
        layout = read_layout(Store(name, str(root)))
        described.append(describe_store(layout, 0, None, TABLE))
    write_plan(str(path), "default", described, [batch_of(changes() if made is None else made)], CREATED_MS)
    return path


def batch_of(made: list[Change]) -> pa.RecordBatch:
    """Changes as the columns of a plan."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([column_of(change, name) for change in made], kind)
            for name, kind in zip(CHANGES.names, CHANGES.types, strict=True)
        ],
        schema=CHANGES,
    )


def column_of(change: Change, name: str) -> object:
    if name == "current":
        return list(change.current.values())
    return change.kind if name == "class" else getattr(change, name)


def plan_rows(path: Path) -> list[Change]:
    """All changes of a plan."""
    return list(load_plan(str(path)).changes())


def table_bytes(stores: dict[str, Path]) -> dict[str, bytes | None]:
    """Bytes of every offset table and its copy, None for one that does not exist."""
    found: dict[str, bytes | None] = {}
    for name, root in stores.items():
        for table in (TABLE, f"{TABLE}.bak"):
            path = root / "config" / table
            found[f"{name}/{table}"] = path.read_bytes() if path.exists() else None
    return found


class Run:
    """Runs commands and keeps what they said, or passes it on."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self.said: list[str] = []
        self._say = say

    def __call__(self, *arguments: object) -> int:
        self.said = []
        say = self._say or self.said.append
        return main([str(argument) for argument in arguments], now_ms=CREATED_MS, say=say)
