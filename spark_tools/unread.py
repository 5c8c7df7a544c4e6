"""Parts of a store these tools do not read: named with their path, so that nobody takes silence for agreement."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy.spark_tools.kernels.damage import DAMAGE, WARNING, Damage
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.storage import Entry, join, list_directory

NOT_READ = "not-read"
INNER_BATCH = 0x80  # MessageSysFlag.java
_OPENED_BY_EVERY_BROKER = "rocksdbstore"  # holds no offsets, and is empty unless a feature asks for it


def rocksdb_parts(store_path: str, directories: list[str]) -> Iterator[Damage]:
    """RocksDB folders with data in a store: queues, configuration tables, or whatever else is kept there.

    Args:
        directories: names of the folders directly below the store.
    """
    candidates = [join(store_path, name) for name in directories]
    for name in list_directory(join(store_path, "config"))[1]:
        inner = join(store_path, "config", name)
        candidates.append(inner)
        candidates += [join(inner, deeper) for deeper in list_directory(inner)[1]]
    for path in candidates:
        files = list_directory(path)[0]
        if not _is_rocksdb(files):
            continue
        held = [entry for entry in files if entry.size_bytes and entry.name.endswith((".sst", ".log"))]
        if held:
            severity = WARNING if path.endswith("/" + _OPENED_BY_EVERY_BROKER) else DAMAGE
            detail = f"a RocksDB of {len(held)} data files; what it holds is missing from this report"
            yield Damage(path, 0, sum(entry.size_bytes for entry in held), NOT_READ, detail, severity)


def _is_rocksdb(files: list[Entry]) -> bool:
    names = [entry.name for entry in files]
    return "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names)


def inner_batches(base: int, chunk: Chunk) -> tuple[int, int]:
    """Byte of the first record that holds a batch of messages (-1: none) and how many such records a chunk has."""
    rows = np.flatnonzero(chunk.header["sys_flag"] & INNER_BATCH)
    return (base + int(chunk.positions[rows[0]]), len(rows)) if len(rows) else (-1, 0)


def inner_batch_fault(path: str, at: int, count: int) -> Damage:
    """The note about the batches of one part of a log, the first of which is at byte `at`."""
    detail = f"from here on {count} records hold batches; each counts as one message, those inside are not looked at"
    return Damage(path, at, -1, NOT_READ, detail, WARNING)
