"""Runs a plain Python function over work items on all tasks and brings back rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from understudy.spark_tools.reading import settle_worker

ITEMS_PER_TASK = 8


def deal(spark: SparkSession, items: Sequence[Any], work: Callable[[Any], Iterable[Any]]) -> RDD[Any]:
    """What `work` makes of each item, a task per item; both have to be picklable.

    Where rows are few and arrays many this is much cheaper than a data frame: nothing is planned or compiled.
    """
    context = spark.sparkContext
    return context.parallelize(items, max(1, len(items))).mapPartitions(partial(_each, work=work))


def _each(items: Iterable[Any], work: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    settle_worker()
    for item in items:
        yield from work(item)


def spread(
    spark: SparkSession,
    items: Sequence[Any],
    work: Callable[[Any], Iterable[tuple[Any, ...]]],
    schema: pa.Schema,
    ddl: str,
) -> DataFrame:
    """Rows that `work` makes of each item, items dealt out evenly, one small batch of rows per item.

    Args:
        spark: the session.
        items: of the work; pickled.
        work: returns the rows of one item; runs at an executor.
        schema: of the rows, for Arrow.
        ddl: the same for Spark.
    """
    tasks = max(1, min((len(items) + ITEMS_PER_TASK - 1) // ITEMS_PER_TASK, spark.sparkContext.defaultParallelism * 4))
    frame = spark.createDataFrame([(bytearray(pickle.dumps(item)),) for item in items], "item binary").repartition(
        tasks
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column(0).to_pylist():
                rows = list(work(pickle.loads(data)))
                columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
                )

    return frame.mapInArrow(run, ddl)
