"""Stores on a real S3 protocol: the same plan as from local ones, and evidence written beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("Spark needs Java", allow_module_level=True)

import pyarrow as pa
from pyarrow import dataset, fs, parquet
from spark_elsewhere import DIFFERENCES, assert_same_plan, write_stores

from understudy.spark_tools import storage
from understudy.testkit.port_blocks import PortBlocks

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

BUCKET = "stores"


def moto_server() -> Path:
    import peer_installation

    place = peer_installation.peers_home() / "s3" / "bin" / "moto_server"
    if not place.exists():
        pytest.skip(f"no S3 server at {place}: docs/spark.md says how to get one")
    return place


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fs.S3FileSystem]:
    """An S3 server with an empty bucket; its address and credentials stand in the environment, as for any user."""

    server = moto_server()
    blocks = PortBlocks()
    port = blocks.take()
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # java would name them where only errors belong
    with open(tmp_path / "moto.log", "wb") as log:
        process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        system = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                system.create_dir(BUCKET)
                break
            except OSError:  # it does not listen yet
                assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "moto.log").read_text()
                time.sleep(0.1)
        yield system
    finally:
        process.kill()
        process.wait(10)
        blocks.release()


@pytest.mark.slow
def test_stores_on_s3_give_the_plan_that_local_ones_give(s3: fs.S3FileSystem, tmp_path: Path) -> None:
    write_stores(tmp_path / "in")
    fs.copy_files(
        str(tmp_path / "in"),
        f"{BUCKET}/in",
        source_filesystem=fs.LocalFileSystem(),
        destination_filesystem=s3,
    )

    assert_same_plan(tmp_path / "in", f"s3a://{BUCKET}/in", f"s3a://{BUCKET}/evidence", tmp_path)

    assert dataset.dataset(f"{BUCKET}/evidence/there/evidence.parquet", filesystem=s3).count_rows() == DIFFERENCES


@pytest.mark.slow
def test_an_object_on_s3_bears_its_name_only_once_it_is_whole(s3: fs.S3FileSystem) -> None:
    """Closing a stream publishes an object, and a Parquet writer that fails puts a footer on it first."""
    path = f"s3a://{BUCKET}/parts/part.parquet"
    schema = pa.schema([("number", pa.int64())])

    def write(numbers: list[int], *, fails: bool) -> None:
        with storage.new_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
            writer.write_batch(pa.record_batch({"number": pa.array(numbers, pa.int64())}))
            if fails:
                raise RuntimeError

    def names() -> list[str]:
        return [entry.name for entry in storage.list_directory(f"s3a://{BUCKET}/parts")[0]]

    with pytest.raises(RuntimeError):
        write([1], fails=True)
    assert names() == []
    for numbers in ([1, 2], [1, 2, 3]):  # a task that is repeated replaces what it wrote
        write(numbers, fails=False)
        with pytest.raises(RuntimeError):
            write([9], fails=True)
        assert names() == ["part.parquet"]
        found = dataset.dataset(f"{BUCKET}/parts", filesystem=s3, format="parquet").to_table()
        assert found.column("number").to_pylist() == numbers
