"""A plan is larger than the memory of who works with it: every command takes it in pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import pyarrow as pa
from spark_broker import SmallBroker
from spark_plans import CREATED_MS, Run, batch_of, changes, write_stores, write_test_plan

from understudy.spark_tools import exits
from understudy.spark_tools.durable import Journal
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.plan import ROW_GROUP_ROWS, load_plan, write_plan

ROWS = 30_000
HELD_BYTES = 6 << 20
"""Far below what the changes take as objects (about 20 MB)."""


@contextmanager
def bounded() -> Iterator[None]:
    """Fails when Python's objects or Arrow's arrays of a block take more than `HELD_BYTES` at any moment."""
    pool = pa.default_memory_pool()
    arrow = pool.bytes_allocated()
    tracemalloc.start()
    try:
        yield
        _, python = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert python < HELD_BYTES
    assert pool.bytes_allocated() - arrow < HELD_BYTES


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def plan(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One change so many times that the tables stay small while the plan is large."""
    path = write_test_plan(stores, tmp_path_factory.mktemp("plan") / "plan.json")
    loaded = load_plan(str(path))
    piece = batch_of(changes()[:1] * 1000)
    write_plan(str(path), "default", loaded.header["stores"], (piece for _ in range(ROWS // 1000)), CREATED_MS)
    assert load_plan(str(path)).count == ROWS
    return path


def test_show_prints_every_change_without_holding_them(plan: Path, stores: dict[str, Path]) -> None:
    lines = 0

    def count(line: str) -> None:
        nonlocal lines
        lines += "lost-by-version-step: why" in line

    with bounded():
        run = Run(count)
        assert run("plan", "show", "--all", plan) == exits.AGREE

    assert lines == ROWS


def test_apply_to_stopped_stores_and_undo_do_not_hold_the_changes(plan: Path, stores: dict[str, Path]) -> None:
    run = Run()
    with bounded():
        assert run("plan", "apply", plan) == exits.AGREE
    table = tables.loads((stores["a"] / "config" / "consumerOffset.json").read_bytes())
    assert table["offsetTable"]["T1@g1"]["0"] == 15
    with bounded():
        assert run("plan", "undo", plan) == exits.AGREE


def test_apply_to_a_live_broker_does_not_hold_the_changes(plan: Path, stores: dict[str, Path], tmp_path: Path) -> None:
    run = Run()
    with SmallBroker(stores["a"], {("T1", "g1", 0): 15}) as broker:
        words = ("plan", "apply", plan, "--broker", broker.address, "--journal", tmp_path / "live")
        with bounded():
            assert run(*words) == exits.AGREE

    assert run.said == [f"{ROWS} done"]


def test_a_journal_keeps_what_is_once_and_reads_again_what_is_for_each_change(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal.jsonl"))
    entries = [{"event": "begin"}, *({"event": event, "number": 1} for event in ("write", "skipped", "written"))]
    journal.write(*entries)

    assert journal.entries == [{"event": "begin"}]
    assert list(journal.replay()) == entries
    journal.close()
    again = Journal(str(tmp_path / "journal.jsonl"))
    assert again.entries == [{"event": "begin"}]
    again.close()


@pytest.mark.parametrize("sizes", [[], [1], [ROW_GROUP_ROWS], [ROW_GROUP_ROWS - 1, 1, 1], [3 * ROW_GROUP_ROWS + 5]])
def test_the_file_does_not_depend_on_how_the_changes_came(tmp_path: Path, sizes: list[int]) -> None:
    one = batch_of(changes()[:1])
    pieces = [pa.Table.from_batches([one] * size).combine_chunks().to_batches()[0] for size in sizes]
    singly = [row for piece in pieces for row in (piece.slice(at, 1000) for at in range(0, len(piece), 1000))]
    stores = [{"name": "a"}, {"name": "b"}]

    digests = {
        write_plan(str(tmp_path / "plan.json"), "default", stores, batches, CREATED_MS) for batches in (pieces, singly)
    }

    assert {count for count, _ in digests} == {sum(sizes)}
    assert len(digests) == 1
