"""Stores on a real S3 protocol: the same plan as from local ones, and evidence written beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("Spark needs Java", allow_module_level=True)

from pyarrow import dataset, fs

from understudy.spark_tools import exits
from understudy.spark_tools.synthetic import SyntheticStore

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

START_MS = 1_700_000_000_000
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
    import peer_processes

    server = moto_server()
    blocks = peer_processes.PortBlocks()
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


def plan_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_stores_on_s3_give_the_plan_that_local_ones_give(s3: fs.S3FileSystem, tmp_path: Path) -> None:
    for name, offset in (("a", 40), ("b", 70)):
        store = SyntheticStore(str(tmp_path / "in" / name), log_file_bytes=1 << 16, queue_file_units=20)
        for number in range(400):
            store.append("Orders", number % 4, b"b" * 60, store_timestamp=START_MS + number, uniq_key=f"{number:032X}")
        store.save({"Orders@g1": {0: offset, 1: 10}, "Orders@g2": {2: 500}}, topics=["Orders"], groups=["g1", "g2"])
    fs.copy_files(
        str(tmp_path / "in"),
        f"{BUCKET}/in",
        source_filesystem=fs.LocalFileSystem(),
        destination_filesystem=s3,
    )

    def reconcile(root: str, out: Path, *more: str) -> None:
        # a process of its own: Spark's workers get their environment from the JVM, and that one's is as old as it is
        stores = ["--store", f"a={root}/a", "--store", f"b={root}/b", "--master", "local[2]", "--quiet"]
        command = [sys.executable, "-m", "understudy.spark_tools.main", "reconcile", *stores, "--out", str(out), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == exits.DIFFER, done.stdout + done.stderr
        assert done.stderr == ""

    reconcile(str(tmp_path / "in"), tmp_path / "here")
    reconcile(f"s3a://{BUCKET}/in", tmp_path / "there", "--evidence", f"s3a://{BUCKET}/evidence")

    mine, theirs = plan_lines(tmp_path / "here" / "plan.jsonl"), plan_lines(tmp_path / "there" / "plan.jsonl")
    assert len(mine) == 4
    assert mine[1:-1] == theirs[1:-1]
    for left, right in zip(mine[0].pop("stores"), theirs[0].pop("stores"), strict=True):
        assert right.pop("path") == f"s3a://{BUCKET}/in/{left['name']}"
        assert left.pop("path") == str(tmp_path / "in" / left["name"])
        assert left == right
    for header in (mine[0], theirs[0]):
        header.pop("input_digest")  # of the paths as well
        header.pop("created_ms")
    assert mine[0] == theirs[0]
    assert dataset.dataset(f"{BUCKET}/evidence/there/evidence.parquet", filesystem=s3).count_rows() == 3
