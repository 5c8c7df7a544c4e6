"""A broker that was away answers no reader until it is online again, and takes what readers commit meanwhile."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import HOSTS, TOPIC, open_ring, run

from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.first_pull import first_pull
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

QUESTION = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0"}


@pytest.mark.covers("R26")
def test_readers_of_a_master_that_was_frozen_wait_until_it_is_online() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring, open_client(ring.cluster.client_world("reader")) as client:
            master = ring.broker("g0", 0)
            await ring.commit(master, 0)
            await ring.producer.send(Message(TOPIC, b"once"), queue=MessageQueue(TOPIC, "g0", 0))
            # given a master that was frozen for longer than its timeout, and whose slaves died meanwhile
            frozen = Accident(ring.cluster, Fault("pause", "c1"), HOSTS)
            await frozen.begin()
            await trio.sleep(12)
            for host in ("c2", "c3"):
                await ring.cluster.kill(host)
            await frozen.end()
            await until(lambda: master.presence.isolated, 3)
            # when a reader that knows it still asks, and commits with its question
            waits = {"sysFlag": "7", "commitOffset": "1", "suspendTimeoutMillis": "30000"}
            pull = request(RequestCode.PULL_MESSAGE, first_pull(TOPIC) | waits)
            found = await client.invoke(master.identity.address, pull, 40_000)
            # then it gets its messages when others may find the master as well
            assert found.code == ResponseCode.SUCCESS
            assert b"once" in found.body
            assert not master.presence.isolated
            assert master.offsets.query("readers", TOPIC, 0) == 1

    run(scenario)


def test_before_a_broker_has_noticed_that_it_was_away_it_answers_no_reader_either() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            await ring.commit(master, 5)
            await ring.producer.send(Message(TOPIC, b"once"), queue=MessageQueue(TOPIC, "g0", 0))
            # when a suspended machine goes on, before anything there looks at the clocks
            ring.cluster.host("c1").clock.jump(20_000)
            asked = await ring.ask(master, RequestCode.QUERY_CONSUMER_OFFSET, QUESTION)
            pulled = await ring.ask(master, RequestCode.PULL_MESSAGE, first_pull(TOPIC))
            # then nobody is told what may be old; this is no "not found", which would begin anew
            assert asked.code == ResponseCode.SYSTEM_BUSY
            assert (pulled.code, (pulled.ext or {})["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "0")
            # and all is answered when it is online
            await until(lambda: master.presence.isolated, 3)
            await until(lambda: not master.presence.isolated, 30)
            asked = await ring.ask(master, RequestCode.QUERY_CONSUMER_OFFSET, QUESTION)
            pulled = await ring.ask(master, RequestCode.PULL_MESSAGE, first_pull(TOPIC))
            assert ((asked.ext or {})["offset"], pulled.code) == ("5", ResponseCode.SUCCESS)

    run(scenario)


def test_a_broker_without_acting_masters_takes_a_notice_about_its_group() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster, open_client(cluster.client_world("n1")) as client:
            await cluster.start_name_server("n1")
            container = await cluster.start_container("c1", [{"brokerName": "g0"}])
            broker = next(iter(container.brokers())).broker
            notice = {"minBrokerId": "0", "minBrokerAddr": broker.identity.address}
            command = request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice)
            assert (await client.invoke(broker.identity.address, command, 3_000)).code == ResponseCode.SUCCESS

    run(scenario)


def test_a_broker_without_acting_masters_keeps_no_reader_waiting() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster, open_client(cluster.client_world("reader")) as client:
            await cluster.start_name_server("n1")
            container = await cluster.start_container("c1", [{"brokerName": "g0"}])
            broker = next(iter(container.brokers())).broker
            cluster.host("c1").clock.jump(60_000)
            pull = request(RequestCode.PULL_MESSAGE, first_pull("TBW102"))
            answer = await client.invoke(broker.identity.address, pull, 3_000)
            assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")

    run(scenario)
