"""The command as it is run for real: by spark-submit with the packages of a zip, and killed in the middle."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
    pytest.skip("Spark needs Java", allow_module_level=True)

from spark_plans import plan_rows, write_stores  # noqa: E402
from spark_submitted import environment, package  # noqa: E402

from understudy.spark_tools import exits  # noqa: E402
from understudy.spark_tools.main import main  # noqa: E402

pytestmark = pytest.mark.slow


def bare_python(into: Path) -> str:
    """An interpreter with all dependencies that does not find this package as the tests do."""
    path = into / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def arguments(stores: dict[str, Path], out: Path) -> list[str]:
    named = [text for name, path in stores.items() for text in ("--store", f"{name}=file:{path}")]
    return ["reconcile", *named, "--out", str(out), "--log", "tail"]


def test_spark_submit_runs_the_job_from_an_archive(tmp_path: Path) -> None:
    """Given an interpreter that finds the package only in the archive, driver and workers run it.

    With a wheel the tests of a cluster do the same.
    """
    name = "understudy.zip"
    stores = write_stores(tmp_path)
    script = tmp_path / "job.py"
    script.write_text(
        f"import sys\nimport understudy\nassert {name!r} in understudy.__path__[0], understudy.__path__\n"
        "from understudy.spark_tools.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[2]", "--py-files", str(package(tmp_path, name)), str(script)]

    done = subprocess.run(
        [*command, *arguments(stores, tmp_path / "out")],
        env=environment(
            SPARK_HOME=str(submit.parents[1]),
            PYSPARK_PYTHON=bare_python(tmp_path),
            PYSPARK_DRIVER_PYTHON=bare_python(tmp_path),
            PYTHONPATH=str(submit.parents[2]),
        ),
        capture_output=True,
        text=True,
        timeout=900,
    )

    assert done.returncode == exits.DIFFER, done.stderr[-3000:]
    assert done.stdout.startswith("Differ: 4 queues of groups on 2 stores")
    assert {change.group for change in plan_rows(tmp_path / "out" / "plan.json")} == {"g1", "g2"}


def test_a_killed_job_leaves_no_plan_and_can_be_run_again(tmp_path: Path) -> None:
    """The process group dies at several moments; afterwards there is no plan, or a whole one."""
    stores = write_stores(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "plan.json").write_text("stale\n")
    kept = {path: path.read_bytes() for name in "ab" for path in (tmp_path / name).rglob("*") if path.is_file()}
    command = [sys.executable, "-m", "understudy.spark_tools.main", *arguments(stores, out), "--master", "local[2]"]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while (out / "plan.json").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)  # until the job has begun its work
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)

    plan = out / "plan.json"
    said: list[str] = []
    if plan.exists():
        assert main(["plan", "show", str(plan)], say=said.append) == exits.AGREE, said
    assert {path: path.read_bytes() for name in "ab" for path in (tmp_path / name).rglob("*") if path.is_file()} == kept


def test_the_installed_command_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    """Given a terminal for its messages, the command the entry runs draws a bar per step and ends with its code."""
    stores = write_stores(tmp_path)
    out = tmp_path / "out"
    command = Path(sys.executable).with_name("understudy-spark")
    assert command.exists()
    terminal, other_end = pty.openpty()
    termios.tcsetwinsize(other_end, (40, 120))
    words = [str(command), *arguments(stores, out), "--master", "local[2]"]
    process = subprocess.Popen(
        words, env=environment(TERM="xterm"), stdin=other_end, stdout=subprocess.PIPE, stderr=other_end
    )
    os.close(other_end)
    shown = b""
    with contextlib.suppress(OSError):  # Linux answers EIO when the last writer is gone
        while piece := os.read(terminal, 65536):
            shown += piece
    os.close(terminal)
    printed, _ = process.communicate(timeout=900)

    text = shown.decode("utf-8", "replace")
    assert process.returncode == exits.DIFFER, text[-3000:]
    assert "reading stores" in text
    assert "comparing offsets" in text
    assert not re.search("WARN|log4j|log level|hostname", text), text
    count, total = re.findall(r"(\d+)/(\d+)", text)[-1]
    assert count == total
    assert b"\x1b" not in printed
    assert printed.decode().startswith("Differ: 4 queues of groups on 2 stores")


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "understudy.spark_tools.main",
            "reconcile",
            "--store",
            "a=/nowhere",
            "--out",
            str(tmp_path),
        ],
        env={"PATH": "/nowhere", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == exits.BAD_USAGE
    assert done.stdout.splitlines() == [
        "Spark needs Java 17 or 21: install it (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    ]
    assert done.stderr == ""


def test_the_command_line_needs_no_extra_until_something_is_to_be_done(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'pandas', 'numpy']));"
        "from understudy.spark_tools.main import main; main(['--help']); sys.exit(main(['plan', 'show', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.returncode == exits.BAD_USAGE, done.stderr
    assert "exit codes:" in done.stdout
    assert "pip install 'understudy[spark]'" in done.stdout.splitlines()[-1]
