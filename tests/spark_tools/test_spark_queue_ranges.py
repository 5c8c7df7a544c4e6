"""What a queue serves is judged in one way for backlogs and for offsets, wherever its ranges are cut."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.spark_tools import facts
from understudy.spark_tools.facts import LogRange
from understudy.spark_tools.jobs import judging, queues
from understudy.spark_tools.kernels.consumequeue import FILLER_SIZE, UNIT, UNIT_BYTES
from understudy.spark_tools.layout import Store

FILE_UNITS = 5
Units = list[tuple[int, int]]
Served = tuple[int, int] | None


def units(first: int, fillers: int, count: int, holes: frozenset[int] = frozenset()) -> Units:
    """Physical offset and size of units: fillers, then messages of 10 bytes stored every 20 bytes; zeros at holes."""
    found = [(0, FILLER_SIZE)] * fillers + [(first + 20 * number, 10) for number in range(count)]
    return [(0, 0) if at in holes else unit for at, unit in enumerate(found)]


HOLES = st.frozensets(st.integers(0, 17)) | st.builds(
    lambda begin, length: frozenset(range(begin, begin + length)), st.integers(0, 12), st.integers(0, 12)
)
QUEUES = st.builds(units, st.integers(0, 400), st.integers(0, 4), st.integers(0, 14), HOLES)
LOGS = st.tuples(st.integers(0, 600), st.none() | st.integers(0, 600))


def write_queue(root: Path, begin_file: int, found: Units, room_files: int) -> None:
    """Files of a queue from `begin_file` on, unused room at the end as zeros."""
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    files = -(-len(found) // FILE_UNITS) + room_files
    array = np.zeros(files * FILE_UNITS, UNIT)
    for at, (physical_offset, size) in enumerate(found):
        array[at] = (physical_offset, size, 0)
    for number in range(files):
        data = array[number * FILE_UNITS : (number + 1) * FILE_UNITS].tobytes()
        (folder / f"{(begin_file + number) * FILE_UNITS * UNIT_BYTES:020d}").write_bytes(data)


def in_both_jobs(stores: list[Store], logs: dict[str, LogRange], range_units: int) -> list[Served]:
    """What each store serves of the queue, as both jobs have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "RANGE_UNITS", range_units)
        parts = list(queues._ranges_of([("T", False)], stores))
    items = list(queues._served(parts, stores, logs, 1))
    backlog = {store: (low, high) for _, _, store, low, high in queues._whole_queues(items)}
    served = [part for _, found in items for part in found]
    _, columns = judging._ranges(served, [store.name for store in stores], {"T": 0})
    judged: list[Served] = [
        (int(columns[f"n{number}"].values[0]), int(columns[f"x{number}"].values[0]))
        if len(columns[f"n{number}"].values) and columns[f"n{number}"].there[0]
        else None
        for number in range(len(stores))
    ]
    assert [backlog.get(store.name) for store in stores] == judged
    return judged


def plainly(first: int, found: Units, log: tuple[int, int | None]) -> Served:
    """What a queue serves, unit by unit; a hole counts as the next unit behind it."""
    begin, end = log
    found = list(found)
    while found and not found[-1][1]:
        found.pop()
    for at in reversed(range(len(found))):
        found[at] = found[at] if found[at][1] else found[at + 1]
    gone = [offset < begin or size == FILLER_SIZE for offset, size in found]
    there = [
        first + at for at, (offset, size) in enumerate(found) if not gone[at] and (end is None or offset + size <= end)
    ]
    return (there[0], there[-1] + 1) if there else (first + sum(gone), first + sum(gone))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), QUEUES, st.integers(0, 2), LOGS), min_size=1, max_size=3),
    st.integers(1, 7),
)
@example([(0, [], 1, (0, 0)), (2, [], 2, (0, 0))], 3)  # empty queues
@example([(1, units(300, 0, 12), 1, (0, 200))], 3)  # a queue beyond the log
@example([(0, units(0, 0, 12), 2, (500, 600)), (2, units(0, 3, 2), 0, (0, None))], 3)  # nothing left by retention
@example([(0, units(0, 0, 12), 0, (85, 600))], 2)  # the first ones cut by retention
@example([(0, units(0, 0, 12, frozenset(range(3, 9))), 0, (0, 600))], 2)  # whole ranges and a file without units
@example([(0, units(0, 0, 12, frozenset(range(6))), 0, (0, 600))], 2)  # a zeroed head
@example([(0, units(100, 0, 12), 0, (200, 200))], 3)  # some below the log, the others above it
def test_every_way_to_cut_a_queue_and_both_jobs_say_the_same(
    replicas: list[tuple[int, Units, int, tuple[int, int | None]]], range_units: int
) -> None:
    with TemporaryDirectory() as folder:
        stores, logs, expected = [], {}, []
        for number, (begin_file, found, room_files, log) in enumerate(replicas):
            store = Store(str(number), f"{folder}/{number}")
            write_queue(Path(store.path), begin_file, found, room_files)
            stores.append(store)
            logs[store.name] = LogRange(*log)
            expected.append(plainly(begin_file * FILE_UNITS, found, log) if found or room_files else None)

        assert in_both_jobs(stores, logs, range_units) == expected
        assert in_both_jobs(stores, logs, 1 << 20) == expected


def test_a_missing_file_is_a_hole_and_not_the_end(tmp_path: Path) -> None:
    store = Store("a", str(tmp_path))
    write_queue(tmp_path, 0, units(0, 0, 14), 0)
    (tmp_path / "consumequeue" / "T" / "0" / f"{FILE_UNITS * UNIT_BYTES:020d}").unlink()

    for range_units in (2, 3, 1 << 20):
        assert in_both_jobs([store], {"a": LogRange(0, None)}, range_units) == [(0, 14)]
