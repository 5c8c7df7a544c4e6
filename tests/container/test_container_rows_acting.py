"""What a slave does for its dead master, seen by clients and tools."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from container_ring import (
    HOSTS,
    TOPIC,
    Ring,
    acting,
    delivered,
    lock,
    open_ring,
    records,
    route_of,
    run,
    send_delayed,
    send_raw,
)

from understudy.broker.broker import Broker
from understudy.format.json_dialect import loads
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.drills.ring import GROUPS, brokers_of, container_of
from understudy.testkit.waiting import until


async def places(ring: Ring, broker: Broker, at_ms: int) -> list[tuple[int, str]]:
    """Return what the broker says of queue 0: found by time, greatest and least offset, oldest message."""
    ext = {"topic": TOPIC, "queueId": "0"}
    asked = [
        await ring.ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**ext, "timestamp": str(at_ms)}),
        await ring.ask(broker, RequestCode.GET_MAX_OFFSET, ext),
        await ring.ask(broker, RequestCode.GET_MIN_OFFSET, ext),
        await ring.ask(broker, RequestCode.GET_EARLIEST_MSG_STORETIME, ext),
    ]
    return [
        (answer.code, str((answer.ext or {}).get("offset", (answer.ext or {}).get("timestamp")))) for answer in asked
    ]


@pytest.mark.covers(
    *("R3", "R5", "R6", "R7", "R8", "R10", "R11", "R12", "R16", "R17", "R21", "R22", "R23", "R26", "R27", "R30")
)
def test_the_smallest_living_slave_answers_for_its_master_and_writes_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            for number in range(6):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            keys = await send_delayed(ring, 5, 2)
            await ring.commit(master, 2)
            await trio.sleep(1)
            at_ms = ring.cluster.host("c1").clock.wall_ms() - 300
            before = await places(ring, master, at_ms)
            assert [code for code, _ in before] == [0, 0, 0, 0]
            # when the master is dead
            await ring.cluster.kill("c1")
            first = ring.broker("g0", 1)
            await until(lambda: acting(ring)[:1] == [first], 5)
            end = first.store.max_physical_offset
            # then its first slave answers what it answered
            assert await places(ring, first, at_ms) == before
            # administrators see its queues and how far groups are
            for code, ext, table in (
                (RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, "offsetTable"),
                (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers", "topic": TOPIC}, "offsetTable"),
            ):
                answer = await ring.ask(first, code, ext)
                assert answer.code == 0, answer.remark
                shown = str(sorted(str(row) for row in loads(answer.body)[table].items()))
                assert all(f"queueId={number}" in shown or f'"queueId":{number}' in shown for number in (0, 1)), shown
            # the route shows it instead, only to be read; other groups are as before
            route = await route_of(ring, TOPIC)
            shown = {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]}
            assert shown["g0"]["0"] == first.identity.address
            assert shown["g1"]["0"] == ring.broker("g1", 0).identity.address
            assert {each["brokerName"]: each["perm"] for each in route["queueDatas"]} == {"g0": 4, "g1": 6, "g2": 6}
            # locks are taken and given back there, many at once
            assert await lock(ring, first, "client-1", [0, 1]) == [0, 1]
            assert await lock(ring, first, "client-2", [0, 1]) == []
            await lock(ring, first, "client-1", [0, 1], code=RequestCode.UNLOCK_BATCH_MQ)
            assert await lock(ring, first, "client-2", [0, 1]) == [0, 1]
            # it takes no sends; producers go on with the others
            assert await send_raw(ring, first, b"x", "") == ResponseCode.SERVICE_NOT_AVAILABLE
            sent = [await ring.producer.send(Message(TOPIC, b"elsewhere")) for _ in range(6)]
            assert {each.queue.broker_name for each in sent} == {"g1", "g2"}
            # what falls due goes to others, not into its own log
            await trio.sleep(6)
            assert [each.body for each in records(first)] == [b"%d" % number for number in range(6)]
            assert first.store.max_physical_offset == end
            assert delivered(ring) == Counter([*keys, *(each.message_id for each in sent)])

            async def at_id_0() -> str:
                route = await route_of(ring, TOPIC)
                return next(each["brokerAddrs"]["0"] for each in route["brokerDatas"] if each["brokerName"] == "g0")

            # when it dies too, the next one takes over, and gives way when it is back
            await ring.cluster.kill(container_of("g0", 1))
            second = ring.broker("g0", 2)
            await until(lambda: second in acting(ring), 15)
            assert await at_id_0() == second.identity.address
            assert await places(ring, second, at_ms) == before
            await ring.cluster.restart(container_of("g0", 1))
            first = ring.broker("g0", 1)
            both = 0
            with trio.fail_after(20):
                while first not in acting(ring):
                    both = max(both, sum(each.identity.name == "g0" for each in acting(ring)))
                    await trio.sleep(0.01)
            await until(lambda: second not in acting(ring), 2)
            assert both <= 1
            assert await at_id_0() == first.identity.address
            assert [(await ring.info(each))["brokerActive"] for each in (first, second)] == ["true", "false"]
            # and when the master is back, all of them stop
            await ring.cluster.restart("c1")
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 20)
            await until(lambda: acting(ring) == [], 10)

    run(scenario)


@pytest.mark.covers("R44", "R45")
def test_an_escape_that_finds_no_place_waits_and_moves_no_progress() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"enableRemoteEscape": "false"}) as ring:
            keys = await send_delayed(ring, 6, 2)
            await trio.sleep(1)
            # given an acting slave whose container has no master, and that may not look elsewhere
            beside = ring.cluster.host("c2").container
            assert beside is not None
            master = next(each for each in beside.brokers() if each.is_master)
            assert await beside.remove_broker(master.identity)
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 5)
            progress = slave.schedule_progress.offsets.get(2, 0)
            await trio.sleep(10)
            # then nothing goes anywhere, not even to the master that lives elsewhere, and nothing is skipped
            assert delivered(ring) == {}
            assert slave.schedule_progress.offsets.get(2, 0) == progress
            # when there is a master beside it again, everything arrives there
            await beside.add_broker(ring.cluster.keys_of("c2", 0, brokers_of("c2")[0]), source="added again")
            await until(lambda: set(delivered(ring)) == set(keys), 25)
            assert {record.properties["UNIQ_KEY"] for record in records(ring.broker("g1", 0))} == set(keys)

    run(scenario)


@pytest.mark.covers("CT-09", "CT-16", "CT-17")
def test_consumers_of_a_master_that_name_servers_have_lost_get_everything_in_time() -> None:
    async def scenario(source: random.Random) -> None:
        received: dict[str, float] = {}

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for each in batch:
                received.setdefault(each.properties["UNIQ_KEY"], trio.current_time())

        options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with open_ring(source) as ring:
            world, servers = ring.cluster.client_world("reader"), ring.cluster.name_servers
            # given 128 delayed messages and a healthy ring: each is there five seconds after it was sent
            async with open_push_consumer(world, servers, "delayed-readers", {TOPIC: "*"}, listen, options):
                sent = await send_delayed(ring, 128, 2)
                await until(lambda: set(sent) <= set(received), 15)
                waits = [received[key] - at for key, at in sent.items()]
                assert sum(4 <= wait <= 6 for wait in waits) >= 0.95 * len(waits)
            # when the name server forgets the master of g0, and 32 messages and 128 delayed ones wait there
            plain = [
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", number % 2))
                for number in range(32)
            ]
            later = await send_delayed(ring, 128, 4)
            cut = Accident(ring.cluster, Fault("cut-off-servers", "c1"), HOSTS)
            await cut.begin()
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 15)
            # then a consumer that starts now reads all of it
            async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options):
                await until(lambda: {each.message_id for each in plain} <= set(received), 15)
                await until(lambda: set(later) <= set(received), 40)
                await trio.sleep(6)
                committed = slave.offsets.committed[f"{TOPIC}@readers"]
                assert sum(committed.values()) >= 32
            # and the master has its two copies again after the fault
            await cut.end()
            serving = ring.broker("g0", 0).replication.master
            assert serving is not None
            await until(lambda: serving.connection_count == 2 and acting(ring) == [], 30)

    run(scenario)


@pytest.mark.covers("CT-01", "CT-10", "R38")
def test_slaves_that_are_removed_and_added_again_leave_and_enter_every_list() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:

            async def listed(group: str) -> list[int]:
                ext = {"clusterName": "DefaultCluster", "brokerName": group}
                question = request(RequestCode.GET_BROKER_MEMBER_GROUP, ext)
                answer = await ring.client.invoke(ring.cluster.name_servers, question, 3_000)
                return sorted(int(number) for number in loads(answer.body)["brokerMemberGroup"]["brokerAddrs"])

            async def in_cluster_list(group: str) -> int:
                question = request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await ring.client.invoke(ring.cluster.name_servers, question, 3_000)
                return len(loads(answer.body)["brokerAddrTable"][group]["brokerAddrs"])

            async def all_show(members: list[int]) -> None:
                with trio.fail_after(20):
                    while [await listed(group) for group in GROUPS] != [members] * 3:  # noqa: ASYNC110 - virtual time
                        await trio.sleep(0.2)
                assert [await in_cluster_list(group) for group in GROUPS] == [len(members)] * 3

            await all_show([0, 1, 2])
            # when the first slave of each group is removed
            for group in GROUPS:
                container = ring.cluster.host(container_of(group, 1)).container
                assert container is not None
                hosted = next(
                    each for each in container.brokers() if (each.identity.name, each.identity.broker_id) == (group, 1)
                )
                assert await container.remove_broker(hosted.identity)
            # then it is in no list, and in all of them when it is back
            await all_show([0, 2])
            for group in GROUPS:
                name = container_of(group, 1)
                container = ring.cluster.host(name).container
                assert container is not None
                index, keys = next(
                    (index, keys)
                    for index, keys in enumerate(brokers_of(name))
                    if (keys["brokerName"], keys["brokerId"]) == (group, "1")
                )
                await container.add_broker(ring.cluster.keys_of(name, index, keys), source="added again")
            await all_show([0, 1, 2])

    run(scenario)
