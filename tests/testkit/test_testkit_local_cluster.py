"""A cluster for other people's tests is there in less than a second, small, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile

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
    began = time.monotonic()
    async with LocalCluster() as cluster, open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
        status = (await producer.send(Message("orders", b"first"))).status.value
        took = time.monotonic() - began
        with open("/proc/self/status") as file:
            memory = {line.split(":")[0]: int(line.split()[1]) for line in file if line.startswith("VmHWM")}
    print(json.dumps({"status": status, "seconds": took, "peak_kib": memory["VmHWM"]}))

trio.run(main)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_the_first_send_is_acknowledged_within_a_second_and_a_hundred_megabytes() -> None:
    # A busy machine may steal a second from anybody once; the quickest of three runs is ours.
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", FIRST_SEND], capture_output=True, timeout=60, check=True)
        runs.append(json.loads(done.stdout))
        assert runs[-1]["status"] == "SEND_OK"
        assert runs[-1]["peak_kib"] < 100 * 1024
        if runs[-1]["seconds"] < 1:
            break
    assert min(run["seconds"] for run in runs) < 1, runs


async def two_brokers_and_a_send() -> tuple[list[int], str]:
    """Return the ports and the folder of a cluster that is gone."""
    async with LocalCluster(2) as cluster:
        async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
            assert (await producer.send(Message("orders", b"first"))).status.value == "SEND_OK"
        assert set(cluster.brokers) == {"broker-a", "broker-b"}
        ports = [broker.identity.port for broker in cluster.brokers.values()]
        folder = os.path.dirname(cluster.brokers["broker-a"].options.store.store_path_root_dir)
        return [*ports, int(cluster.namesrv_address.rpartition(":")[2])], folder


def test_three_lines_are_enough_and_nothing_stays_behind() -> None:
    ports, folder = trio.run(two_brokers_and_a_send)
    assert folder.startswith(tempfile.gettempdir())
    assert not os.path.exists(folder)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1).close()
