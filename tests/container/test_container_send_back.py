"""Messages that consumers give back to a slave (36): a master beside it takes them, as far as there is one."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, acting, open_ring, records, run

from understudy.broker.broker import Broker
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until


async def give_back(ring: Ring, broker: Broker, offset: int, **more: str) -> Command:
    ext = {"offset": str(offset), "group": "readers", "delayLevel": "1", "originTopic": TOPIC, **more}
    return await ring.ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, ext)


@pytest.mark.parametrize("dead", [False, True])
def test_a_message_that_is_given_back_to_a_slave_comes_again_from_the_master_beside_it(dead: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            sent = await ring.producer.send(Message(TOPIC, b"again"), queue=MessageQueue(TOPIC, "g0", 0))
            await ring.commit(ring.broker("g0", 0), 0)
            slave, beside = ring.broker("g0", 1), ring.broker("g1", 0)
            await until(lambda: slave.groups.find("readers") is not None and bool(records(slave)), 10)
            # given a slave, whose master may be gone, in the container of another group's master
            if dead:
                await ring.cluster.kill("c1")
                await until(lambda: acting(ring) == [slave], 5)
            (original,) = records(slave)
            # when a consumer gives a message back to it
            answer = await give_back(ring, slave, original.physical_offset)
            assert (answer.code, answer.remark) == (0, None)
            # then the copy waits at that master, and is delivered when its time has come
            await trio.sleep(3)
            (again,) = records(beside, "%RETRY%readers")
            assert (again.body, again.reconsume_times) == (b"again", 1)
            assert again.properties["UNIQ_KEY"] == sent.message_id
            assert again.properties["ORIGIN_MESSAGE_ID"] == original.message_id
            assert again.properties["RETRY_TOPIC"] == TOPIC
            # one that came back too often goes to the dead letters there
            answer = await give_back(ring, slave, original.physical_offset, maxReconsumeTimes="0")
            assert answer.code == 0
            (given_up,) = records(beside, "%DLQ%readers")
            assert given_up.body == b"again"
            # and an offset that holds no message is refused as ever
            assert (await give_back(ring, slave, original.physical_offset + 1)).code == 1

    run(scenario)


def test_a_slave_without_a_master_beside_it_says_so() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "g"}])
            await cluster.start_container("c2", [{"brokerName": "g", "brokerRole": "SLAVE", "brokerId": "1"}])
            slave = cluster.brokers("c2")["g"]
            master = cluster.brokers("c1")["g"]
            master.store.append("T", 0, b"x", b"", 1, master.store_host)
            master.groups.get("readers")
            await until(lambda: slave.groups.find("readers") is not None, 10)
            async with open_client(cluster.client_world()) as client:
                ext = {"offset": "0", "group": "readers", "delayLevel": "1"}
                asked = request(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
                answer = await client.invoke(slave.identity.address, asked, 3_000)
            assert answer.code == 1
            assert answer.remark == f"no master available along with {slave.options.broker.broker_ip1}"

    run(scenario)


def test_the_master_of_the_own_group_takes_what_is_given_back_to_a_slave_beside_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # given a container with a master and a slave of one group, and before them the master of another
            keys = [{"brokerName": "other"}, {"brokerName": "own"}]
            hosted = await cluster.start_container(
                "c1", [*keys, {"brokerName": "own", "brokerRole": "SLAVE", "brokerId": "1"}]
            )
            found = {
                (each.broker.identity.name, each.broker.identity.broker_id): each.broker for each in hosted.brokers()
            }
            other, master, slave = found["other", 0], found["own", 0], found["own", 1]
            master.store.append("T", 0, b"again", b"", 1, master.store_host)
            master.groups.get("readers")
            await until(lambda: slave.groups.find("readers") is not None and bool(records(slave, "T")), 10)
            # when a consumer gives a message back to that slave
            async with open_client(cluster.client_world()) as client:
                ext = {"offset": "0", "group": "readers", "delayLevel": "1", "originTopic": "T"}
                asked = request(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
                answer = await client.invoke(slave.identity.address, asked, 3_000)
            assert (answer.code, answer.remark) == (0, None)
            # then it comes again from the master of its group, and the slave copies that
            await until(lambda: bool(records(slave, "%RETRY%readers")), 10)
            for broker in (master, slave):
                (again,) = records(broker, "%RETRY%readers")
                assert (again.body, again.reconsume_times) == (b"again", 1)
            assert records(other, "%RETRY%readers") == []
            assert other.store.max_physical_offset == 0

    run(scenario)
