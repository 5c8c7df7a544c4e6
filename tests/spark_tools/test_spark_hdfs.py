"""Stores on a real HDFS: the same plan as from local ones, and evidence written beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("hdfs_native")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("Spark needs Java", allow_module_level=True)

import pyspark
from pyarrow import dataset, fs
from spark_elsewhere import DIFFERENCES, assert_same_plan, write_stores

from understudy.spark_tools import hdfs, storage

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

START_LIMIT_S = 180
SPARK_JARS = Path(pyspark.__file__).parent / "jars"  # of Hadoop, only the servers are missing among them


def server_jar() -> Path:
    import peer_installation

    client = next(SPARK_JARS.glob("hadoop-client-api-*.jar"))
    jar = peer_installation.peers_home() / "hdfs" / client.name.replace("-api-", "-minicluster-")
    if not jar.exists():
        pytest.skip(f"no HDFS server at {jar}: docs/spark.md says how to get one")
    return jar


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a name node that has one data node; both in one JVM that listens on the loopback address."""
    jar = server_jar()
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
    command = [str(java), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}"]
    command += ["-cp", f"{jar}{os.pathsep}{SPARK_JARS}/*", "org.apache.hadoop.test.MiniDFSClusterManager"]
    command += ["-D", f"hdfs.minidfs.basedir={folder}/data", "-format", "-datanodes", "1"]
    command += ["-nnport", "0", "-writeDetails", str(details)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not (details.exists() and details.read_bytes().endswith(b"}")):  # written when it has started
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.slow
def test_stores_on_hdfs_give_the_plan_that_local_ones_give(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # java would name them where only errors belong
    write_stores(tmp_path / "in")
    system, inner = storage.remote(f"{server}/in")
    fs.copy_files(
        str(tmp_path / "in"),
        inner,
        source_filesystem=fs.LocalFileSystem(),
        destination_filesystem=system,
        use_threads=False,
    )

    assert_same_plan(tmp_path / "in", f"{server}/in", f"{server}/evidence", tmp_path)

    system, inner = storage.remote(f"{server}/evidence/there/evidence.parquet")
    assert dataset.dataset(inner, filesystem=system).count_rows() == DIFFERENCES


@pytest.mark.slow
def test_files_on_hdfs_are_listed_read_by_ranges_and_replaced_in_one_step(server: str) -> None:
    folder = f"{server}/files/%RETRY%dead|a b"
    storage.empty_directory(folder)
    assert storage.list_directory(folder) == ([], [])
    storage.empty_directory(storage.join(folder, "0"))
    path = storage.join(folder, "part")
    before_ns = time.time_ns()
    whole = bytes(range(256)) * 4096
    for data in (b"first", whole):
        with storage.new_file(path) as file:
            assert [entry.name for entry in storage.list_directory(folder)[0] if not entry.name.startswith("_")] == (
                [] if data == b"first" else ["part"]
            )
            file.write(data)

    files, directories = storage.list_directory(folder)

    assert [(entry.name, entry.path, entry.size_bytes) for entry in files] == [("part", path, len(whole))]
    assert abs(files[0].modified_ns - before_ns) < 60_000_000_000
    assert directories == ["0"]
    assert storage.read_file(path) == whole
    assert storage.read_file(path, 5) == whole[:5]
    assert storage.map_range(path, 300_001, 70_000) == (whole[300_001:370_001], 300_001)
    assert storage.map_range(path, len(whole) - 3, 100) == (whole[-3:], len(whole) - 3)
    assert storage.map_range(path, len(whole) + 3, 100) == (b"", len(whole) + 3)
    storage.empty_directory(folder)
    assert storage.list_directory(folder) == ([], [])
    assert storage.list_directory(f"{server}/nowhere") == ([], [])


@pytest.mark.slow
def test_the_handler_does_what_arrow_promises_of_a_file_system(server: str) -> None:
    system, inner = storage.remote(f"{server}/handler/")
    assert inner == "/handler"
    system.create_dir("/handler/one/two")
    with system.open_output_stream("/handler/one/file", metadata=None) as stream:
        stream.write(b"abc")
    with system.open_append_stream("/handler/one/file", metadata=None) as stream:
        stream.write(b"def")
    system.copy_file("/handler/one/file", "/handler/one/two/copy")
    with system.open_input_file("/handler/one/two/copy") as file:
        assert (file.size(), file.seek(-2, 2), file.read(), file.tell(), file.read_at(3, 1)) == (6, 4, b"ef", 6, b"bcd")

    found = system.get_file_info(fs.FileSelector("/handler", recursive=True))

    assert {info.path: (info.type, info.size) for info in found} == {
        "/handler/one": (fs.FileType.Directory, None),
        "/handler/one/file": (fs.FileType.File, 6),
        "/handler/one/two": (fs.FileType.Directory, None),
        "/handler/one/two/copy": (fs.FileType.File, 6),
    }
    assert system.get_file_info("/handler/none").type == fs.FileType.NotFound
    system.delete_file("/handler/one/file")
    system.delete_dir("/handler/one/two")
    assert system.get_file_info(fs.FileSelector("/handler/one")) == []
    assert system.get_file_info(["/handler"])[0].type == fs.FileType.Directory


@pytest.mark.slow
def test_what_a_name_node_refuses_is_told_in_one_line(server: str) -> None:
    storage.empty_directory(f"{server}/refused")
    with storage.new_file(f"{server}/refused/file") as file:
        file.write(b"x")
    system, _ = storage.remote(server)

    def told(place: str) -> str:
        return rf"^{server}{place}: [^\n]+$"

    with pytest.raises(FileNotFoundError, match=told("/refused/none")):
        storage.read_file(f"{server}/refused/none")
    with pytest.raises(FileNotFoundError, match=told("/refused/none")):
        system.delete_file("/refused/none")
    with pytest.raises(FileNotFoundError, match=told("/refused/none")):
        system.get_file_info(fs.FileSelector("/refused/none"))
    with pytest.raises(NotADirectoryError, match=told("/refused/file")):
        storage.list_directory(f"{server}/refused/file")
    with pytest.raises(OSError, match=rf"^{server}/refused/file/x: ParentNotDirectoryException: [^\n\"]+$"):
        system.create_dir("/refused/file/x")
    with pytest.raises(OSError, match=told("/refused")):
        system.delete_file("/refused")


@pytest.mark.slow
def test_without_an_address_it_is_the_one_of_the_configuration(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (tmp_path / "core-site.xml").write_text(
        f"<configuration><property><name>fs.defaultFS</name><value>{server}</value></property></configuration>"
    )
    storage.empty_directory(f"{server}/default/folder")
    for path in ("hdfs:/default", "hdfs:///default"):
        assert storage.list_directory(path) == ([], ["folder"])


def test_an_address_nobody_listens_at_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "CONNECT_ATTEMPTS", 0)
    with pytest.raises(OSError, match=r"^hdfs://127\.0\.0\.1:1/a: Connection refused[^\n]*$"):
        storage.list_directory("hdfs://127.0.0.1:1/a")
    with pytest.raises(OSError, match=r"^hdfs://no-such-service: [^\n]*No NameNode hosts found[^\n]*$"):
        storage.list_directory("hdfs://no-such-service/a")
