"""The bytes of replicas' logs, range by range: which ranges are to be compared, and where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from pyspark.sql import SparkSession

from understudy.spark_tools.jobs.scan import StoreFacts
from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.kernels.compare import differing_records, first_difference
from understudy.spark_tools.kernels.extents import NOTHING, Extents, joined
from understudy.spark_tools.layout import LogFile
from understudy.spark_tools.storage import data_end
from understudy.spark_tools.windows import SPLIT_BYTES, open_window

MOST_EXTENTS = 65_536
"""Of all logs together: every task that judges queues gets them."""

Comparison = tuple[str, LogFile, str, LogFile, int, int]
"""A store and its file, another store and its copy of that file, and the range of them in bytes of the file."""


def compare_range(work: Comparison) -> Iterable[tuple[object, ...]]:
    """Difference of one range of one file on two stores, as a row."""
    left, left_file, right, right_file, start, stop = work
    one, other = open_window(left_file, start, stop), open_window(right_file, start, stop)
    found = first_difference(one, other, start, stop)
    if found is not None:
        yield (left, right, found.record_offset, found.byte_offset, found.differing_bytes)


def comparisons(facts: Sequence[StoreFacts], to: int | None) -> list[Comparison]:
    """Ranges to compare: what each store holds with the first store that holds it too.

    A store that is short or begins late leaves the rest to the next one: every byte that two stores have is compared.
    """
    work = []
    files = [{file.start_offset: file for file in item.layout.commit_log} for item in facts]
    for number, right in enumerate(facts):
        for file in right.layout.commit_log:
            compared = 0
            for left, held in zip(facts[:number], files[:number], strict=True):
                twin = held.get(file.start_offset)
                if twin is None:
                    continue
                end = min(left.log.end or 0, right.log.end or 0)
                end = end if to is None else min(end, to)
                stop_at = min(file.size_bytes, twin.size_bytes, end - file.start_offset)
                used = max(data_end(file.path, file.size_bytes), data_end(twin.path, twin.size_bytes))
                for start in range(compared, min(stop_at, used), SPLIT_BYTES):
                    stop = min(start + SPLIT_BYTES, stop_at)
                    work.append((left.store.name, twin, right.store.name, file, start, stop))
                compared = max(compared, stop_at)
    return work


def differing_extents(spark: SparkSession, facts: Sequence[StoreFacts]) -> Extents:
    """Where the logs of the replicas differ in a record, as far as two of them reach."""
    work = comparisons(facts, None)
    found = deal(spark, work, _differing).collect() if work else []
    if not found:
        return NOTHING
    starts, ends = np.concatenate([item.starts for item in found]), np.concatenate([item.ends for item in found])
    return joined(starts, ends, MOST_EXTENTS)


def _differing(work: Comparison) -> Iterable[Extents]:
    _, left_file, _, right_file, start, stop = work
    try:
        one, other = open_window(left_file, start, stop), open_window(right_file, start, stop)
    except FileNotFoundError:  # retention removed it since the scan: nobody can serve what it held
        return []
    found = differing_records(one, other, start, stop)
    return [found] if len(found) else []
