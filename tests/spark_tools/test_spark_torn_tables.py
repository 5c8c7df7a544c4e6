"""A table that cannot be read counts as its copy, as it does for a broker, and a plan repairs both files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark_plans import CREATED_MS, HELD, TABLE, Run, batch_of, plan_rows, table_bytes, write_stores, write_test_plan
from spark_runs import NEW, OLD, filled, named, rows, run

from understudy.spark_tools import exits
from understudy.spark_tools.faults import table_faults
from understudy.spark_tools.jobs.committed import offset_table_name
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.kernels.offset_tables import loaded_table
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.main import main
from understudy.spark_tools.plan import Change, describe_store, write_plan

BACKUP = f"{TABLE}.bak"
LIGHT = "lmqConsumerOffset.json"


@pytest.mark.parametrize(
    ("files", "readable", "loaded"),
    [
        ([], [], None),
        ([TABLE, BACKUP], [TABLE, BACKUP], TABLE),
        ([TABLE, BACKUP], [BACKUP], BACKUP),
        ([BACKUP], [BACKUP], BACKUP),
        ([TABLE, BACKUP], [], TABLE),
        ([TABLE, LIGHT], [TABLE, LIGHT], LIGHT),
        ([TABLE, LIGHT, f"{LIGHT}.bak"], [TABLE, f"{LIGHT}.bak"], f"{LIGHT}.bak"),
        ([TABLE, f"{LIGHT}.bak"], [TABLE, f"{LIGHT}.bak"], TABLE),
    ],
)
def test_the_file_a_broker_loads(files: list[str], readable: list[str], loaded: str | None) -> None:
    assert loaded_table(files, readable) == loaded


def torn(root: Path, content: bytes | None) -> Store:
    """A store with a good copy of its offsets and this as its table (None: no file)."""
    table = root / "config" / TABLE
    table.with_name(BACKUP).write_bytes(table.read_bytes())
    if content is None:
        table.unlink()
    else:
        table.write_bytes(content)
    return Store(root.name, str(root))


@pytest.mark.parametrize("content", [b'{"offsetTable":{"T1@g1":{0:1', b"", b"[]", None])
def test_a_torn_table_is_named_with_what_a_broker_loads(tmp_path: Path, content: bytes | None) -> None:
    store = torn(write_stores(tmp_path)["b"], content)

    (fault,) = table_faults(store)

    assert fault.detail.endswith(f"a broker loads {BACKUP} instead, and so is it judged here")
    assert offset_table_name(read_layout(store)) == BACKUP


def test_two_torn_files_keep_a_broker_from_starting_and_are_said_so(tmp_path: Path) -> None:
    store = torn(write_stores(tmp_path)["b"], b"{")
    (tmp_path / "b" / "config" / BACKUP).write_bytes(b'{"offset')

    (fault,) = table_faults(store)

    assert fault.detail.endswith("no broker starts with it")


def plan_for(root: Path, path: Path, made: list[Change]) -> Path:
    described = []
    for name in "ab":
        layout = read_layout(Store(name, str(root / name)))
        described.append(describe_store(layout, 0, None, offset_table_name(layout)))
    write_plan(str(path), "default", described, [batch_of(made)], CREATED_MS)
    return path


def test_apply_starts_from_the_copy_and_writes_both_files(tmp_path: Path) -> None:
    stores = write_stores(tmp_path)
    torn(stores["b"], b'{"offsetTable":{"T1@g1":{0:1')
    before = table_bytes(stores)
    made = [Change(1, "T1", "g1", 0, "lost-by-version-step", 15, {"a": 5, "b": 15}, "why", 0, 0, 10)]
    plan = plan_for(tmp_path, tmp_path / "plan.json", made)
    apply = Run()

    assert apply("plan", "apply", plan) == exits.AGREE, apply.said

    for file in (TABLE, BACKUP):
        table = tables.loads((stores["b"] / "config" / file).read_bytes())
        held = {key: {str(queue): offset for queue, offset in queues.items()} for key, queues in HELD["b"].items()}
        assert table["offsetTable"] == held
    assert apply("plan", "undo", plan) == exits.AGREE
    assert table_bytes(stores) == before


def test_apply_to_a_store_without_a_readable_table_is_refused_in_one_line(tmp_path: Path) -> None:
    stores = write_stores(tmp_path)
    torn(stores["b"], b"{")
    (stores["b"] / "config" / BACKUP).write_bytes(b"")
    before = table_bytes(stores)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    apply = Run()

    for words in (["plan", "apply", "--dry-run"], ["plan", "apply"]):
        assert apply(*words, plan) == exits.REFUSED
        assert f"b/config/{TABLE} at byte 1" in apply.said[-1]
        assert f"put back {TABLE}" in apply.said[-1]
    assert table_bytes(stores) == before


def test_commits_that_only_the_copy_knows_are_not_given_up(spark: Any, tmp_path: Path) -> None:
    """The master's table is torn, its copy knows 70, the slave 40: the plan says 70 and mends the table."""
    for name, held, version in (("a", 70, NEW), ("b", 40, OLD)):
        filled(tmp_path / name).save({"Orders@g": {0: held}}, version=version)
    torn(tmp_path / "a", b'{"offsetTable":{"Orders@g":{0:7')
    out = tmp_path / "out"

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out)

    assert code == exits.DAMAGED
    assert any(f"a broker loads {BACKUP} instead" in line for line in said), said
    (line,) = plan_rows(out / "plan.json")
    assert (line.current, line.proposed, line.saved) == ({"a": 70, "b": 40}, 70, 30)
    assert main(["plan", "apply", str(out / "plan.json")], CREATED_MS, said.append) == exits.AGREE, said
    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out / "2")
    assert (code, rows(out / "2", "Offsets that differ")) == (exits.AGREE, []), said
