"""What the tasks of `reconcile` wrote, read in pieces: what is held does not grow with the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import nsmallest
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, parquet

from understudy.runtime.descriptors import raise_limit
from understudy.spark_tools import rules
from understudy.spark_tools.plan import CHANGES
from understudy.spark_tools.storage import local_path, remote

ROWS_AT_ONCE, FEWEST_ROWS = 16_384, 64
"""Of all files together, which are read side by side, and of each file."""
GROUPS_AT_ONCE = 500_000
"""Of which a number is held: about 60 MB."""
KEY = ("topic", "consumer_group", "queue_id")


def _files(place: str) -> tuple[list[str], Any]:
    """Parquet files of a job, wherever they lie, and the file system they are on."""
    local = local_path(place)
    system, inner = (None, local) if local is not None else remote(place)
    found = dataset.dataset(inner, filesystem=system)
    return found.files, found.filesystem


def _batches(place: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Batches of some columns, file by file."""
    # not a scan of the dataset, which reads far ahead of the rows that are taken
    files, system = _files(place)
    for path in files:
        with system.open_input_file(path) as source, parquet.ParquetFile(source) as file:
            yield from file.iter_batches(columns=columns, use_threads=False)


def class_counts(place: str) -> tuple[Counter[str], int]:
    """Keys by class, and how many there are."""
    counts: Counter[str] = Counter()
    for batch in _batches(place, ["class"]):
        counts.update({item["values"]: item["counts"] for item in batch.column(0).value_counts().to_pylist()})
    return counts, counts.total()


def proposed_changes(place: str) -> Iterator[pa.RecordBatch]:
    """Keys whose offset is to be changed on some replica, as the columns of a plan, in the order of their names.

    The files of the evidence are in this order each and are merged as they are read.
    """
    columns = [name if name != "group" else "consumer_group" for name in CHANGES.names if name != "current"]
    files, system = _files(place)
    rows = max(FEWEST_ROWS, ROWS_AT_ONCE // max(1, len(files)))
    raise_limit()  # a large cluster writes thousands
    with ExitStack() as opened:
        sources = []
        for path in files:
            source = opened.enter_context(system.open_input_file(path))
            file = opened.enter_context(parquet.ParquetFile(source))
            batches = file.iter_batches(rows, columns=[*columns, "offsets"], use_threads=False)
            sources.append(filter(len, map(_to_change, batches)))
        for batch in merged(sources):
            found = batch.select([*columns[:5], "offsets", *columns[5:]])
            yield pa.RecordBatch.from_arrays(found.columns, schema=CHANGES)


def _to_change(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with a proposal that some replica does not hold."""
    proposed, held = batch.column("proposed"), batch.column("offsets")
    rows = pc.list_parent_indices(held)
    unlike = pc.fill_null(pc.not_equal(pc.list_flatten(held), proposed.take(rows)), True)
    wanted = np.zeros(batch.num_rows, bool)
    wanted[rows.filter(unlike).to_numpy(zero_copy_only=False)] = True
    return batch.filter(pc.and_(pa.array(wanted), proposed.is_valid()))


def merged(sources: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Rows of sources that are in the order of their keys each, in that order; a batch of each source is held."""
    heads = [(batch, source) for source in sources if (batch := next(source, None)) is not None]
    while heads:
        bound = min(_last(batch) for batch, _ in heads)
        taken, rest = [], []
        for batch, source in heads:
            count = _not_above(batch, bound)
            taken.append(batch.slice(0, count))
            following = batch.slice(count) if count < len(batch) else next(source, None)
            if following is not None:
                rest.append((following, source))
        heads = rest
        together = pa.Table.from_batches(taken).sort_by([(name, "ascending") for name in KEY])
        yield from together.combine_chunks().to_batches()


def _last(batch: pa.RecordBatch) -> tuple[Any, ...]:
    return tuple(batch.column(name)[-1].as_py() for name in KEY)


def _not_above(batch: pa.RecordBatch, bound: tuple[Any, ...]) -> int:
    """How many rows, from the first, have a key not above the bound."""
    below = pa.scalar(True)
    for name, value in reversed(list(zip(KEY, bound, strict=True))):
        column = batch.column(name)
        below = pc.or_(pc.less(column, value), pc.and_(pc.equal(column, value), below))
    return int(pc.sum(below).as_py())


def worst_rows(place: str, most: int) -> list[dict[str, Any]]:
    """The worst keys: by class, then by messages lost or repeated, then by name; no more than `most`."""
    ranks = pa.array(rules.WORST_FIRST)
    order = [("rank", "ascending"), ("messages", "descending"), *((name, "ascending") for name in KEY)]
    columns = [*KEY, "class", "proposed", "reason", "repeated", "skipped", "saved", "offsets"]
    kept: pa.Table | None = None
    for batch in _batches(place, columns):
        found = pa.Table.from_batches([batch.filter(pc.not_equal(batch.column("class"), rules.EQUAL))])
        messages = pc.add(pc.add(found["repeated"], found["skipped"]), found["saved"])
        found = found.append_column("rank", pc.index_in(found["class"], ranks)).append_column("messages", messages)
        kept = found if kept is None else pa.concat_tables([kept, found])
        if len(kept) > most:
            kept = kept.take(pc.select_k_unstable(kept, most, order))
    return kept.sort_by(order).to_pylist() if kept is not None else []


def top_groups(places: Sequence[str], column: str, most: int) -> list[tuple[str, int]]:
    """The groups with the largest sum of a column of messages, and those sums; no more than `most`.

    Where there are more groups than are held at once they are looked at a part after the other, each time through all
    rows.

    Args:
        places: of several jobs' files, whose sums are added.
        column: with messages; groups without any are left out.
        most: groups to return.
    """
    parts = 1
    while True:
        best: list[tuple[str, int]] = []
        for part in range(parts):
            sums = _sums_by_group(places, column, part, parts)
            if sums is None:
                break
            best = nsmallest(most, [*best, *sums.items()], key=lambda item: (-item[1], item[0]))
        else:
            return best
        parts *= 4


def _sums_by_group(places: Sequence[str], column: str, part: int, parts: int) -> Counter[str] | None:
    """Sums of the groups of one of `parts` parts; None where these are too many."""
    sums: Counter[str] = Counter()
    for batch in (batch for place in places for batch in _batches(place, ["consumer_group", column])):
        found = pa.Table.from_batches([batch]).filter(pc.field(column) > 0).group_by("consumer_group")
        for row in found.aggregate([(column, "sum")]).to_pylist():
            if parts == 1 or crc32(row["consumer_group"].encode()) % parts == part:
                sums[row["consumer_group"]] += row[f"{column}_sum"]
        if len(sums) > GROUPS_AT_ONCE:
            return None
    return sums


TRANSLATED = (*KEY, "current", "proposed", "repeated", "end", "method", "matched")


def row_count(place: str) -> int:
    """Rows of all files."""
    return sum(batch.num_rows for batch in _batches(place, ["queue_id"]))


def translated_rows(place: str) -> Iterator[tuple[Any, ...]]:
    """Rows of `translate` in the order of their keys, with the columns of `TRANSLATED`."""
    for batch in _batches(place, list(TRANSLATED)):
        yield from zip(*(batch.column(name).to_pylist() for name in TRANSLATED), strict=True)


def translated_changes(place: str) -> Iterator[pa.RecordBatch]:
    """Translated offsets that the target does not hold yet, as the columns of a plan."""
    for batch in _batches(place, list(TRANSLATED)):
        unlike = pc.fill_null(pc.not_equal(batch.column("current"), batch.column("proposed")), True)
        found = batch.filter(unlike)
        method, none = found.column("method"), pa.array(np.zeros(found.num_rows, np.int64))
        matched = pc.binary_join_element_wise(found.column("matched").cast(pa.string()), "messages matched", " ")
        reason = pc.if_else(pc.equal(method, "uniq-key"), matched, "no message matched: by store time")
        single = pa.array(np.arange(found.num_rows + 1), pa.int32())
        columns = [
            *(found.column(name) for name in KEY),
            pc.binary_join_element_wise("translated-by", method, "-"),
            found.column("proposed"),
            pa.ListArray.from_arrays(single, found.column("current")),
            reason,
            found.column("repeated"),
            none,
            none,
        ]
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, CHANGES, strict=True)], schema=CHANGES
        )
