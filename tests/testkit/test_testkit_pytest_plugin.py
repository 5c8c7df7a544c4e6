"""The pytest plugin in a project of its own: plain, asyncio and trio tests, scopes, and a wrong setting."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PLUGIN = "understudy.testkit.pytest_plugin"
TESTS = """
import asyncio
import trio
from understudy.mqclient import aio, blocking
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


PAIR = """
def test_a_failover(rocketmq_pair):
    rocketmq_pair.kill("broker-a")
    rocketmq_pair.await_acting("broker-a")
    assert "not" == "this"
"""


def run(folder: Path, *arguments: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(tests)
    installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *([] if installed else ["-p", PLUGIN])]
    return subprocess.run(
        [*command, "--rootdir", str(folder), *arguments, str(folder)],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("scope", ["function", "session"])
def test_tests_of_every_kind_have_a_cluster(tmp_path: Path, scope: str) -> None:
    done = run(tmp_path, "-o", f"understudy_scope={scope}")
    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_a_scope_that_is_none_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "understudy_scope=week")
    assert done.returncode != 0
    assert "understudy_scope=week: expected one of function" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_failed_test_of_a_failover_shows_what_the_processes_logged(tmp_path: Path) -> None:
    done = run(tmp_path, tests=PAIR)
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stdout + done.stderr
    captured = done.stdout.partition("Captured stdout teardown")[2]
    assert "broker-b: " in captured and " WARNING " in captured, done.stdout
