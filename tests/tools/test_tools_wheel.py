"""What users get from ``pip install understudy``: the wheel in an environment of its own, far from the checkout."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheel_rig import LIMIT_S, ROOT, SHORT_DRILL, build_wheel, copy_of_sources, environment, run

from understudy.mqclient.api import LZ4, ZSTD, ConsumeFrom, PullConsumerOptions, message
from understudy.mqclient.blocking import open_producer, open_pull_consumer
from understudy.testkit.blocking import local_cluster
from understudy.testkit.port_blocks import PortBlocks

pytestmark = pytest.mark.slow
FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel alone."""
    return environment(tmp_path_factory.mktemp("environment") / "venv", wheel)


@pytest.fixture(scope="module")
def installed_to_test(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of one with the plugin for pytest, Spark and the proxy, and three other plugins beside it."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    beside = ("pytest-asyncio", "pytest-trio", "pytest-xdist")
    return environment(folder, wheel, "pytest", "spark", "grpc", beside=beside)


def test_the_wheel_holds_the_namespace_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"understudy"}
    assert "understudy/py.typed" in names
    assets = ROOT / "console" / "assets"
    page = {path.relative_to(assets).as_posix() for path in assets.rglob("*") if path.is_file()}
    assert {f"understudy/console/assets/{name}" for name in page} <= set(names)
    assert [name for name in names if name.endswith((".pyc", ".conf")) or "/tests/" in name] == []


def test_every_module_that_is_called_public_is_in_it(installed_to_test: Path, tmp_path: Path) -> None:
    table = (ROOT / "docs" / "api.md").read_text().partition("The commands are public")[0]
    modules = re.findall(r"^\| `(understudy\.[a-z_.]+)`", table, re.MULTILINE)
    assert len(modules) > 5
    run(installed_to_test / "python", "-c", f"import {', '.join(modules)}", cwd=tmp_path)


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
    played = run(installed / "understudy", *SHORT_DRILL, cwd=tmp_path)
    assert "T5 first good request" in played


@pytest.fixture
def first_port() -> Iterator[int]:
    """The first of fifty: each of the two brokers takes some around a port of its own."""
    with PortBlocks(50) as blocks:
        yield blocks.take()


def awaited(running: subprocess.Popen[bytes], output: Path, text: str) -> str:
    """Return what a program has printed once that has *text*."""
    deadline = time.monotonic() + 60
    while text not in output.read_text():
        assert running.poll() is None and time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)
    return output.read_text()


def test_a_cluster_is_up_with_it(installed: Path, tmp_path: Path, first_port: int) -> None:
    port = first_port
    ports = ("--namesrv-port", str(port), "--container-port", str(port + 1), "--broker-port", str(port + 10))
    ports += ("--proxy-port", "0")
    up = [str(installed / "understudy"), "up", *ports, "--data", str(tmp_path / "data")]
    with open(tmp_path / "output", "wb") as output:
        running = subprocess.Popen(up, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=tmp_path)
    try:
        printed = awaited(running, tmp_path / "output", "Send to it")
        where = ("-n", f"127.0.0.1:{port}")
        sent = run(installed / "mqadmin", "sendMessage", *where, "-t", "TopicTest", "-p", "hello", cwd=tmp_path)
        assert "SEND_OK" in sent
        (page,) = re.findall(r"http://\S+", printed)
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert b"<title>Understudy</title>" in answer.read()
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) in (0, 130), (tmp_path / "output").read_text()


SEND_LZ4 = """
import sys
from understudy.mqclient.api import LZ4, ProducerOptions, message
from understudy.mqclient.blocking import open_producer

with open_producer(sys.argv[1], "shop", ProducerOptions(compression=LZ4)) as shop:
    shop.send(message("Orders", b"apples " * 2_000))
"""


def test_bodies_of_lz4_are_sent_and_a_cluster_is_shown_with_these_extras(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", wheel, "compress", "console")
    with local_cluster() as cluster:
        run(programs / "python", "-c", SEND_LZ4, cluster.namesrv_address, cwd=tmp_path)
        with open_pull_consumer(cluster.namesrv_address, "kitchen", FIRST) as kitchen:
            kitchen.subscribe({"Orders": "*"})
            (order,) = kitchen.poll(20_000)
        assert (order.body, order.sys_flag & (LZ4 | ZSTD)) == (b"apples " * 2_000, LZ4)
        command = [str(programs / "understudy"), "console", "-n", cluster.namesrv_address, "--port", "0"]
        with open(tmp_path / "output", "wb") as output:
            shown = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=tmp_path)
        try:
            printed = awaited(shown, tmp_path / "output", "is at http://")
            (page,) = re.findall(r"http://\S+", printed)
            with urllib.request.urlopen(page, timeout=30) as answer:
                assert b"<title>Understudy</title>" in answer.read()
        finally:
            shown.send_signal(signal.SIGINT)
            assert shown.wait(30) in (0, 130), (tmp_path / "output").read_text()


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_its_main_job_compares_two_stores(installed_to_test: Path, tmp_path: Path) -> None:
    with local_cluster(folder=str(tmp_path / "stores")) as cluster:
        with open_producer(cluster.namesrv_address, "shop") as shop:
            for number in range(5):
                shop.send(message("Orders", b"%d" % number))
        with open_pull_consumer(cluster.namesrv_address, "kitchen", FIRST) as kitchen:
            kitchen.subscribe({"Orders": "*"})
            got = 0
            while got < 5:
                got += len(kitchen.poll(20_000))
    store = tmp_path / "stores" / "broker-a"
    shutil.copytree(store, tmp_path / "stores" / "replica")
    places = ("--store", f"a={store}", "--store", f"b={tmp_path / 'stores' / 'replica'}", "--out", tmp_path / "out")
    reported = run(installed_to_test / "understudy", "spark", "reconcile", *places, "--quiet", cwd=tmp_path)
    assert reported.startswith("Agree: 4 queues of groups on 2 stores, 0 differ")


def test_programs_written_for_it_are_typed(installed_to_test: Path, tmp_path: Path) -> None:
    examples = sorted((ROOT / "examples").glob("*.py"))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed_to_test / "python"]
    assert "Success" in run(*mypy, "--cache-dir", tmp_path / "cache", *examples, cwd=tmp_path)


def test_the_plugins_own_tests_and_the_tests_among_the_examples_pass_with_it(
    installed_to_test: Path, tmp_path: Path
) -> None:
    (tmp_path / "plugin").mkdir()
    shutil.copy(ROOT / "tests" / "testkit" / "test_testkit_pytest_plugin.py", tmp_path / "plugin")
    others = ("test_cpp_client.py", "test_grpc_client.py")  # the suite plays them where these clients can be had
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", *others))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntrio_mode = true\nmarkers =\n    slow: takes long\nfilterwarnings = error\n"
    )
    pytest_of_it = [installed_to_test / "python", "-m", "pytest", "-q", "-rs", "-n", "3", "-p", "no:cacheprovider"]
    pytest_of_it += ["-p", "no:asyncio"]  # here it is trio's turn
    printed = run(*pytest_of_it, "-k", "not invoice or 0", cwd=tmp_path)  # one seed of the invoices
    assert int(re.search(r"(\d+) passed", printed)[1]) > 10, printed  # type: ignore[index]
    assert "skipped" not in printed, printed


def test_the_first_page_leads_from_an_empty_folder_to_a_green_failover_test(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("## In five minutes")[2].partition("\n## ")[0]
    install, test, play = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    name = re.search(r"^`(\w+\.py)`:$", section, re.MULTILINE)
    assert name is not None and "rocketmq_pair.kill" in test
    began = time.monotonic()
    copy_of_sources(tmp_path / "understudy")
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / name[1]).write_text(test)
    for line in [*install.splitlines(), *play.splitlines()]:
        done = subprocess.run(
            line.replace("python3 ", f"{sys.executable} "),
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            cwd=shop,
        )
        if done.returncode and "connection broken" in done.stdout:
            pytest.skip("the registry of packages cannot be reached")
        assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert time.monotonic() - began < 300
