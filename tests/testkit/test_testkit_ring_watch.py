"""The watcher of a simulated ring: when replicas count as equal, and which one may stand apart."""

from __future__ import annotations

import random

import trio

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_traffic import READERS, TOPIC
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.ring import Ring
from understudy.testkit.first_pull import first_pull
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until


def test_a_slave_stands_apart_only_where_its_master_may_have_lost_what_it_has() -> None:
    async def scenario(source: random.Random) -> None:
        ring = Ring(replicas=2)
        async with SimCluster(source) as cluster, open_client(cluster.client_world("client")) as client:
            await ring.start(cluster, {"flushDiskType": "ASYNC_FLUSH", "flushCommitLogTimed": "true"})
            strict = RingWatch(cluster, ring)
            lenient = RingWatch(cluster, ring, lambda group: group == "g0")
            await until(strict.complete, 60)

            async def ask(code: int, ext: dict[str, str]) -> None:
                for group in ring.groups:
                    master = strict.broker(group, 0)
                    assert master is not None
                    answer = await client.invoke(master.identity.address, request(code, ext), 3_000)
                    assert answer.code == 0, answer.remark

            async def commit(offset: int) -> None:
                for group in ring.groups:
                    for broker_id in range(2):
                        broker = strict.broker(group, broker_id)
                        assert broker is not None
                        broker.groups.get(READERS)
                for queue_id in ("0", "1"):
                    at = {"consumerGroup": READERS, "topic": TOPIC, "queueId": queue_id}
                    await ask(RequestCode.UPDATE_CONSUMER_OFFSET, at | {"commitOffset": str(offset)})

            await ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
            await commit(0)
            await until(strict.converged, 10)
            # given a master that lost one of its messages with its power
            async with open_producer(cluster.client_world("writer"), cluster.name_servers, "writers") as producer:
                for _ in range(2):
                    await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
                    await trio.sleep(15)
                await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
            slave = strict.broker("g0", 1)
            assert slave is not None
            await cluster.kill("c1", power=True)
            await cluster.restart("c1")
            await until(strict.complete, 60)
            master = strict.broker("g0", 0)
            assert master is not None
            master.offsets.commit(READERS, TOPIC, 0, 2)
            await trio.sleep(10)
            # then its slave says that nothing is copied, and counts only where that loss is allowed
            assert any("nothing is copied" in each for each in slave.session.rules.warnings)
            assert (strict.converged(), lenient.converged()) == (False, True)
            # and readers that still ask it wait: the offsets of their group are those of the master's log
            pull = request(RequestCode.PULL_MESSAGE, first_pull(TOPIC, 0, READERS) | {"queueOffset": "2"})
            answer = await client.invoke(slave.identity.address, pull, 3_000)
            assert (answer.code, slave.presence.parted) == (ResponseCode.PULL_NOT_FOUND, True)
            # until it acts
            await cluster.kill("c1")
            await until(lambda: strict.delivers("g0", 1), 20)
            answer = await client.invoke(slave.identity.address, pull, 3_000)
            assert (answer.code, slave.presence.parted) == (ResponseCode.SUCCESS, False)

    run_seed(scenario, 3)
