"""Stores on other file systems are read by ranges and give what local ones give."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import fs
from spark_golden import manifest, unpack

from understudy.spark_tools import layout, storage, windows
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.layout import Store, read_layout


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that is not this machine's, as far as the tools can tell."""

    def remote(path: str) -> tuple[fs.FileSystem, str]:
        assert path.startswith("hdfs://node")
        return fs.LocalFileSystem(), path.removeprefix("hdfs://node")

    monkeypatch.setattr(storage, "remote", remote)


def test_a_remote_store_is_read_like_a_local_one(tmp_path: Path, elsewhere: None) -> None:
    root = unpack("multipath", tmp_path)

    found = read_layout(Store("a", f"hdfs://node{root}"))

    assert found.damages == []
    offsets: list[int] = []
    for file in found.commit_log:
        for start, stop in windows.splits(file, 5_000):
            for _, item in windows.read_records(file, start, stop):
                if isinstance(item, Chunk):
                    offsets += item.header["physical_offset"].tolist()
    assert offsets == [message["physicalOffset"] for message in manifest("multipath")["messages"]]
    assert {topic for topic, _ in layout.topics(found.store)} == {
        path.name for path in (root / "consumequeue").iterdir()
    }
    checkpoint = found.small_files["checkpoint"]
    assert storage.read_file(checkpoint.path) == (root / "checkpoint").read_bytes()


@pytest.mark.parametrize(
    ("path", "local"),
    [("/a/b", "/a/b"), ("file:/a%20b", "/a b"), ("file:///a", "/a"), ("hdfs://n/a", None), ("s3a://bucket/a", None)],
)
def test_schemes(path: str, local: str | None) -> None:
    assert storage.local_path(path) == local


def test_a_range_is_mapped_from_a_page_border_and_cut_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)

    data, base = storage.map_range(str(path), 5_000, 1 << 30)

    assert base <= 5_000
    assert bytes(data[5_000 - base : 5_004 - base]) == bytes([136, 137, 138, 139])
    assert base + len(data) == 16_384


def test_the_untouched_end_of_a_preallocated_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(1 << 24)

    assert 10_000 <= storage.data_end(str(path), 1 << 24) <= 1 << 24


def test_names_of_topics_are_no_encoding_of_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> tuple[str, str]:
            assert uri == "s3://bucket"
            return "s3", "bucket"

    monkeypatch.setattr(fs, "FileSystem", FileSystem)
    for name in ("%RETRY%g", "%DLQ%dead", "a|b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_bytes(name.encode())

        found = storage.join(f"file:{tmp_path}", name)

        assert storage.local_path(found) == str(tmp_path / name)
        assert [storage.read_file(entry.path) for entry in storage.list_directory(found)[0]] == [name.encode()]
        assert storage.remote(storage.join("s3a://bucket/a/", name)) == ("s3", f"bucket/a/{name}")
    assert storage.remote("s3a://bucket/") == ("s3", "bucket")


def test_a_machine_without_a_client_of_hdfs_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)

    with pytest.raises(OSError, match=r"^hdfs://n/a: hdfs-native missing: .*'understudy\[hdfs\]'$"):
        storage.list_directory("hdfs://n/a")


def test_a_new_file_bears_its_name_only_once_it_is_whole(tmp_path: Path, elsewhere: None) -> None:
    for place, root in (
        (str(tmp_path / "here"), tmp_path / "here"),
        (f"hdfs://node{tmp_path}/there", tmp_path / "there"),
    ):
        for text in (b"first", b"second"):
            storage.empty_directory(place)
            assert list(root.iterdir()) == []
            for _ in range(2):  # a task that is repeated replaces what it wrote
                with storage.new_file(storage.join(place, "part.parquet")) as file:
                    file.write(text)
            assert [(path.name, path.read_bytes()) for path in root.iterdir()] == [("part.parquet", text)]
        with pytest.raises(RuntimeError), storage.new_file(storage.join(place, "other.parquet")) as file:
            file.write(b"half")
            raise RuntimeError
        assert [path.name for path in root.iterdir()] == ["part.parquet"]


def test_a_part_whose_writer_fails_leaves_nothing(tmp_path: Path, elsewhere: None) -> None:
    """A Parquet writer puts a footer on what it has even when an error ends it: that must not look like a part."""
    from pyarrow import parquet

    schema = pa.schema([("number", pa.int64())])
    for place, root in (
        (str(tmp_path / "here"), tmp_path / "here"),
        (f"hdfs://node{tmp_path}/there", tmp_path / "there"),
    ):
        storage.empty_directory(place)

        with (
            pytest.raises(RuntimeError),
            storage.new_file(storage.join(place, "part.parquet")) as file,
            parquet.ParquetWriter(file, schema) as writer,
        ):
            writer.write_batch(pa.record_batch({"number": pa.array([1], pa.int64())}))
            raise RuntimeError

        assert list(root.iterdir()) == []
