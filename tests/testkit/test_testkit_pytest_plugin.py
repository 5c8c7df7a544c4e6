"""The pytest plugin in a project of its own: plain, asyncio and trio tests, scopes, and a wrong setting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from understudy.mqclient import blocking
from understudy.mqclient.api import message
from understudy.testkit.blocking import local_cluster
from understudy.testkit.processor_time import least_seconds

PLUGIN = "understudy.testkit.pytest_plugin"
TESTS = """
import asyncio
import trio
from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.api import message, open_producer, real_world

ADDRESSES = []

def test_plain(rocketmq):
    ADDRESSES.append(rocketmq.namesrv_address)
    with blocking.open_producer(rocketmq.namesrv_address, "pg") as producer:
        assert producer.send(message("T", b"x")).message_id

def test_asyncio(rocketmq):
    ADDRESSES.append(rocketmq.namesrv_address)
    async def main():
        async with aio.open_producer(rocketmq.namesrv_address, "pg") as producer:
            assert (await producer.send(message("T", b"x"))).message_id
    asyncio.run(main())

def test_trio(rocketmq):
    ADDRESSES.append(rocketmq.namesrv_address)
    async def main():
        async with open_producer(real_world(), rocketmq.namesrv_address, "pg") as producer:
            assert (await producer.send(message("T", b"x"))).message_id
    trio.run(main)

def test_how_many_clusters_there_were(request):
    assert len(set(ADDRESSES)) == (1 if request.config.getini("understudy_scope") == "session" else 3)
"""


OF_ASYNCIO = """
import pytest
from understudy.mqclient.asyncio import open_producer
from understudy.mqclient.api import message

@pytest.mark.asyncio
async def test_asyncio(rocketmq):
    async with open_producer(rocketmq.namesrv_address, "pg") as producer:
        assert (await producer.send(message("T", b"x"))).message_id
"""
OF_TRIO = """
import pytest
from understudy.mqclient.api import message, open_producer, real_world

@pytest.mark.trio
async def test_trio(rocketmq):
    async with open_producer(real_world(), rocketmq.namesrv_address, "pg") as producer:
        assert (await producer.send(message("T", b"x"))).message_id
"""


PROXY = """
import socket
import pytest

def test_both_doors(rocketmq_proxy):
    rocketmq_proxy.make_topic("Orders", kind="FIFO")
    for address in (rocketmq_proxy.namesrv_address, rocketmq_proxy.proxy_address):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), 10).close()

def test_none_without(rocketmq):
    with pytest.raises(ValueError, match="say proxy=True"):
        rocketmq.proxy_address
"""


PAIR = """
def test_a_failover(rocketmq_pair):
    rocketmq_pair.kill("broker-a")
    rocketmq_pair.await_acting("broker-a")
    assert "not" == "this"
"""


def run(
    folder: Path, *arguments: str, tests: str = TESTS, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(tests)
    (folder / "tmp").mkdir(exist_ok=True)
    installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *([] if installed else ["-p", PLUGIN])]
    return subprocess.run(
        [*command, "--rootdir", str(folder), *arguments, str(folder)],
        cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), **(environment or {})},
    )  # fmt: skip


@pytest.mark.parametrize("scope", ["function", "session"])
def test_tests_of_every_kind_have_a_cluster(tmp_path: Path, scope: str) -> None:
    done = run(tmp_path, "-o", f"understudy_scope={scope}")
    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(("plugin", "tests"), [("pytest_asyncio", OF_ASYNCIO), ("pytest_trio", OF_TRIO)])
def test_async_tests_have_a_cluster(tmp_path: Path, plugin: str, tests: str) -> None:
    pytest.importorskip(plugin)
    done = run(tmp_path, tests=tests)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_a_cluster_has_a_proxy_where_one_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("hpack")
    done = run(tmp_path, tests=PROXY)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert left_behind(tmp_path) == []


def test_a_scope_that_is_none_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "understudy_scope=week")
    assert done.returncode != 0
    assert "understudy_scope=week: expected one of function" in done.stdout + done.stderr


def test_a_level_that_is_none_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "understudy_log_level=LOUD")
    assert done.returncode != 0
    assert "understudy_log_level=LOUD: expected one of DEBUG" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_failed_test_of_a_failover_shows_what_the_processes_logged(tmp_path: Path) -> None:
    done = run(tmp_path, tests=PAIR)
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout + done.stderr
    logged = done.stdout.partition("Log of rocketmq_pair")[2]
    assert "broker-b: " in logged and " WARNING " in logged, done.stdout
    assert left_behind(tmp_path) == []


SHARED_PAIR = """
import pytest

@pytest.mark.parametrize("accident", ["kill", "freeze", "cut"])
def test_fails_in_the_middle(rocketmq_pair, accident):
    getattr(rocketmq_pair, accident)("broker-a")
    rocketmq_pair.await_acting("broker-a")
    assert "not" == "this"

def test_finds_it_whole(rocketmq_pair):
    for group in ("broker-a", "broker-b"):
        rocketmq_pair.freeze(group)  # refused of one that is down
        rocketmq_pair.thaw(group)
    rocketmq_pair.await_complete(5)
"""
NEVER_THERE = """
from understudy.testkit import acting_pair

acting_pair.LIMIT_SECONDS = 3

async def never(ring):
    return False

acting_pair.ProcessRing.complete = never

def test_that_waits_for_it(rocketmq_pair):
    pass
"""


@pytest.mark.slow
def test_a_shared_pair_is_whole_before_each_test_whatever_was_done_to_it(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "understudy_scope=session", tests=SHARED_PAIR)
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert left_behind(tmp_path) == []


@pytest.mark.slow
def test_a_pair_that_does_not_come_up_says_what_its_processes_logged(tmp_path: Path) -> None:
    done = run(tmp_path, tests=NEVER_THERE)
    assert "1 error" in done.stdout, done.stdout + done.stderr
    logged = done.stdout.partition("not within 3 s: both groups are complete")[2].partition("Logged by its processes:")[
        2
    ]
    assert "broker-a: " in logged and "broker-b: " in logged, done.stdout
    assert left_behind(tmp_path) == []


FAILING = """
import logging
from understudy.mqclient import blocking
from understudy.mqclient.api import message

def test_that_fails_in_the_middle(rocketmq):
    with blocking.open_producer(rocketmq.namesrv_address, "pg") as producer:
        producer.send(message("T", b"x"))
        logging.getLogger("understudy.broker").info("a line of the cluster")
        assert "not" == "this"

def test_that_is_broken_off(rocketmq):
    producer = blocking.open_producer(rocketmq.namesrv_address, "pg")
    producer.__enter__()
    raise KeyError("never closed")
"""


def left_behind(folder: Path) -> list[str]:
    """Return what a run in *folder* has left: files, and processes that it began."""
    folders = [path.name for path in (folder / "tmp").iterdir() if not path.name.startswith("pytest-of-")]
    processes = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"TMPDIR={folder}/tmp".encode() in path.read_bytes():
                processes.append(path.parent.name)
    return folders + processes


def test_tests_that_fail_show_the_log_and_leave_nothing_behind(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "understudy_log_level=INFO", tests=FAILING)
    assert (done.returncode, "2 failed" in done.stdout) == (1, True), done.stdout + done.stderr
    assert "a line of the cluster" in done.stdout.partition("Captured log call")[2]
    assert left_behind(tmp_path) == []


def test_workers_beside_each_other_have_clusters_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    tests = TESTS.partition("def test_how_many")[0]
    done = run(tmp_path, "-p", "xdist", "-n", "2", "-o", "understudy_scope=session", tests=tests)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert left_behind(tmp_path) == []


FRESH = """
from understudy.mqclient.api import message
from understudy.mqclient.blocking import open_producer

def test_the_first(rocketmq):
    with open_producer(rocketmq.namesrv_address, "pg") as producer:
        assert producer.send(message("First", b"x")).message_id
"""
CLOCK = """
import time
import pytest

def pytest_runtest_setup(item):
    item.began = time.process_time()

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    print(f"worked {time.process_time() - item.began:.3f}")
    return outcome
"""


def test_the_first_send_of_a_fresh_process_takes_little_more_than_its_imports(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CLOCK)
    kept = {"PYTHONPYCACHEPREFIX": str(tmp_path / "kept"), "PYTHONDONTWRITEBYTECODE": ""}
    worked = []
    for _ in range(6):  # the first one compiles; what else runs on the machine only adds to what it takes
        done = run(tmp_path, "-s", tests=FRESH, environment=kept)
        assert "1 passed" in done.stdout, done.stdout + done.stderr
        worked.append(float(done.stdout.partition("worked ")[2].split()[0]))
        if worked[-1] < 0.5:
            break
    assert min(worked) < 1, worked
    assert [*(tmp_path / "kept").rglob("testkit.*.methods")], "what attrs compiles was not kept"


def test_the_first_send_is_acknowledged_within_half_a_second_of_processor_time() -> None:
    def once() -> None:
        with local_cluster() as cluster, blocking.open_producer(cluster.namesrv_address, "pg") as producer:
            assert producer.send(message("First", b"x")).message_id

    once()  # what is imported counts for nobody
    assert least_seconds(once, 0.5, clock=time.process_time) < 0.5
