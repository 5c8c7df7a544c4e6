"""Committed offsets of all replicas, cut into shares by topic and queue, so that each share can be judged by itself.

A share is a handful of arrays, not a row per queue: Spark moves bytes, and the comparing is done on columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from pyspark import RDD, StorageLevel
from pyspark.sql import SparkSession

from understudy.format.data_version import DataVersion
from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.kernels.offset_tables import OFFSET_TABLES, OffsetTable, loaded_table, read_offset_table
from understudy.spark_tools.kernels.tables import TableError
from understudy.spark_tools.layout import Layout
from understudy.spark_tools.storage import read_file

SHARE_BYTES = 8 << 20
NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True)
class TablePart:
    """One offset table of one store, and how many shares it is cut into."""

    store: str
    file: str
    path: str
    shares: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one table that belongs to one share; row `n` is queue `queues[n]` of `names[keys[n]]`.

    `checksum` is that of the whole table, `readable` whether a broker could load it.
    """

    store: str
    file: str
    version: DataVersion
    checksum: int
    readable: bool
    names: tuple[tuple[str, str], ...]
    keys: np.ndarray
    queues: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading of the tables of all stores found: pieces by share, and what each (store, file) was.

    Resources: the pieces are kept until `release`, so that nothing reads the tables again after the logs.
    """

    pieces: RDD[tuple[int, Any]]
    shares: int
    versions: dict[tuple[str, str], DataVersion]
    checksums: dict[tuple[str, str], int]
    readable: frozenset[tuple[str, str]]

    def loaded(self, store: str) -> str | None:
        """Name of the table the broker of a store starts with."""
        files = {file for name, file in self.versions if name == store}
        return loaded_table(files, {file for file in files if (store, file) in self.readable})

    def release(self) -> None:
        """Gives up the kept pieces; a second call does nothing."""
        self.pieces.unpersist()


def changed(items: Iterable[tuple[int, Any]], checksums: dict[tuple[str, str], int]) -> set[tuple[str, str]]:
    """The (store, file) of pieces that are of another content than the first reading had.

    What an executor keeps is lost with it: its pieces are cut anew, from tables a broker may have written since.
    """
    pieces = [item for _, item in items if isinstance(item, Piece)]
    return {(item.store, item.file) for item in pieces if checksums[item.store, item.file] != item.checksum}


def offset_table_name(layout: Layout) -> str | None:
    """Name of the table the broker of a store starts with, by reading it."""
    readable = set()
    for name in OFFSET_TABLES:
        for file in (name, f"{name}.bak"):
            entry = layout.tables.get(file)
            if entry is None:
                continue
            try:
                read_offset_table(read_file(entry.path))
            except (TableError, OSError):
                continue
            readable.add(file)
            break
    return loaded_table(layout.tables.keys(), readable)


def share_of(topic: str, queue_id: int, shares: int) -> int:
    """The share a queue belongs to; the queues of one topic go to many."""
    return (crc32(topic.encode()) + queue_id) % shares


def committed(spark: SparkSession, layouts: list[Layout]) -> Reading:
    """Reads the tables of all stores, and their `.bak` copies, now."""
    entries = [
        (layout.store.name, name + suffix, layout.tables[name + suffix])
        for layout in layouts
        for name in OFFSET_TABLES
        for suffix in ("", ".bak")
        if name + suffix in layout.tables
    ]
    size = sum(entry.size_bytes for _, _, entry in entries)
    shares = max(spark.sparkContext.defaultParallelism * 2, -(-size // SHARE_BYTES))
    parts = [TablePart(store, file, entry.path, shares) for store, file, entry in entries]
    # also on disk: what memory has no room for would be read again, after the logs
    pieces = deal(spark, parts, cut_table).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        heads = dict(pieces.map(_head).collect())
    except BaseException:
        pieces.unpersist()
        raise
    return Reading(
        pieces,
        shares,
        {place: version for place, (version, _, _) in heads.items()},
        {place: checksum for place, (_, checksum, _) in heads.items()},
        frozenset(place for place, (_, _, readable) in heads.items() if readable),
    )


def _head(item: tuple[int, Piece]) -> tuple[tuple[str, str], tuple[DataVersion, int, bool]]:
    return (item[1].store, item[1].file), (item[1].version, item[1].checksum, item[1].readable)


def cut_table(part: TablePart) -> Iterator[tuple[int, Piece]]:
    """The pieces of one table by share, at least one; a table that cannot be read has no entries and version 0.

    What is wrong with a table is the business of the fault scan.
    """
    checksum, readable = 0, True
    try:
        data = read_file(part.path)
        checksum = crc32(data)
        table = read_offset_table(data)
    except (TableError, OSError):
        table, readable = OffsetTable(NO_VERSION), False
    firsts = np.array([crc32(topic.encode()) for topic in table.topics], np.int64)
    shares = (firsts[table.keys] + table.queues) % part.shares if len(table.keys) else table.keys
    names = list(zip(table.topics, table.groups, strict=True))
    for share in np.unique(shares).tolist() or [0]:
        rows = np.flatnonzero(shares == share)
        used, keys = np.unique(table.keys[rows], return_inverse=True)
        yield (
            share,
            Piece(
                part.store,
                part.file,
                table.version,
                checksum,
                readable,
                tuple(names[key] for key in used.tolist()),
                keys.astype(np.int32),
                table.queues[rows].astype(np.int32),
                table.offsets[rows],
            ),
        )
