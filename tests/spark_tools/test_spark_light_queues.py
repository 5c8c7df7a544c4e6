"""Offsets of light queues are read, compared, planned and applied as all others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark_broker import SmallBroker
from spark_golden import unpack
from spark_plans import CREATED_MS, TABLE, Run, plan_rows, write_stores, write_test_plan
from spark_runs import NEW, OLD, START_MS, filled, named, rows, run

from understudy.broker.offsets import OffsetTable
from understudy.spark_tools import exits
from understudy.spark_tools.admin import AdminClient
from understudy.spark_tools.jobs.committed import offset_table_name
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.main import main
from understudy.spark_tools.plan import Change
from understudy.spark_tools.readers import offsets_batch

LIGHT, GROUP = "%LMQ%home", "%LMQ%readers"
FILE = "lmqConsumerOffset.json"


def with_lights(root: Path, held: int, plain: int, version: tuple[int, int, int], end: int = 90) -> None:
    """A store with a light queue of some messages, at which a group of that kind has come so far."""
    store = filled(root)
    for number in range(end):
        store.append(LIGHT, 0, b"x", store_timestamp=START_MS + number, uniq_key=f"{1:016X}{number:016X}", tags="A")
    store.save({"Orders@g": {0: plain}}, version=version, light_offsets={f"{LIGHT}@{GROUP}": held})


def broker_reads(root: Path, file: str = FILE) -> OffsetTable:
    """What a broker makes of the table of a store."""
    offsets = OffsetTable(lambda: 0)
    offsets.merge_json(tables.loads((root / "config" / file).read_bytes()))
    return offsets


def test_a_light_queue_that_a_replica_does_not_know_of_is_planned_applied_and_taken_back(
    spark: Any, tmp_path: Path
) -> None:
    with_lights(tmp_path / "a", 70, 30, OLD)
    with_lights(tmp_path / "b", 40, 30, NEW)
    before = {name: (tmp_path / name / "config" / FILE).read_bytes() for name in "ab"}
    out = tmp_path / "out"

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out)

    assert code == exits.DIFFER, said
    (line,) = plan_rows(out / "plan.json")
    assert (line.topic, line.group, line.queue_id, line.kind) == (LIGHT, GROUP, 0, "lost-by-version-step")
    assert (line.current, line.proposed, line.saved) == ({"a": 70, "b": 40}, 70, 30)

    assert main(["plan", "apply", str(out / "plan.json")], CREATED_MS, said.append) == exits.AGREE, said
    for name in "ab":
        content = tables.loads((tmp_path / name / "config" / FILE).read_bytes())
        assert content["lmqOffsetTable"] == {f"{LIGHT}@{GROUP}": 70}
        assert content["offsetTable"] == {"Orders@g": {"0": 30}}
        assert broker_reads(tmp_path / name).query(GROUP, LIGHT, 0) == 70
    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out / "2")
    assert (code, rows(out / "2", "Offsets that differ")) == (exits.AGREE, []), said

    assert main(["plan", "undo", str(out / "plan.json")], CREATED_MS, said.append) == exits.AGREE, said
    assert before == {name: (tmp_path / name / "config" / FILE).read_bytes() for name in "ab"}


def test_one_that_lies_above_the_light_queue_comes_down_to_its_end(spark: Any, tmp_path: Path) -> None:
    with_lights(tmp_path / "a", 70, 30, NEW, end=50)
    with_lights(tmp_path / "b", 40, 30, OLD, end=50)

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", tmp_path / "out")

    assert code == exits.DIFFER, said
    (line,) = plan_rows(tmp_path / "out" / "plan.json")
    assert (line.kind, line.proposed) == ("ahead-of-log", 50)


def test_the_table_of_a_captured_store_is_the_one_that_is_read(tmp_path: Path) -> None:
    root = unpack("lmq", tmp_path)
    path = root / "config" / FILE
    content = tables.loads(path.read_bytes()) | {"lmqOffsetTable": {"%LMQ%dev1@%LMQ%home": 5}}
    path.write_text(tables.dumps(content))
    store = Store("a", str(root))

    batch, faults = offsets_batch(store, FILE, str(path))

    assert offset_table_name(read_layout(store)) == FILE
    columns = ("topic", "consumer_group", "queue_id", "committed_offset")
    assert sorted(zip(*(batch.column(name).to_pylist() for name in columns), strict=True)) == [
        ("%LMQ%dev1", "%LMQ%home", 0, 5),
        ("%LMQ%dev1", "g_lmq", 0, 3),
        ("OrderTopic", "g_lmq", 0, 1),
    ]
    assert faults == []


def test_a_broker_without_light_queues_has_all_offsets_in_one_table(tmp_path: Path) -> None:
    stores = write_stores(tmp_path)
    made = [Change(1, "T1", GROUP, 0, "behind", 9, {"a": None, "b": None}, "why", 0, 0, 0)]
    plan = write_test_plan(stores, tmp_path / "plan.json", made)

    assert Run()("plan", "apply", plan) == exits.AGREE

    for root in stores.values():
        content = tables.loads((root / "config" / TABLE).read_bytes())
        assert content["offsetTable"][f"T1@{GROUP}"] == {"0": 9}
        assert "lmqOffsetTable" not in content
        assert broker_reads(root, TABLE).query(GROUP, "T1", 0) == 9


def test_a_live_broker_tells_them_in_a_table_of_their_own(tmp_path: Path) -> None:
    stores = write_stores(tmp_path)
    held = {("T1", "g1", 0): 5, (LIGHT, GROUP, 0): 7}
    with SmallBroker(stores["a"], held) as broker, AdminClient(broker.address) as client:
        assert client.all_offsets() == held
