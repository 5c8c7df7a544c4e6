"""Every replica of a group holds its messages and knows its consumers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from container_ring import TOPIC, open_ring, route_of, run

from understudy.format.json_dialect import loads
from understudy.format.record import decode_records
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.first_pull import first_pull
from understudy.testkit.waiting import until


@pytest.mark.covers("CT-07")
def test_a_message_is_the_same_at_every_broker_of_the_route() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given one acknowledged message
            await ring.producer.send(Message(TOPIC, b"once"), queue=MessageQueue(TOPIC, "g0", 0))
            groups = {each["brokerName"]: each["brokerAddrs"] for each in (await route_of(ring, TOPIC))["brokerDatas"]}
            # when it is pulled from each broker that the route names
            bodies = []
            for broker_id in ("0", "1", "2"):
                with trio.fail_after(5):
                    pull = request(RequestCode.PULL_MESSAGE, first_pull(TOPIC))
                    answer = await ring.client.invoke(groups["g0"][broker_id], pull, 5_000)
                assert answer.code == 0, answer.remark
                bodies.append(answer.body)
            # then it is the same message, byte for byte
            assert bodies[0] == bodies[1] == bodies[2]
            assert [each.body for each in decode_records(bodies[0])] == [b"once"]

    run(scenario)


@pytest.mark.covers("CT-12")
def test_both_slaves_know_how_far_a_group_has_come_in_every_queue() -> None:
    async def scenario(source: random.Random) -> None:
        received = 0

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            nonlocal received
            received += len(batch)

        async with open_ring(source) as ring:
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            world, servers = ring.cluster.client_world("reader"), ring.cluster.name_servers
            for number in range(100):
                await ring.producer.send(Message(TOPIC, b"%d" % number))
            # when a group has consumed a hundred messages
            async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options):
                await until(lambda: received == 100, 30)
            await trio.sleep(1)

            async def committed(group: str, broker_id: int) -> dict[str, int]:
                answer = await ring.ask(ring.broker(group, broker_id), RequestCode.GET_ALL_CONSUMER_OFFSET)
                return dict(loads(answer.body)["offsetTable"][f"{TOPIC}@readers"])

            # then every replica says the same of each queue
            total = 0
            for group in GROUPS:
                tables = [await committed(group, broker_id) for broker_id in (0, 1, 2)]
                assert tables[0] == tables[1] == tables[2]
                assert len(tables[0]) == 2
                total += sum(tables[0].values())
            assert total == 100

    run(scenario)
