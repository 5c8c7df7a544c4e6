"""Scan of whole stores: every fault with its place, and where each log ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from understudy.spark_tools.facts import LogRange
from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.kernels import progress, tables
from understudy.spark_tools.kernels.damage import DAMAGE, Damage
from understudy.spark_tools.kernels.progress import Checkpoint, Epoch
from understudy.spark_tools.layout import Layout, Store, read_layout
from understudy.spark_tools.readers import FAULTS_SCHEMA, FaultsReader
from understudy.spark_tools.reading import Part
from understudy.spark_tools.storage import read_file

FAULT_LIMIT = 100_000
TASKS_OF_FULL_LIMIT = 16
ENDS = ("end-of-log", "damaged-tail")


@dataclass(slots=True)
class StoreFacts:
    """What a scan learned about one store."""

    store: Store
    layout: Layout
    log: LogRange
    faults: list[Damage] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    checkpoint: Checkpoint | None = None
    epochs: list[Epoch] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether anything found is more than an oddity."""
        return any(item.severity == DAMAGE for item in self.faults)


def path_option(stores: Sequence[Store]) -> str:
    """Stores as the data sources take them."""
    return ";".join(f"{store.name}={store.path}" for store in stores)


def scan(
    spark: SparkSession, stores: Sequence[Store], *, verify: bool = False, whole_log: bool = True
) -> list[StoreFacts]:
    """Reads every file of the stores once.

    Args:
        verify: also check each body against its CRC.
        whole_log: walk the whole log; otherwise only its end, which is enough to know where it ends.
    """
    reader = FaultsReader(
        from_arrow_schema(FAULTS_SCHEMA),
        {"path": path_option(stores), "verify": str(verify).lower(), "log": "all" if whole_log else "tail"},
    )
    parts = reader.partitions()
    most = FAULT_LIMIT // max(1, len(parts) // TASKS_OF_FULL_LIMIT)
    rows = deal(spark, parts, partial(_faults, reader=reader, most=most)).collect()
    result = []
    for store in stores:
        found = [fault for name, fault in rows if name == store.name][:FAULT_LIMIT]
        found.sort(key=lambda item: (item.path, item.offset_bytes, item.kind))
        layout = read_layout(store)
        facts = StoreFacts(store, layout, LogRange(layout.log_min_offset, log_end(layout, found)), found)
        _read_tables(facts)
        result.append(facts)
    return result


def _faults(part: Part, reader: FaultsReader, most: int) -> list[tuple[str, Damage]]:
    """Faults of one part, those that say where the log ends first, for they must not be among what is cut off."""
    found = sorted(reader.faults(part), key=lambda item: item.kind not in ENDS)
    return [(part.store.name, item) for item in found[:most]]


def log_end(layout: Layout, found: list[Damage]) -> int:
    """Physical offset after the last record: where zeros or an unreadable tail begin, or the end of the last file."""
    starts = {file.path: file.start_offset for file in layout.commit_log}
    ends = [starts[item.path] + item.offset_bytes for item in found if item.path in starts and item.kind in ENDS]
    last = layout.commit_log[-1] if layout.commit_log else None
    if ends:
        return min((end for end in ends if _nothing_follows(end, layout, ends)), default=max(ends))
    return last.start_offset + last.size_bytes if last else 0


def _nothing_follows(end: int, layout: Layout, ends: list[int]) -> bool:
    """Whether every file after the one that ends at `end` is itself empty."""
    later = [file.start_offset for file in layout.commit_log if file.start_offset > end]
    return all(start in ends for start in later)


def _read_tables(facts: StoreFacts) -> None:
    """Fills in names, checkpoint and epochs; tables that cannot be read were reported by the scan already."""
    layout = facts.layout
    for name, key, into in (
        ("topics.json", "topicConfigTable", facts.topics),
        ("subscriptionGroup.json", "subscriptionGroupTable", facts.groups),
    ):
        into.update(_loaded(layout, name).get(key, {}))
    small = layout.small_files
    if "checkpoint" in small:
        facts.checkpoint = progress.read_checkpoint(read_file(small["checkpoint"].path, 4096), "")[0]
    if "epochFileCheckpoint" in small:
        facts.epochs = progress.read_epochs(read_file(small["epochFileCheckpoint"].path), "")[0]


def _loaded(layout: Layout, name: str) -> dict[str, Any]:
    """A table as a broker loads it, its copy where it cannot be read; empty without either."""
    for file in (name, f"{name}.bak"):
        if file in layout.tables:
            try:
                table = tables.loads(read_file(layout.tables[file].path))
            except tables.TableError:
                continue
            if isinstance(table, dict):
                return table
    return {}


def progress_of(facts: StoreFacts) -> dict[str, int]:
    """How far delayed delivery, the timer and dispatch of a store are, by name; what cannot be read is left out."""
    found: dict[str, int] = {}
    levels = _loaded(facts.layout, "delayOffset.json").get("offsetTable", {})
    found |= {f"delay level {int(level):2}": offset for level, offset in levels.items() if level.isdecimal()}
    timer = facts.layout.tables.get("timercheck")
    if timer is not None:
        check = progress.read_timer_check(read_file(timer.path, 4096), timer.path)[0]
        if check is not None:
            found |= {f"timer {name.replace('_', ' ')}": value for name, value in asdict(check).items()}
    if facts.checkpoint is not None:
        found |= {f"checkpoint {name.replace('_', ' ')}": value for name, value in asdict(facts.checkpoint).items()}
    return found
