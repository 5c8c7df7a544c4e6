"""`mqadmin scrub` shows which messages of a broker have rotted on its disk."""

from __future__ import annotations

import json
import random

import pytest
from mqadmin_rig import shell

from understudy.mqclient.errors import BrokerError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

LOG = "/data/broker-a-0/commitlog/00000000000000000000"


def test_a_scrub_tells_what_it_compared_and_found() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                for number in range(5):
                    await producer.send(Message("orders", b"body %d" % number))
            address = cluster.brokers("c1")["broker-a"].identity.address
            with pytest.raises(BrokerError, match="nothing was compared since the start of this broker"):
                await shell(cluster, f"scrub -b {address} -s")
            # given a whole log
            printed = await shell(cluster, f"scrub -b {address}")
            assert "#State\tfinished\n#Whole messages\t5\n#Units entered again\t0\n" in printed
            assert "#Index entries written anew\t0\n#Damaged places\t0\n" in printed
            # when a byte of a body rots
            disk = cluster.host("c1").disk
            at = disk.read(LOG).index(b"body 2")
            file = disk.open(LOG)
            file.write_at(at, b"B")
            report = json.loads(await shell(cluster, f"scrub -b {address}", as_json=True))
            # then it is found, also by whoever only asks how it went
            assert (1, 4) == (len(report["damaged"]), report["records"])
            first, after = report["damaged"][0]
            assert first < at < after
            assert f"{first} to {after}\nThese messages are left out" in await shell(cluster, f"scrub -b {address} -s")

    run_seed(scenario, 3)
