"""What clients and tools of a group see of a failover: new topics survive it, deleted ones are gone on both sides,
parked pulls hear of it, and copies count."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, route_of, run

from understudy.broker.broker import Broker
from understudy.broker.lost_topics import without_row
from understudy.broker.topics import TopicConfig
from understudy.container.log_topics import row_of
from understudy.format.record import decode_records
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import ConnectionLostError
from understudy.testkit.waiting import until

NEW = "brand-new"


def pull_header(topic: str, offset: int, queue_id: int = 0, wait_ms: int = 0) -> dict[str, str]:
    return {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


async def pulled(ring: Ring, broker: Broker, topic: str, queue_id: int = 0) -> list[bytes]:
    answer = await ring.ask(broker, RequestCode.PULL_MESSAGE, pull_header(topic, 0, queue_id))
    assert answer.code == 0, answer.remark
    return [record.body for record in decode_records(answer.body)]


@pytest.mark.covers("R315")
@pytest.mark.parametrize("how", ["by an administrator", "by the first send"])
def test_a_new_topic_survives_an_immediate_failover(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a topic made a moment ago, with one acknowledged message
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            if how == "by an administrator":
                await ring.topic_everywhere(NEW)
                await ring.producer.send(Message(NEW, b"first"), queue=MessageQueue(NEW, "g0", 0))
            else:
                header = {"a": "writers", "b": NEW, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
                assert (await ring.ask(master, RequestCode.SEND_MESSAGE_V2, header, b"first")).code == 0
            wanted, names = master.topics.rows[NEW], ring.cluster.host("n1").name_server
            # when its master dies at once, its word to the name servers having left it
            assert names is not None
            await until(lambda: NEW in names.table.topics.names(), 1, 0.0001)
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in slave.services.running(), 5)
            await until(lambda: slave.topics.get(NEW) is not None, 2)
            # then any replica may lead: the slave has the topic and its message, and the route leads there
            assert slave.topics.get(NEW) == wanted
            assert await pulled(ring, slave, NEW) == [b"first"]
            await trio.sleep(1)
            route = await route_of(ring, NEW)
            addresses = {each["brokerName"]: each["brokerAddrs"]["0"] for each in route["brokerDatas"]}
            assert addresses["g0"] == slave.identity.address
            # and the master's row is the right one as soon as it is back
            await ring.cluster.restart("c1")
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 20)
            await until(lambda: slave.topics.get(NEW) == ring.broker("g0", 0).topics.get(NEW), 10)
            assert await pulled(ring, ring.broker("g0", 0), NEW) == [b"first"]
            assert "topics of the log" not in slave.services.running()

    run(scenario)


def test_the_row_of_a_topic_is_what_name_servers_and_the_log_say() -> None:
    queues = [("T", 0), ("T", 3), ("known", 9), ("%LMQ%a", 0), ("rmq_sys_x", 0), ("%RETRY%g", 0)]
    missing = without_row(queues, {"known": TopicConfig("known")})
    assert missing == {"%RETRY%g": 1, "T": 4}
    assert row_of("T", 4, {}, "a") == TopicConfig("T", 4, 4)
    part = {"brokerName": "a", "readQueueNums": 8, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 1}
    route = {"queueDatas": [{"brokerName": "b", "readQueueNums": 16}, part]}
    assert row_of("T", 4, route, "a") == TopicConfig("T", 8, 4, 6, sys_flag=1)
    with pytest.raises(ValueError, match="topic T: perm"):
        row_of("T", 4, {"queueDatas": [{"brokerName": "a", "perm": "none"}]}, "a")


@pytest.mark.covers("R316")
def test_a_deleted_topic_is_gone_on_master_and_slave_and_starts_anew() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.topic_everywhere(NEW)
            for number in range(5):
                await ring.producer.send(Message(NEW, b"%d" % number), queue=MessageQueue(NEW, "g0", 0))
            master.groups.get("readers")
            commit = {"consumerGroup": "readers", "topic": NEW, "queueId": "0", "commitOffset": "5"}
            assert (await ring.ask(master, RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
            await until(lambda: slave.offsets.query("readers", NEW, 0) == 5 and NEW in slave.topics.rows, 10)
            # when it is deleted
            for group in ("g0", "g1", "g2"):
                deleted = await ring.ask(ring.broker(group, 0), RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": NEW})
                assert deleted.code == 0
            question = request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": NEW})
            assert (await ring.client.invoke(ring.cluster.name_servers, question, 3_000)).code == 0
            # then rows, queues and offsets are gone on both sides within seconds, and the route forgets it
            for broker in (master, slave):
                await until(lambda: NEW not in broker.topics.rows, 10)  # noqa: B023 - waited for in place
                assert all(topic != NEW for topic, _ in broker.store.queues())
                assert broker.offsets.query("readers", NEW, 0) == -1
                refused = await ring.ask(broker, RequestCode.PULL_MESSAGE, pull_header(NEW, 0))
                assert refused.code == 17
            question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": NEW})
            assert (await ring.client.invoke(ring.cluster.name_servers, question, 3_000)).code == 17
            # and a topic of the same name starts with an empty queue on both
            await ring.topic_everywhere(NEW)
            sent = await ring.producer.send(Message(NEW, b"again"), queue=MessageQueue(NEW, "g0", 0))
            assert sent.queue_offset == 0
            await until(lambda: slave.store.max_queue_offset(NEW, 0) == 1, 10)
            await until(lambda: NEW in slave.topics.rows, 10)
            assert await pulled(ring, slave, NEW) == [b"again"]

    run(scenario)


def test_a_topic_deleted_and_made_again_at_once_is_the_new_one_on_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.topic_everywhere(NEW)
            for number in range(5):
                await ring.producer.send(Message(NEW, b"%d" % number), queue=MessageQueue(NEW, "g0", 0))
            await until(lambda: NEW in slave.topics.rows, 10)
            # when a topic is deleted, made again and written before the slave looks
            assert (await ring.ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": NEW})).code == 0
            await ring.topic_everywhere(NEW)
            for number in range(2):
                await ring.producer.send(Message(NEW, b"again %d" % number), queue=MessageQueue(NEW, "g0", 0))
            await until(lambda: slave.store.max_physical_offset == master.store.max_physical_offset, 5)
            await trio.sleep(5)
            # then the slave serves the new messages, not the old ones
            assert await pulled(ring, master, NEW) == [b"again 0", b"again 1"]
            assert await pulled(ring, slave, NEW) == [b"again 0", b"again 1"]

    run(scenario)


@pytest.mark.covers("R357")
def test_parked_pulls_of_a_replaced_leader_are_answered_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            slave, master = ring.broker("g0", 1), ring.broker("g0", 0)
            answers: list[tuple[float, int, dict[str, str] | None]] = []

            async def park(at: Broker) -> None:
                try:
                    answer = await ring.client.invoke(
                        at.identity.address, request(RequestCode.PULL_MESSAGE, pull_header(TOPIC, 0, 0, 60_000)), 90_000
                    )
                except ConnectionLostError:
                    answers.append((trio.current_time(), -1, None))
                else:
                    answers.append((trio.current_time(), answer.code, answer.ext))

            async with trio.open_nursery() as nursery:
                # given a consumer whose pull waits at the master for a minute
                nursery.start_soon(park, master)
                await until(lambda: len(master.hold) == 1, 5)
                # when the master dies, it hears of it at once: its connection is gone
                began = trio.current_time()
                await ring.cluster.kill("c1")
                await until(lambda: len(answers) == 1, 1)
                assert (answers[0][1], answers[0][0] - began < 1) == (-1, True)
                # and it finds the acting slave in the route within seconds, where its next pull waits
                await until(lambda: "schedule" in slave.services.running(), 5)
                route = await route_of(ring, TOPIC)
                addresses = {each["brokerName"]: each["brokerAddrs"]["0"] for each in route["brokerDatas"]}
                assert addresses["g0"] == slave.identity.address
                nursery.start_soon(park, slave)
                await until(lambda: len(slave.hold) == 1, 5)
                # when the master leads again, that pull is answered before its time, and points to the master
                await ring.cluster.restart("c1")
                master = ring.broker("g0", 0)
                await until(lambda: not master.registration.isolated, 20)
                online = trio.current_time()
                await until(lambda: len(answers) == 2, 2)
                assert answers[1][0] - online < 1
                assert answers[1][1] in (19, 20)
                assert (answers[1][2] or {})["suggestWhichBrokerId"] == "0"
            # and what the master stores from now on is read there
            await ring.producer.send(Message(TOPIC, b"after"), queue=MessageQueue(TOPIC, "g0", 0))
            assert await pulled(ring, master, TOPIC) == [b"after"]

    run(scenario)
