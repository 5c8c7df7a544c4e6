"""What users get from ``pip install understudy``: the wheel in an environment of its own, far from the checkout."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.testkit.port_blocks import PortBlocks

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """Run a program; return what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env=environment,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the files that it is made of: a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "-q"]
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*pip, "-w", str(folder), str(source)], capture_output=True, text=True, timeout=LIMIT_S, env=environment
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; it borrows what the wheel depends on from the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check", "-q"]
    run(*pip, "--no-deps", wheel, cwd=wheel.parent)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    # A plain path: what is installed as editable there is not found through it.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_the_wheel_holds_the_namespace_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"understudy"}
    assert "understudy/py.typed" in names
    assets = ROOT / "console" / "assets"
    page = {path.relative_to(assets).as_posix() for path in assets.rglob("*") if path.is_file()}
    assert {f"understudy/console/assets/{name}" for name in page} <= set(names)
    assert [name for name in names if name.endswith((".pyc", ".conf")) or "/tests/" in name] == []


def test_every_module_that_is_called_public_is_in_it(installed: Path, tmp_path: Path) -> None:
    table = (ROOT / "docs" / "api.md").read_text().partition("The commands are public")[0]
    modules = re.findall(r"^\| `(understudy\.[a-z_.]+)`", table, re.MULTILINE)
    assert len(modules) > 5
    run(installed / "python", "-c", f"import {', '.join(modules)}", cwd=tmp_path)


def test_its_commands_work_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    place = run(installed / "python", "-c", "import understudy; print(understudy.__path__[0])", cwd=tmp_path)
    assert place.startswith(str(installed.parent))
    version = run(installed / "understudy", "--version", cwd=tmp_path)
    assert re.fullmatch(r"understudy \d+\.\d+\.\d+\n", version)
    for command in ("up", "console", "drill", "bench", "spark"):
        assert run(installed / "understudy", command, "--version", cwd=tmp_path) == version
        assert command in run(installed / "understudy", "--help", cwd=tmp_path)
    assert "did you mean 'drill'?" in run(installed / "understudy", "dril", cwd=tmp_path, code=2)
    measured = run(installed / "understudy", "bench", "micro", "--seconds", "0.001", "--repetitions", "1", cwd=tmp_path)
    assert [line.split()[0] for line in measured.splitlines()] == ["decode", "encode", "append", "append-batch", "pull"]
    assert "did you mean 'micro'?" in run(installed / "understudy", "bench", "mico", cwd=tmp_path, code=2)
    played = run(installed / "understudy", "drill", "acting-master", "--seed", "1", cwd=tmp_path)
    assert "T5 first good request" in played


@pytest.fixture
def first_port() -> Iterator[int]:
    """The first of fifty: each of the two brokers takes some around a port of its own."""
    with PortBlocks(50) as blocks:
        yield blocks.take()


def test_a_cluster_is_up_with_it(installed: Path, tmp_path: Path, first_port: int) -> None:
    port = first_port
    ports = ("--namesrv-port", str(port), "--container-port", str(port + 1), "--broker-port", str(port + 10))
    ports += ("--proxy-port", "0")
    up = [str(installed / "understudy"), "up", *ports, "--data", str(tmp_path / "data")]
    with open(tmp_path / "output", "wb") as output:
        running = subprocess.Popen(up, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        while "Send to it" not in (tmp_path / "output").read_text():
            assert running.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
            time.sleep(0.05)
        where = ("-n", f"127.0.0.1:{port}")
        sent = run(installed / "mqadmin", "sendMessage", *where, "-t", "TopicTest", "-p", "hello", cwd=tmp_path)
        assert "SEND_OK" in sent
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) in (0, 130), (tmp_path / "output").read_text()


def test_programs_written_for_it_are_typed(installed: Path, tmp_path: Path) -> None:
    examples = sorted((ROOT / "examples").glob("*.py"))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed / "python"]
    assert "Success" in run(*mypy, "--cache-dir", tmp_path / "cache", *examples, cwd=tmp_path)
