"""Committed offsets of all replicas, cut into shares by topic and queue, so that each share can be judged by itself.

A share is a handful of arrays, not a row per queue: Spark moves bytes, and the comparing is done on columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from pyspark import RDD
from pyspark.sql import SparkSession

from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.kernels.offset_tables import OffsetTable, read_offset_table
from understudy.spark_tools.kernels.tables import DataVersion, TableError
from understudy.spark_tools.layout import Layout
from understudy.spark_tools.storage import read_file

OFFSET_TABLES = ("lmqConsumerOffset.json", "consumerOffset.json")
SHARE_BYTES = 8 << 20
NO_VERSION = DataVersion(0, 0, 0)
Versions = dict[tuple[str, str], DataVersion]


@dataclass(frozen=True, slots=True)
class TablePart:
    """One offset table of one store, and how many shares it is cut into."""

    store: str
    file: str
    path: str
    shares: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one table that belongs to one share; row `n` is queue `queues[n]` of `names[keys[n]]`."""

    store: str
    file: str
    version: DataVersion
    names: tuple[tuple[str, str], ...]
    keys: np.ndarray
    queues: np.ndarray
    offsets: np.ndarray


def offset_table_name(layout: Layout) -> str | None:
    """Name of the table the broker reads: the light-queue one replaces the other where it exists."""
    return next((name for name in OFFSET_TABLES if name in layout.tables), None)


def share_of(topic: str, queue_id: int, shares: int) -> int:
    """The share a queue belongs to; the queues of one topic go to many."""
    return (crc32(topic.encode()) + queue_id) % shares


def committed(spark: SparkSession, layouts: list[Layout]) -> tuple[RDD[tuple[int, Any]], int, Versions]:
    """Reads the tables of all stores, and their `.bak` copies, now.

    Returns the pieces by share, the number of shares, and the version of each table by (store, file).
    """
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
    pieces = deal(spark, parts, cut_table).persist()
    versions = dict(pieces.map(_head).collect())
    return pieces, shares, versions


def _head(item: tuple[int, Piece]) -> tuple[tuple[str, str], DataVersion]:
    return (item[1].store, item[1].file), item[1].version


def cut_table(part: TablePart) -> Iterator[tuple[int, Piece]]:
    """The pieces of one table by share, at least one; a table that cannot be read has no entries and version 0.

    What is wrong with a table is the business of the fault scan.
    """
    try:
        table = read_offset_table(read_file(part.path))
    except (TableError, OSError):
        table = OffsetTable(NO_VERSION)
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
                tuple(names[key] for key in used.tolist()),
                keys.astype(np.int32),
                table.queues[rows].astype(np.int32),
                table.offsets[rows],
            ),
        )
