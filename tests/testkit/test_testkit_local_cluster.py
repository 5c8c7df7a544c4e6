"""A cluster for other people's tests is there in less than a second, small, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress

import pytest
import trio

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster

FIRST_SEND = """
import json, time, trio
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster

async def main():
    began, worked = time.monotonic(), time.process_time()
    async with LocalCluster() as cluster, open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
        status = (await producer.send(Message("orders", b"first"))).status.value
        took, worked = time.monotonic() - began, time.process_time() - worked
        with open("/proc/self/status") as file:
            memory = {line.split(":")[0]: int(line.split()[1]) for line in file if line.startswith("VmHWM")}
    print(json.dumps({"status": status, "seconds": took, "worked": worked, "peak_kib": memory["VmHWM"]}))

trio.run(main)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_the_first_send_is_acknowledged_within_a_second_and_a_hundred_megabytes() -> None:
    # A busy machine takes time away, and adds a little to processor time: the best of a few runs is ours, and what
    # is not processor time is no wait for anything that comes only after seconds.
    runs = []
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", FIRST_SEND], capture_output=True, timeout=60, check=True)
        runs.append(json.loads(done.stdout))
        assert runs[-1]["status"] == "SEND_OK"
        assert runs[-1]["peak_kib"] < 100 * 1024
        if runs[-1]["seconds"] < 1:
            break
    assert min(run["worked"] for run in runs) < 1, runs
    assert min(run["seconds"] - run["worked"] for run in runs) < 3, runs


def sockets_of_this_process() -> set[str]:
    """A port that was given back may be somebody else's the next moment: what is ours tells more."""
    links = set[str]()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the folder itself was open while it was listed
            links.add(os.readlink(f"/proc/self/fd/{name}"))
    return {link for link in links if link.startswith("socket:")}


async def two_brokers_and_a_send() -> tuple[set[str], str]:
    """Return the sockets of this process while a cluster ran, and the folder that the cluster had."""
    async with LocalCluster(2) as cluster:
        async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
            assert (await producer.send(Message("orders", b"first"))).status.value == "SEND_OK"
        assert set(cluster.brokers) == {"broker-a", "broker-b"}
        folder = os.path.dirname(cluster.brokers["broker-a"].options.store.store_path_root_dir)
        return sockets_of_this_process(), folder


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open sockets are read from /proc")
def test_three_lines_are_enough_and_nothing_stays_behind() -> None:
    before = sockets_of_this_process()
    during, folder = trio.run(two_brokers_and_a_send)
    assert folder.startswith(tempfile.gettempdir())
    assert not os.path.exists(folder)
    assert len(during - before) > 5
    assert before == sockets_of_this_process()
