"""Where queues and logs part is found whichever replica is named first, is short, begins late or has no queue."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spark_runs import filled

from understudy.format.data_version import DataVersion
from understudy.spark_tools import rules
from understudy.spark_tools.facts import LogRange
from understudy.spark_tools.jobs import queues
from understudy.spark_tools.jobs.committed import TablePart, cut_table
from understudy.spark_tools.jobs.judging import Known, judge
from understudy.spark_tools.jobs.log_bytes import compare_range, comparisons
from understudy.spark_tools.jobs.scan import StoreFacts
from understudy.spark_tools.kernels.consumequeue import BATCH_UNIT, FILLER_SIZE, UNIT, Units
from understudy.spark_tools.kernels.divergence import NOWHERE, first_differing_message, first_divergence
from understudy.spark_tools.kernels.extents import NOTHING, joined
from understudy.spark_tools.kernels.tables import dumps
from understudy.spark_tools.layout import Store, read_layout

FILLER = (0, FILLER_SIZE)
FILE_UNITS = 8
TABLE = "consumerOffset.json"
SHAPES = st.tuples(st.integers(0, 4), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=8))
"""Position of the first unit, fillers, and which of three messages each further position holds."""


def units_of(shape: tuple[int, int, list[int]]) -> tuple[Units, int]:
    first, fillers, messages = shape
    array = np.zeros(fillers + len(messages), UNIT)
    for row in range(fillers):
        array[row] = (*FILLER, 0)
    for row, message in enumerate(messages, start=fillers):
        array[row] = ((first + row) * 100 + 10 * message, 10, 0)
    return array, first


@given(st.lists(SHAPES, max_size=4))
@example([(0, 0, [0, 0, 0, 0]), (0, 0, [0]), (0, 0, [0, 0, 1, 0])])  # the short one between the two that differ
@example([(0, 0, [0, 0, 0, 0]), (0, 0, []), (0, 0, [0, 0, 1, 0])])
def test_any_two_that_differ_are_found_in_any_order(shapes: list[tuple[int, int, list[int]]]) -> None:
    held = [units_of(shape) for shape in shapes]
    real = [
        {first + row: tuple(unit)[:2] for row, unit in enumerate(units.tolist()) if unit[1] != FILLER_SIZE}
        for units, first in held
    ]
    parted = [at for one, other in combinations(real, 2) for at in one.keys() & other.keys() if one[at] != other[at]]

    assert {first_divergence(list(order), batched=False) for order in permutations(held)} == {
        min(parted, default=NOWHERE)
    }


def test_batches_part_at_the_smallest_queue_offset_of_the_position() -> None:
    held = []
    for base, physical in ((40, 100), (30, 200), (30, 200)):
        array = np.zeros(2, BATCH_UNIT)
        array[0] = (0, 10, 0, 0, 0, 30, 0, 0)
        array[1] = (physical, 10, 0, 0, base, 5, 0, 0)
        held.append((array, 7))

    assert {first_divergence(list(order), batched=True) for order in permutations(held)} == {30}


@pytest.mark.parametrize(("batched", "expected"), [(False, 8), (True, 30)])
def test_a_unit_that_points_to_different_bytes_counts(batched: bool, expected: int) -> None:
    held = []
    for count in (2, 3):
        array = np.zeros(count, BATCH_UNIT if batched else UNIT)
        array["physical_offset"], array["size"] = np.arange(count) * 100, 50
        array[0]["size"] = FILLER_SIZE  # one that points nowhere
        if batched:
            array["base_offset"] = np.arange(count) * 30
        held.append((array, 7))
    differing = joined(np.array([0, 100]), np.array([10, 150]), 10)

    assert first_differing_message(held, differing, batched) == expected
    assert first_differing_message(held, NOTHING, batched) == NOWHERE


def write_replica(root: Path, messages: list[int], offset: int | None) -> None:
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    array = np.zeros(FILE_UNITS, UNIT)
    for row, message in enumerate(messages):
        array[row] = (row * 100 + 10 * message, 10, 0)
    (folder / f"{0:020d}").write_bytes(array.tobytes())
    (root / "config").mkdir()
    held: dict[str, Any] = {} if offset is None else {"T@g": {"0": offset}}
    (root / "config" / TABLE).write_text(dumps({"offsetTable": held}))


def changes_of(stores: list[Store], versions: dict[str, DataVersion]) -> list[tuple[Any, ...]]:
    """What a plan would say of these stores, in the order they are given."""
    logs = {store.name: LogRange(0, None) for store in stores}
    items: list[tuple[int, Any]] = list(queues._served(queues._ranges_of([("T", False)], stores), stores, logs, 1))
    for store in stores:
        items += cut_table(TablePart(store.name, TABLE, f"{store.path}/config/{TABLE}", 1))
    names = tuple(store.name for store in stores)
    none = (DataVersion(),) * len(stores)
    known = Known(names, tuple(versions[name] for name in names), none, frozenset({"T"}), frozenset({"g"}), {})
    return [
        (
            *(row[name] for name in ("class", "proposed", "reason", "repeated", "skipped", "saved", "diverged_at")),
            dict(zip(row["stores"], row["offsets"], strict=True)),
        )
        for batch in judge(items, known, [TABLE] * len(stores))
        for row in batch.to_pylist()
    ]


REPLICAS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), max_size=FILE_UNITS),
        st.none() | st.integers(0, FILE_UNITS),
        st.builds(DataVersion, st.just(0), st.integers(0, 2), st.just(0)),
    ),
    min_size=2,
    max_size=3,
)
V0, V1, V2 = (DataVersion(0, counter, 0) for counter in range(3))


@settings(max_examples=60, deadline=None)
@given(REPLICAS)
@example([([0] * 8, 3, V0), ([0], None, V0), ([0, 0, 1, 1, 1, 1, 1, 1], 6, V0)])
@example([([0] * 8, 5, V0), ([0] * 8, 2, V1), ([0] * 8, 5, V2)])  # two at the top under versions around the third one's
def test_permutations_of_the_stores_give_the_same_plan(
    replicas: list[tuple[list[int], int | None, DataVersion]],
) -> None:
    with TemporaryDirectory() as folder:
        stores, versions = [], {}
        for number, (messages, offset, version) in enumerate(replicas):
            store = Store(f"r{number}", f"{folder}/r{number}")
            write_replica(Path(store.path), messages, offset)
            stores.append(store)
            versions[store.name] = version

        plans = [changes_of(list(order), versions) for order in permutations(stores)]

        assert all(plan == plans[0] for plan in plans)


def test_an_offset_is_not_carried_into_a_foreign_log_past_a_short_replica(tmp_path: Path) -> None:
    held: list[tuple[str, list[int], int]] = [("a", [0] * 8, 3), ("b", [0], 1), ("c", [0, 0] + [1] * 6, 6)]
    stores = []
    for name, messages, offset in held:
        write_replica(tmp_path / name, messages, offset)
        stores.append(Store(name, str(tmp_path / name)))

    (change,) = changes_of(stores, dict.fromkeys("abc", V0))

    assert (change[0], change[1]) == (rules.DIVERGED, None)


@pytest.mark.parametrize(("offset", "kind"), [(2, rules.EQUAL), (3, rules.DIVERGED), (6, rules.DIVERGED)])
def test_equal_offsets_above_a_divergence_do_not_agree(tmp_path: Path, offset: int, kind: str) -> None:
    """Equal numbers, but from offset 2 on they count other messages."""
    stores = []
    for name, messages in (("a", [0] * 8), ("b", [0, 0] + [1] * 6)):
        write_replica(tmp_path / name, messages, offset)
        stores.append(Store(name, str(tmp_path / name)))

    (change,) = changes_of(stores, dict.fromkeys("ab", V0))

    assert change[0] == kind


def test_a_hole_in_a_queue_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    """Zeros over offsets 2 to 4 of the only queue: the commit of 7 stands, nothing is delivered again."""
    write_replica(tmp_path / "a", [0] * 8, 7)
    queue = tmp_path / "a" / "consumequeue" / "T" / "0" / f"{0:020d}"
    raw = queue.read_bytes()
    queue.write_bytes(raw[: 2 * UNIT.itemsize] + bytes(3 * UNIT.itemsize) + raw[5 * UNIT.itemsize :])

    (change,) = changes_of([Store("a", str(tmp_path / "a"))], {"a": V0})

    assert change[:2] == (rules.EQUAL, 7)


def test_logs_behind_the_end_of_the_first_store_are_compared_too(tmp_path: Path) -> None:
    facts = []
    for name, messages in (("a", 50), ("b", 400), ("c", 400)):
        filled(tmp_path / name, messages).save({})
        layout = read_layout(Store(name, str(tmp_path / name)))
        end = 5_000 if name == "a" else 40_000
        facts.append(StoreFacts(layout.store, layout, LogRange(0, end)))
    log = tmp_path / "c" / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    raw[20_100] ^= 1
    log.write_bytes(raw)

    for order in permutations(facts):
        found = [row for work in comparisons(order, None) for row in compare_range(work)]

        assert [({row[0], row[1]}, row[3]) for row in found] == [({"b", "c"}, 20_100)]
