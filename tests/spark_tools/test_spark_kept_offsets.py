"""What a job has read of the offset tables is what it judges, and it knows the same ranges as the backlog does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyarrow import dataset
from spark_runs import START_MS, filled

from understudy.spark_tools import rules
from understudy.spark_tools.jobs import reconcile as job
from understudy.spark_tools.jobs.lag import backlogs
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.layout import Store
from understudy.spark_tools.synthetic import SyntheticStore


def table_of(root: Path, value: int) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(tables.dumps(tables.loads(path.read_bytes()) | {"offsetTable": {"Orders@g": {"0": value}}}))


def kept_blocks(spark: Any) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def test_offsets_are_those_that_were_read_before_the_logs(spark: Any, tmp_path: Path) -> None:
    """Given a broker that commits during the scan; then the offsets of before it are judged, and nothing stays kept."""
    stores = [Store(name, str(tmp_path / name)) for name in "ab"]
    for store in stores:
        filled(Path(store.path)).save({"Orders@g": {0: 10}})
    before = kept_blocks(spark)

    shares, known, facts = job.reconcile(spark, stores)
    assert shares.reading.pieces.getStorageLevel().useDisk
    for store in stores:
        table_of(Path(store.path), 99)
    job.write_evidence(shares, known, facts, str(tmp_path / "evidence"))

    (row,) = dataset.dataset(str(tmp_path / "evidence")).to_table().to_pylist()
    assert (row["offsets"], row["class"]) == ([10, 10], rules.EQUAL)
    assert kept_blocks(spark) == before


def test_offsets_lost_with_an_executor_are_not_replaced_by_later_ones(spark: Any, tmp_path: Path) -> None:
    """Given kept offsets that are gone; then the tables are read again, and one that changed is named."""
    stores = [Store(name, str(tmp_path / name)) for name in "ab"]
    for store in stores:
        filled(Path(store.path)).save({"Orders@g": {0: 10}})
    shares, known, facts = job.reconcile(spark, stores)
    shares.reading.release()
    table_of(tmp_path / "b", 99)

    with pytest.raises(OSError, match=r"^consumerOffset\.json of b changed after an executor .* run this again$"):
        job.write_evidence(shares, known, facts, str(tmp_path / "evidence"))


def test_an_error_keeps_no_offsets(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [Store("a", str(tmp_path / "a"))]
    filled(tmp_path / "a").save({"Orders@g": {0: 10}})
    before = kept_blocks(spark)
    shares, known, facts = job.reconcile(spark, stores)
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="file"):
        job.write_evidence(shares, known, facts, str(tmp_path / "file" / "evidence"))
    assert kept_blocks(spark) == before

    def broken(*_: object, **__: object) -> None:
        assert kept_blocks(spark) == before + 1
        raise OSError("the disk is gone")

    monkeypatch.setattr(job, "scan", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        job.reconcile(spark, stores)
    assert kept_blocks(spark) == before


def test_backlogs_and_verdicts_know_the_same_ranges(spark: Any, tmp_path: Path) -> None:
    """Given an empty queue, one beyond the log, one without its first offsets and negative offsets; then both agree."""
    store = SyntheticStore(str(tmp_path / "a"), log_file_bytes=4_096, queue_file_units=20)
    for number in range(200):
        store.append("Orders", number % 4, b"b" * 60, store_timestamp=START_MS + number)
    offsets = {0: 5, 1: -3, 2: 70, 3: 0}
    store.save({"Orders@g": offsets, "Empty@g": {0: 0}, "Beyond@g": {0: 25}, "None@g": {0: 1}})
    logs = sorted((tmp_path / "a" / "commitlog").iterdir())
    logs[0].unlink()
    queues = tmp_path / "a" / "consumequeue"
    for topic, content in (("Empty", b""), ("Beyond", ((1 << 40).to_bytes(8, "big") + bytes([0, 0, 0, 9, *bytes(8)])))):
        (queues / topic / "0").mkdir(parents=True)
        (queues / topic / "0" / f"{400:020d}").write_bytes((content * 20).ljust(400, b"\0"))
    stores = [Store("a", str(tmp_path / "a"))]
    shares, known, facts = job.reconcile(spark, stores)
    job.write_evidence(shares, known, facts, str(tmp_path / "evidence"))
    judged = {
        (row["topic"], row["queue_id"]): (row["min_offsets"][0], row["max_offsets"][0], row["offsets"][0])
        for row in dataset.dataset(str(tmp_path / "evidence")).to_table().to_pylist()
    }

    found = {(row.topic, row.queue_id): row for row in backlogs(spark, stores, facts, []).collect()}

    assert found.keys() == judged.keys()
    for place, (low, high, committed) in judged.items():
        row = found[place]
        assert (row.committed, row.end) == (committed, high or 0)
        assert row.next_offset == max(committed, low or 0)
        assert row.backlog == max(0, row.end - row.next_offset)
    assert {place: bounds[:2] for place, bounds in judged.items() if place[0] != "Orders"} == {
        ("Empty", 0): (20, 20),
        ("Beyond", 0): (20, 20),
        ("None", 0): (None, None),
    }
    assert 0 < judged["Orders", 0][0] < judged["Orders", 0][1] == 50
    assert found["Orders", 1].backlog == 50 - judged["Orders", 1][0]
