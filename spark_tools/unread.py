"""Parts of a store these tools do not read: named with their path, so that nobody takes silence for agreement."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.spark_tools.kernels.damage import DAMAGE, WARNING, Damage
from understudy.spark_tools.storage import Entry, join, list_directory

NOT_READ = "not-read"
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
