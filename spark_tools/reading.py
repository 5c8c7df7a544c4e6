"""What the readers of all formats share: parts, packing, filters pushed down, column pruning."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from understudy.spark_tools.layout import Layout, LogFile, Queue, Store, read_layout
from understudy.spark_tools.windows import SPLIT_BYTES

BATCH_ROWS = 131072
FEWEST_TASKS = 8
LARGEST_TASK_BYTES = 256 * 1024 * 1024
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, wanted: value in wanted,
}


def parse_stores(text: str) -> list[Store]:
    """Stores out of a `path` option: one path, or `name=path` pairs separated by `;`."""
    stores = []
    for number, part in enumerate(piece for piece in text.split(";") if piece.strip()):
        name, separator, path = part.partition("=")
        stores.append(Store(name.strip(), path.strip()) if separator else Store(f"store{number}", part.strip()))
    return stores


@dataclass(frozen=True)
class Slice:
    """Bytes [start, stop) of a file, and the file that follows it."""

    file: LogFile
    start: int
    stop: int
    following: LogFile | None = None


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: about `splitBytes` of one store."""

    store: Store
    slices: tuple[Slice, ...] = ()
    queues: tuple[Queue, ...] = ()
    names: tuple[str, ...] = ()
    kind: str = ""


def pack(store: Store, slices: Iterable[Slice], split_bytes: int) -> Iterator[Part]:
    """Parts of about `split_bytes` each, so that many small files do not become many tasks."""
    pending: list[Slice] = []
    size = 0
    for piece in slices:
        pending.append(piece)
        size += piece.stop - piece.start
        if size >= split_bytes:
            yield Part(store, tuple(pending))
            pending, size = [], 0
    if pending:
        yield Part(store, tuple(pending))


def settle_worker() -> None:
    """Takes what a Spark worker has loaded out of its garbage collections: it runs one after every task.

    Without this each task costs as much as reading tens of megabytes. Does nothing outside of a task.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()


class StoreReader(DataSourceReader):
    """Reads the parts of one format; subclasses say which parts there are and how one becomes record batches."""

    whole_schema: pa.Schema

    def __init__(self, schema: StructType, options: MutableMapping[str, str]) -> None:
        self.schema = schema
        self.columns = schema.fieldNames()
        self.stores = parse_stores(options["path"])
        self.split_bytes = int(options.get("splitBytes", SPLIT_BYTES))
        self.filters: list[Filter] = []
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self.options = dict(options)
        self.verify = options.get("verify", "false").lower() == "true"

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keeps the comparisons it can use early and gives all of them back for Spark to evaluate again."""
        self.filters = [item for item in filters if type(item) in _COMPARE and len(item.attribute) == 1]  # type: ignore[attr-defined]
        return filters

    def keeps(self, **values: object) -> bool:
        """Whether rows with these constant column values can pass the pushed filters."""
        return all(
            _COMPARE[type(item)](values[item.attribute[0]], item.value)  # type: ignore[attr-defined]
            for item in self.filters
            if item.attribute[0] in values  # type: ignore[attr-defined]
        )

    def bounds(self, column: str) -> tuple[int, int]:
        """Smallest and largest value of an integer column that can pass the pushed filters."""
        low, high = -(1 << 62), 1 << 62
        for item in self.filters:
            if item.attribute[0] != column:  # type: ignore[attr-defined]
                continue
            value = item.value  # type: ignore[attr-defined]
            if isinstance(item, EqualTo):
                low, high = max(low, value), min(high, value)
            elif isinstance(item, In):
                low, high = max(low, min(value)), min(high, max(value))
            elif isinstance(item, GreaterThan | GreaterThanOrEqual):
                low = max(low, value)
            elif isinstance(item, LessThan | LessThanOrEqual):
                high = min(high, value)
        return low, high

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that pass the pushed filters on the columns it has."""
        mask = None
        for item in self.filters:
            name = item.attribute[0]  # type: ignore[attr-defined]
            if name not in batch.schema.names:
                continue
            column, value = batch.column(name), item.value  # type: ignore[attr-defined]
            if isinstance(item, In):
                test = pc.is_in(column, pa.array(list(value), column.type))
            else:
                compare = {
                    EqualTo: pc.equal,
                    GreaterThan: pc.greater,
                    GreaterThanOrEqual: pc.greater_equal,
                    LessThan: pc.less,
                    LessThanOrEqual: pc.less_equal,
                }[type(item)]
                test = compare(column, pa.scalar(value, column.type))
            mask = test if mask is None else pc.and_(mask, test)
        return batch if mask is None else batch.filter(mask)

    def task_bytes(self, slices: Iterable[Slice]) -> int:
        """How much one task reads: what `splitBytes` says, else an eighth of the input within fixed bounds.

        A task has a price of its own; what it holds in memory is one window, however many it reads.
        """
        if "splitBytes" in self.options:
            return self.split_bytes
        total = sum(piece.stop - piece.start for piece in slices)
        return min(max(total // FEWEST_TASKS, self.split_bytes), LARGEST_TASK_BYTES)

    def finish(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Filters, merges small batches and gives them exactly the schema Spark asked for."""
        settle_worker()
        pending: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            kept = self.filtered(batch)
            if not kept.num_rows:
                continue
            pending.append(kept)
            rows += kept.num_rows
            if rows >= BATCH_ROWS:
                yield self._merge(pending)
                pending, rows = [], 0
        if pending:
            yield self._merge(pending)

    def _merge(self, pending: list[pa.RecordBatch]) -> pa.RecordBatch:
        table = pa.Table.from_batches(pending).select(self.columns).cast(self.arrow_schema).combine_chunks()
        return table.to_batches()[0]

    @property
    def needed(self) -> list[str]:
        """Columns to compute: those asked for and those filtered on."""
        extra = [item.attribute[0] for item in self.filters]  # type: ignore[attr-defined]
        wanted = dict.fromkeys([*self.columns, *extra])
        return [name for name in wanted if name in self.whole_schema.names]

    def layouts(self) -> list[Layout]:
        """Layouts of the stores that can pass a filter on `store`."""
        return [read_layout(store) for store in self.stores if self.keeps(store=store.name)]
