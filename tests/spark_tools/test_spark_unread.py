"""What the tools do not read is named with its path instead of being passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_golden import unpack

from understudy.spark_tools.faults import log_part_faults
from understudy.spark_tools.kernels.damage import DAMAGE, WARNING
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.synthetic import SyntheticStore


def rocksdb(path: Path, *, data: bool = True) -> Path:
    """A folder as RocksDB leaves one."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "CURRENT").write_text("MANIFEST-000005\n")
    (path / "MANIFEST-000005").write_bytes(b"\1" * 60)
    (path / "000004.log").write_bytes(b"\2" * 100 if data else b"")
    if data:
        (path / "000009.sst").write_bytes(b"\3" * 300)
    return path


def store_at(path: Path) -> Store:
    written = SyntheticStore(str(path))
    written.append("T", 0, b"x", store_timestamp=1_700_000_000_000)
    written.save({"T@g": {0: 1}})
    return Store("a", str(path))


@pytest.mark.parametrize(
    ("place", "severity"),
    [
        ("consumequeue", DAMAGE),
        ("config/consumerOffsets", DAMAGE),
        ("config/rocksdb/subscriptionGroups", DAMAGE),
        ("rocksdbstore", WARNING),
    ],
)
def test_a_rocksdb_with_data_is_named(tmp_path: Path, place: str, severity: str) -> None:
    store = store_at(tmp_path / "a")
    path = rocksdb(tmp_path / "a" / place)

    found = [item for item in read_layout(store).damages if item.kind == "not-read"]

    assert [(item.path, item.length_bytes, item.severity) for item in found] == [(str(path), 400, severity)]


def test_the_empty_rocksdb_every_broker_opens_is_no_news(tmp_path: Path) -> None:
    store = store_at(tmp_path / "a")
    rocksdb(tmp_path / "a" / "rocksdbstore", data=False)

    assert read_layout(store).damages == []


def test_batches_inside_of_records_are_named_with_the_first_of_them(tmp_path: Path) -> None:
    store = Store("a", str(unpack("batchcq", tmp_path)))
    (file,) = read_layout(store).commit_log

    found = [item for item in log_part_faults(file, 0, file.size_bytes, None, verify=True) if item.kind == "not-read"]

    assert len(found) == 1
    assert found[0].path == file.path
    assert found[0].severity == WARNING
    data = Path(file.path).read_bytes()
    at = found[0].offset_bytes
    assert int.from_bytes(data[at + 36 : at + 40], "big") & 0x80
    assert b"INNER_NUM\x01" in data[at : at + int.from_bytes(data[at : at + 4], "big")]


def test_a_store_without_batches_says_nothing_of_them(tmp_path: Path) -> None:
    store = Store("a", str(unpack("basic", tmp_path)))
    file = read_layout(store).commit_log[0]

    assert [
        item for item in log_part_faults(file, 0, file.size_bytes, None, verify=False) if item.kind == "not-read"
    ] == []
