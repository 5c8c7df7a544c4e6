"""The job on a cluster: a master and workers as processes of their own, each in an empty folder.

None of them finds this package where the tests do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("Spark needs Java", allow_module_level=True)

from spark_plans import plan_rows, write_stores  # noqa: E402
from spark_runs import report  # noqa: E402
from spark_submitted import environment, package  # noqa: E402

from understudy.spark_tools import exits  # noqa: E402

HOME = Path(pyspark.__file__).parent
LIMIT_S = 120
WHEEL = "understudy-0.1.0-py3-none-any.whl"
pytestmark = pytest.mark.slow


@contextmanager
def daemon(folder: Path, *words: str, shown: str) -> Iterator[str]:
    """One of Spark's own daemons in an empty folder, until the block ends; gives what `shown` matched in its log."""
    folder.mkdir()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else "java"
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(java), "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{HOME}/jars/*", *words, "--host", "127.0.0.1"],
            cwd=folder,
            env=environment(SPARK_HOME=str(HOME), SPARK_SCALA_VERSION="2.13"),  # what Spark's own scripts tell them
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + LIMIT_S
        while (found := re.search(shown, log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        yield found.group(0)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a master with two workers of one core."""
    folder = tmp_path_factory.mktemp("cluster")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as running:
        master = running.enter_context(
            daemon(
                folder / "master",
                f"{deploy}.master.Master",
                *("--port", "0", "--webui-port", "0"),
                shown=r"spark://127\.0\.0\.1:\d+",
            )
        )
        for number in range(2):
            work = folder / f"worker{number}"
            resources = ("--cores", "1", "--memory", "600m", "--port", "0", "--webui-port", "0")
            words = (f"{deploy}.worker.Worker", master, *resources, "--work-dir", str(work / "work"))
            running.enter_context(daemon(work, *words, shown="Successfully registered with master"))
        yield master


def separate_python(into: Path) -> Path:
    """An interpreter that has the dependencies, and not this package."""
    venv.create(into, symlinks=True)
    packages = next(into.glob("lib/python*/site-packages"))
    # named by a line of a file: such files of that folder, which name this package, are not looked at
    (packages / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("-packages")) + "\n"
    )
    return into / "bin" / "python"


def test_workers_in_other_folders_run_the_job_from_a_wheel(cluster: str, tmp_path: Path) -> None:
    """Given Python without the package but for the wheel; evidence lies where all can write."""
    stores = write_stores(tmp_path)
    python = separate_python(tmp_path / "venv")
    script = tmp_path / "job.py"
    script.write_text("import sys\nfrom understudy.spark_tools.main import main\nsys.exit(main())\n")
    out, shared, empty = tmp_path / "out", tmp_path / "shared", tmp_path / "empty"
    shared.mkdir()
    empty.mkdir()
    named = [text for name, path in stores.items() for text in ("--store", f"{name}=file:{path}")]

    done = subprocess.run(
        [
            str(HOME / "bin" / "spark-submit"),
            *("--master", cluster, "--executor-memory", "512m", "--driver-memory", "512m"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"),
            *("--py-files", str(package(tmp_path, WHEEL)), str(script), "reconcile", *named),
            *("--out", str(out), "--evidence", f"file:{shared}"),
        ],
        cwd=empty,
        env=environment(SPARK_HOME=str(HOME), PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=str(python)),
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == exits.DIFFER, done.stderr[-3000:]
    assert done.stdout.startswith("Differ: 4 queues of groups on 2 stores"), done.stderr[-3000:]
    workers = re.findall(r"Granted executor ID \S+ on hostPort", done.stderr)
    assert len(workers) == 2, done.stderr[:6000]
    assert {change.group for change in plan_rows(out / "plan.json")} == {"g1", "g2"}
    assert report(out)["facts"]["evidence"] == f"file:{shared}/out/evidence.parquet"
    assert list((shared / "out" / "evidence.parquet").glob("part-*.parquet"))
    assert not list(empty.iterdir())
