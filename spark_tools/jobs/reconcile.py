"""Compares the committed offsets of all replicas and proposes what is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark import RDD
from pyspark.sql import SparkSession

from understudy.spark_tools.jobs.committed import NO_VERSION, Reading, changed, committed, offset_table_name
from understudy.spark_tools.jobs.judging import EVIDENCE, Known, judge
from understudy.spark_tools.jobs.log_bytes import differing_extents
from understudy.spark_tools.jobs.queues import served_by_share
from understudy.spark_tools.jobs.scan import StoreFacts, scan
from understudy.spark_tools.kernels.extents import NOTHING, Extents
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.reading import settle_worker
from understudy.spark_tools.rules import Reset
from understudy.spark_tools.storage import empty_directory, join, list_directory, new_file, read_file

ROW_GROUP_ROWS = 8192  # all files of the evidence are read at once, a row group of each


def load_resets(path: str | None) -> dict[tuple[str, str, int], tuple[Reset, ...]]:
    """Recorded resets: JSON lines with topic, group, queue_id (-1: all queues), offset and time_ms.

    Raises:
        ValueError: naming the line that is not such a record.
        OSError: when the file cannot be read.
    """
    found: dict[tuple[str, str, int], list[Reset]] = {}
    if path is not None:
        for number, line in enumerate(read_file(path).decode().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                key = (str(row["topic"]), str(row["group"]), int(row.get("queue_id", -1)))
                found.setdefault(key, []).append(Reset(int(row["offset"]), int(row["time_ms"])))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{path} line {number}: needs topic, group, offset and time_ms ({error})") from None
    return {key: tuple(value) for key, value in found.items()}


def offset_table(facts: StoreFacts) -> str | None:
    """Name of the table the store's broker starts with, by reading it."""
    return offset_table_name(facts.layout)


class Shares(NamedTuple):
    """All that is needed to judge the keys of one replica set, by share, the reading its offsets are from, and where
    the bytes of the logs differ (None: not compared)."""

    items: RDD[tuple[int, Any]]
    reading: Reading
    differing: Extents | None


def reconcile(
    spark: SparkSession,
    stores: Sequence[Store],
    *,
    resets: dict[tuple[str, str, int], tuple[Reset, ...]] | None = None,
    whole_log: bool = True,
    verify: bool = False,
) -> tuple[Shares, Known, list[StoreFacts]]:
    """Reads one replica set: all that is needed to judge its keys, by share, and what the scan of its stores found.

    `write_evidence` has to follow: it releases what is kept of the offsets.

    Args:
        resets: recorded resets by (topic, group, queue id or -1).
        whole_log: walk whole logs for damage and compare their bytes; otherwise only their ends are looked for.
    """
    # offsets first: whatever a running broker appends and commits meanwhile cannot make one look ahead of its log
    reading = committed(spark, [read_layout(store) for store in stores])
    try:
        facts = scan(spark, stores, verify=verify, whole_log=whole_log)
        differing = differing_extents(spark, facts) if whole_log else None
    except BaseException:
        reading.release()
        raise
    named = [(item.store.name, reading.loaded(item.store.name) or "") for item in facts]
    known = Known(
        tuple(item.store.name for item in facts),
        tuple(reading.versions.get((name, table), NO_VERSION) for name, table in named),
        tuple(reading.versions.get((name, f"{table}.bak"), NO_VERSION) for name, table in named),
        frozenset().union(*(item.topics for item in facts)),
        frozenset().union(*(item.groups for item in facts)),
        resets or {},
    )
    logs = {item.store.name: item.log for item in facts}
    served = served_by_share(spark, stores, logs, reading.shares, differing or NOTHING)
    return Shares(reading.pieces.union(served).partitionBy(reading.shares, int), reading, differing), known, facts


def write_evidence(shares: Shares, known: Known, facts: Sequence[StoreFacts], place: str) -> None:
    """Judges every share and writes its verdicts as one Parquet file of the directory `place`, which is emptied first.

    A task that is repeated replaces its own file.

    Args:
        shares: of the work, as they were dealt out to the tasks.
        known: what is known of all stores.
        facts: what a scan found of each.
        place: URI of the directory.

    Raises:
        OSError: when offsets kept on an executor were lost and their table has changed since, or when what the tasks
            wrote is not there.
    """
    try:
        empty_directory(place)
        tables = [shares.reading.loaded(item.store.name) for item in facts]
        work = partial(_write_share, known=known, tables=tables, checksums=shares.reading.checksums, place=place)
        lost = sorted(set(shares.items.mapPartitionsWithIndex(work).collect()))
    finally:
        shares.reading.release()
    if lost:
        named = ", ".join(f"{file} of {store}" for store, file in lost)
        raise OSError(f"{named} changed after an executor that kept its offsets was lost: run this again")
    written = sum(entry.name.startswith("part-") for entry in list_directory(place)[0])
    if written != shares.reading.shares:
        raise OSError(
            f"{place} has {written} of the {shares.reading.shares} files that tasks wrote: give --evidence URI, a place"
            " that all machines reach"
        )


def _write_share(
    number: int,
    items: Iterable[tuple[int, Any]],
    known: Known,
    tables: Sequence[str | None],
    checksums: dict[tuple[str, str], int],
    place: str,
) -> Iterator[tuple[str, str]]:
    from pyarrow import parquet

    settle_worker()
    items = list(items)
    with (
        new_file(join(place, f"part-{number:05d}.parquet")) as file,
        parquet.ParquetWriter(file, EVIDENCE, compression="zstd") as writer,
    ):
        for batch in judge(items, known, tables):
            writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
    yield from changed(items, checksums)
