"""Verdicts on the keys of one share: what all replicas hold, put beside each other and beside what their logs serve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.format.data_version import DataVersion
from understudy.format.names import LIGHT_PREFIX, SYSTEM_GROUP_PREFIX
from understudy.spark_tools import rules
from understudy.spark_tools.jobs.committed import Piece
from understudy.spark_tools.rules import Context, Replica, Reset

BATCH_ROWS = 131_072
UNLISTED_GROUP_PREFIXES = (SYSTEM_GROUP_PREFIX, "CID_ONS", LIGHT_PREFIX)
UNLISTED_TOPIC_PREFIXES = (LIGHT_PREFIX,)
SAME = "all replicas agree and can serve it"

EVIDENCE = pa.schema(
    [
        ("topic", pa.string()),
        ("consumer_group", pa.string()),
        ("queue_id", pa.int32()),
        ("class", pa.string()),
        ("proposed", pa.int64()),
        ("reason", pa.string()),
        ("repeated", pa.int64()),
        ("skipped", pa.int64()),
        ("saved", pa.int64()),
        ("stores", pa.list_(pa.string())),
        ("offsets", pa.list_(pa.int64())),
        ("previous_offsets", pa.list_(pa.int64())),
        ("min_offsets", pa.list_(pa.int64())),
        ("max_offsets", pa.list_(pa.int64())),
        ("versions", pa.list_(pa.string())),
        ("diverged_at", pa.int64()),
    ]
)


IN_ORDER = [("topic", "ascending"), ("consumer_group", "ascending"), ("queue_id", "ascending")]
"""Order of the keys within each file of the evidence, so that the files can be merged without being sorted again."""

Bounds = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Known:
    """What every task needs to judge keys: stores in order, versions of their tables, names, recorded resets."""

    stores: tuple[str, ...]
    versions: tuple[DataVersion, ...]
    previous_versions: tuple[DataVersion, ...]
    topics: frozenset[str]
    groups: frozenset[str]
    resets: dict[tuple[str, str, int], tuple[Reset, ...]]

    def topic_known(self, topic: str) -> bool:
        """Whether any replica lists the topic; light queues are never listed."""
        return not self.topics or topic in self.topics or topic.startswith(UNLISTED_TOPIC_PREFIXES)

    def group_known(self, group: str) -> bool:
        """Whether any replica lists the group; the broker's own and those of light queues are never listed.

        Places of broadcasting members stand under `group@broadcast`: no group has an `@` in its name.
        """
        name = group.partition("@")[0]
        return not self.groups or name in self.groups or name.startswith(UNLISTED_GROUP_PREFIXES)


@dataclass(frozen=True, slots=True)
class Served:
    """What one replica can serve of a range of one queue, and where it differs from the others (-1: nowhere)."""

    topic: str
    queue_id: int
    store: str
    min_offset: int | None
    max_offset: int | None
    diverged_at: int


def over_all_ranges(ranges: Iterable[Bounds]) -> tuple[int, int] | None:
    """What a queue serves over all its ranges, each (first offset, offset after the last) or (None, None).

    A range that serves nothing only counts where no range of the queue serves anything.
    """
    bounds = [(low, high) for low, high in ranges if low is not None and high is not None]
    filled = [(low, high) for low, high in bounds if high > low]
    if filled:
        return min(low for low, _ in filled), max(high for _, high in filled)
    return max(bounds, default=None)


class _Column:
    """Integers by row, each with whether it is there."""

    def __init__(self, rows: int) -> None:
        self.values = np.zeros(rows, np.int64)
        self.there = np.zeros(rows, bool)

    def array(self, rows: np.ndarray | slice = slice(None)) -> pa.Array:
        return pa.array(self.values[rows], mask=~self.there[rows])


def judge(items: Iterable[tuple[int, Any]], known: Known, tables: Sequence[str | None]) -> Iterator[pa.RecordBatch]:
    """Verdicts on all keys of one share, in the order of their names.

    Args:
        items: pieces of the offset tables and lists of what the queues serve, in any order.
        tables: name of the table each store's broker reads, in the order of `known.stores`.
    """
    pieces: list[Piece] = []
    served: list[Served] = []
    for _, item in items:
        if isinstance(item, Piece):
            pieces.append(item)
        else:
            served += item
    batch = _side_by_side(pieces, served, known.stores, tables).sort_by(IN_ORDER)
    for at in range(0, batch.num_rows, BATCH_ROWS):
        yield verdicts(batch.slice(at, BATCH_ROWS), known)


def _code(names: np.ndarray, queues: np.ndarray) -> np.ndarray:
    """One number for a name's number and a queue's."""
    return names.astype(np.int64) << 32 | (queues.astype(np.int64) + (1 << 31))


def _side_by_side(
    pieces: Sequence[Piece], served: Sequence[Served], stores: Sequence[str], tables: Sequence[str | None]
) -> pa.RecordBatch:
    """A row per topic, group and queue that any current table has: o*, p*, n*, x* by store, and diverged_at."""
    numbers: dict[tuple[str, str], int] = {}
    wanted: list[tuple[str, int, np.ndarray, np.ndarray]] = []
    for piece in pieces:
        store = stores.index(piece.store)
        table = tables[store]
        if table is None or piece.file not in (table, f"{table}.bak"):
            continue
        mine = np.array([numbers.setdefault(name, len(numbers)) for name in piece.names], np.int64)
        codes = _code(mine[piece.keys], piece.queues) if len(mine) else np.empty(0, np.int64)
        wanted.append(("o" if piece.file == table else "p", store, codes, piece.offsets))
    held = [codes for letter, _, codes, _ in wanted if letter == "o"]
    keys = np.unique(np.concatenate(held)) if held else np.empty(0, np.int64)
    columns = {f"{letter}{store}": _Column(len(keys)) for letter in "op" for store in range(len(stores))}
    for letter, store, codes, offsets in wanted:
        order = np.argsort(offsets)  # of two entries for one queue, `1` and `01`, the larger one counts
        codes, offsets = codes[order], offsets[order]
        rows = np.searchsorted(keys, codes)
        rows[rows == len(keys)] = 0
        fits = keys[rows] == codes if len(keys) else np.zeros(len(codes), bool)
        column = columns[f"{letter}{store}"]
        column.values[rows[fits]] = offsets[fits]
        column.there[rows[fits]] = True
    topics = {topic: number for number, topic in enumerate(dict.fromkeys(topic for topic, _ in numbers))}
    topic_of = np.array([topics[topic] for topic, _ in numbers], np.int64)
    name_of, queue_ids = keys >> 32, (keys & 0xFFFFFFFF) - (1 << 31)
    ranges, facts = _ranges(served, stores, topics)
    places = _code(topic_of[name_of], queue_ids) if len(keys) else keys
    at = np.searchsorted(ranges, places)
    at[at == len(ranges)] = 0
    found = ranges[at] == places if len(ranges) else np.zeros(len(keys), bool)
    arrays = {name: column.array() for name, column in columns.items()}
    for name, column in facts.items():
        if len(ranges):
            arrays[name] = pa.array(column.values[at], mask=~(column.there[at] & found))
        else:
            arrays[name] = pa.nulls(len(keys), pa.int64())
    names = list(numbers)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic for topic, _ in names], pa.string()).take(pa.array(name_of)),
            "consumer_group": pa.array([group for _, group in names], pa.string()).take(pa.array(name_of)),
            "queue_id": pa.array(queue_ids.astype(np.int32)),
            **arrays,
        }
    )


def _ranges(
    served: Sequence[Served], stores: Sequence[str], topics: dict[str, int]
) -> tuple[np.ndarray, dict[str, _Column]]:
    """The queues of these topics in order, and what each store serves of them over all ranges."""
    whole: dict[tuple[str, int], list[Served]] = {}
    for item in served:
        if item.topic in topics:
            whole.setdefault((item.topic, item.queue_id), []).append(item)
    codes = _code(
        np.array([topics[topic] for topic, _ in whole], np.int64), np.array([queue for _, queue in whole], np.int64)
    )
    order = np.argsort(codes)
    facts = {f"{letter}{store}": _Column(len(codes)) for letter in "nx" for store in range(len(stores))}
    facts["diverged_at"] = _Column(len(codes))

    def put(name: str, row: int, value: int | None) -> None:
        if value is not None:
            facts[name].values[row], facts[name].there[row] = value, True

    places = list(whole.values())
    for row, number in enumerate(order.tolist()):
        for store, name in enumerate(stores):
            mine = ((item.min_offset, item.max_offset) for item in places[number] if item.store == name)
            low, high = over_all_ranges(mine) or (None, None)
            put(f"n{store}", row, low)
            put(f"x{store}", row, high)
        put("diverged_at", row, min((i.diverged_at for i in places[number] if i.diverged_at >= 0), default=None))
    return codes[order], facts


def verdicts(batch: pa.RecordBatch, known: Known) -> pa.RecordBatch:
    """Verdicts on a batch of keys with columns topic, consumer_group, queue_id, o*, p*, n*, x*, diverged_at."""
    plain = plainly_equal(batch, known)
    odd_rows = np.flatnonzero(~plain)
    results = classified(batch.take(pa.array(odd_rows)), known)
    # row 0 of each small column is what plain rows hold, further ones are the odd rows in order
    places = np.zeros(batch.num_rows, np.int64)
    places[odd_rows] = np.arange(1, len(odd_rows) + 1)
    index = pa.array(places)

    def numbers(plainly: int, values: list[int]) -> pa.Array:
        return pa.array([plainly, *values], pa.int64()).take(index)

    def texts(plainly: str, values: list[str]) -> pa.Array:
        return pa.array([plainly, *values], pa.string()).take(index)

    proposed = pa.array([item.proposed for item in results], pa.int64())
    held = pa.concat_arrays([batch.column("o0").cast(pa.int64()), proposed])
    source = np.arange(batch.num_rows)
    source[odd_rows] = batch.num_rows + np.arange(len(odd_rows))
    count = len(known.stores)
    versions = [f"{v.state_version}/{v.counter}/{v.timestamp}" for v in known.versions]
    return pa.RecordBatch.from_arrays(
        [
            batch.column("topic"),
            batch.column("consumer_group"),
            batch.column("queue_id"),
            texts(rules.EQUAL, [item.kind for item in results]),
            held.take(pa.array(source)),
            texts(SAME, [item.reason for item in results]),
            numbers(0, [item.repeated for item in results]),
            numbers(0, [item.skipped for item in results]),
            numbers(0, [item.saved for item in results]),
            _constant(known.stores, batch.num_rows),
            _lists(batch, "o", count),
            _lists(batch, "p", count),
            _lists(batch, "n", count),
            _lists(batch, "x", count),
            _constant(versions, batch.num_rows),
            batch.column("diverged_at"),
        ],
        schema=EVIDENCE,
    )


def classified(batch: pa.RecordBatch, known: Known) -> list[rules.Verdict]:
    """A verdict on each row of a batch, by the rules."""
    count = len(known.stores)
    columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    results = []
    for row in range(batch.num_rows):
        topic, group, queue_id = columns["topic"][row], columns["consumer_group"][row], columns["queue_id"][row]
        replicas = [
            Replica(
                known.stores[number],
                columns[f"o{number}"][row],
                known.versions[number],
                columns[f"p{number}"][row],
                known.previous_versions[number],
                columns[f"n{number}"][row],
                columns[f"x{number}"][row],
            )
            for number in range(count)
        ]
        recorded = known.resets.get((topic, group, queue_id), ()) + known.resets.get((topic, group, -1), ())
        context = Context(known.topic_known(topic), known.group_known(group), columns["diverged_at"][row], recorded)
        results.append(rules.classify(replicas, context))
    return results


def _constant(words: Sequence[str], rows: int) -> pa.ListArray:
    """The same list in every row."""
    count = len(words)
    values = pa.array(list(words), pa.string()).take(pa.array(np.tile(np.arange(count), rows)))
    return pa.ListArray.from_arrays(pa.array(np.arange(0, rows * count + 1, count, dtype=np.int32)), values)


def _lists(batch: pa.RecordBatch, prefix: str, count: int) -> pa.ListArray:
    """Columns `prefix0`, `prefix1`, ... as one list per row."""
    rows = batch.num_rows
    whole = pa.concat_arrays([batch.column(f"{prefix}{number}").cast(pa.int64()) for number in range(count)])
    order = np.arange(rows * count).reshape(count, rows).T.reshape(-1)
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, rows * count + 1, count, dtype=np.int32)), whole.take(pa.array(order))
    )


def plainly_equal(batch: pa.RecordBatch, known: Known) -> np.ndarray:
    """Rows on which every replica holds one offset, within each log, above no divergence, with nothing else to look at.

    A shortcut for the usual case: wherever it says yes, `rules.classify` says EQUAL.
    """
    rows = batch.num_rows
    first = batch.column("o0")
    yes = np.ones(rows, dtype=bool)

    def both(test: pa.Array) -> None:
        nonlocal yes
        yes &= pc.fill_null(test, False).to_numpy(zero_copy_only=False)

    both(pc.greater_equal(first, 0))
    yes &= pc.fill_null(pc.less_equal(first, batch.column("diverged_at")), True).to_numpy(zero_copy_only=False)
    for number in range(len(known.stores)):
        both(pc.equal(batch.column(f"o{number}"), first))
        both(pc.less_equal(batch.column(f"n{number}"), first))
        both(pc.greater_equal(batch.column(f"x{number}"), first))
        previous = batch.column(f"p{number}")
        yes &= pc.fill_null(pc.less_equal(previous, first), True).to_numpy(zero_copy_only=False)
    for column, test in (("topic", known.topic_known), ("consumer_group", known.group_known)):
        encoded = batch.column(column).dictionary_encode()
        table = np.array([test(name) for name in encoded.dictionary.to_pylist()] + [False])
        yes &= table[encoded.indices.fill_null(len(table) - 1).to_numpy()]
    if known.resets:
        yes[:] = False
    return yes
