"""Commands about topics with batch queues see messages, not the records that hold several of them."""

from __future__ import annotations

import random
import re

import trio
from mqadmin_rig import shell

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

TOPIC = "batches"


def test_each_message_of_a_batch_is_shown_where_it_stands() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "g"}])
            await trio.sleep(5)
            await shell(cluster, f"updateTopic -c DefaultCluster -t {TOPIC} -r 1 -w 1 -a +queue.type=BatchCQ")
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                await producer.send_batch([Message(TOPIC, b"a%d" % number) for number in range(3)])
                await producer.send(Message(TOPIC, b"one", {"KEYS": "key"}))
                await producer.send_batch([Message(TOPIC, b"b%d" % number) for number in range(3)])
            status = str(await shell(cluster, f"topicStatus -t {TOPIC}"))
            assert re.search(r"^g +0 +0 +7 ", status, re.MULTILINE)
            expected = ["a0", "a1", "a2", "one", "b0", "b1", "b2"]
            for offset, body in enumerate(expected):
                shown = str(await shell(cluster, f"queryMsgByOffset -t {TOPIC} -b g -i 0 -o {offset}"))
                assert re.search(rf"Queue Offset: +{offset}\n", shown)
                assert re.search(rf"Message Body: +{body}\n", shown)
            assert expected == re.findall(r"BODY: (\w+)", str(await shell(cluster, f"printMsg -t {TOPIC}")))
            some = str(await shell(cluster, f"consumeMessage -t {TOPIC} -b g -i 0 -o 1 -c 3"))
            assert expected[1:4] == re.findall(r"BODY: (\w+)", some)
            assert "@key@" in str(await shell(cluster, f"queryMsgByKey -t {TOPIC} -k key"))
            address = f"{cluster.address('c1')}:10911"
            assert re.search(r"#Damaged places\s+0", str(await shell(cluster, f"scrub -b {address}")))

    run_seed(scenario, 1)
