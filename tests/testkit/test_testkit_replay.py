"""A seed replays its run to the last byte on the wire and on every disk, also in another process."""

from __future__ import annotations

import os
import subprocess
import sys

REPLAY = """
import hashlib, random, sys
import trio
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.connection import SimStream

wire = hashlib.sha256()
put = SimStream._put

def tapped(stream, data):
    wire.update(f"{trio.current_time():.9f} {stream.local} {stream.peer} ".encode() + bytes(data))
    put(stream, data)

SimStream._put = tapped
GROUP = {"brokerName": "a", "enableSlaveActingMaster": "true", "totalReplicas": "2", "flushDiskType": "SYNC_FLUSH"}

def files(disk, folder="/"):
    for name in sorted(disk.listdir(folder)):
        path = folder.rstrip("/") + "/" + name
        try:
            yield path, bytes(disk.read(path))
        except OSError:  # a folder
            yield from files(disk, path)

async def scenario(source):
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{**GROUP, "brokerRole": "SYNC_MASTER"}, {"brokerName": "b"}])
        await cluster.start_container("c2", [{**GROUP, "brokerRole": "SLAVE", "brokerId": "1"}])
        async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
            async with trio.open_nursery() as nursery:
                async def produce(part):
                    for number in range(40):
                        try:
                            await producer.send(Message("orders", b"%d %d" % (part, number), {"KEYS": f"k{number}"}))
                        except ClientError:
                            await trio.sleep(0.3)
                        await trio.sleep(source.uniform(0, 0.2))
                for part in range(3):
                    nursery.start_soon(produce, part)
                await trio.sleep(source.uniform(1, 2))
                cluster.partition(["c1"], ["c2"])
                await trio.sleep(1)
                cluster.heal()
                await cluster.kill("c1", power=True)
                await trio.sleep(source.uniform(2, 4))
                await cluster.restart("c1")
            await trio.sleep(20)
        kept = hashlib.sha256()
        count = 0
        for name in ("n1", "c1", "c2"):
            disk = cluster.host(name).disk
            for path, content in files(disk):
                kept.update(path.encode() + content)
                count += 1
        return kept.hexdigest(), count

kept, count = run_seed(scenario, int(sys.argv[1]))
print(wire.hexdigest(), kept, count)
"""


def replay(seed: int, hash_seed: int) -> tuple[str, str, int]:
    """Return the digests of wire and disks, and how many files there are."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", REPLAY, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    wire, kept, count = done.stdout.split()
    return wire, kept, int(count)


def test_one_seed_is_one_run_to_the_last_byte() -> None:
    first, again, other = replay(7, 1), replay(7, 2), replay(8, 1)
    assert first == again
    assert first[2] > 20
    assert first[0] != other[0] and first[1] != other[1]
