"""A popped message that lies in a hole of the log when its check point is due comes again once the log has it."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_live_holes import NOBODY_ACTS
from test_container_master_holes import TOPIC, open_filled_pair

from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.producer import open_producer
from understudy.mqclient.subscription import subscription
from understudy.remoting.client import open_client
from understudy.testkit.waiting import until

GROUP = "poppers"
RETRY = names.pop_retry_topic(GROUP, TOPIC)
INVISIBLE_MS = 40_000


def test_what_comes_back_after_its_check_point_was_due_is_popped_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given popped messages that nobody acknowledges, one in the middle of its queue and one at its end
            first, second = (await pair.producer.queues(TOPIC))[:2]
            middle, end, kept = b"middle" * 200, b"end" * 400, b"kept"
            hole = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, middle), queue=first)
            await pair.producer.send(Message(TOPIC, end), queue=second)
            length = pair.master.store.max_physical_offset - hole
            await pair.producer.send(Message(TOPIC, kept), queue=first)
            wish = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g", invisible_ms=INVISIBLE_MS, hold_ms=0)
            popped = [each.message.body for _ in range(6) for each in await pop(pair.producer.session, wish)]
            assert {middle, end, kept} <= set(popped)
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            # when the master loses both with its power, while its slave is away until long after they are due
            await pair.cluster.kill("c2")
            await pair.lose([hole], length=length - 100)
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.hole == hole
            await until(lambda: len(records(pair.master, RETRY)) == len(popped) - 2, 120)
            await trio.sleep(20)
            await pair.cluster.restart("c2")
            await until(lambda: pair.master.store.hole is None, 60)
            # then each of them comes again, once
            await until(lambda: len(records(pair.master, RETRY)) >= len(popped), 120)
            await trio.sleep(120)
            assert sorted(popped) == sorted(each.body for each in records(pair.master, RETRY))

    run(scenario)


@pytest.mark.parametrize("index", ["true", "false"])
def test_what_got_the_place_of_a_lost_popped_message_does_not_come_in_its_stead(index: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS, messageIndexEnable=index) as pair:
            # given a popped message that nobody acknowledges, which is lost at the end of its queue
            first, second = (await pair.producer.queues(TOPIC))[:2]
            wish = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g", invisible_ms=INVISIBLE_MS, hold_ms=0)
            for _ in range(20):
                for each in await pop(pair.producer.session, wish):
                    await ack(pair.producer.session, each)
            hole = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, b"lost" * 200), queue=second)
            after = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, b"kept"), queue=first)
            popped = [each.message.body for _ in range(6) for each in await pop(pair.producer.session, wish)]
            assert sorted(popped) == [b"kept", b"lost" * 200]
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.serve_without(hole, after)
            # when another one gets its queue offset, and is popped and acknowledged
            world = pair.cluster.client_world("later")
            async with open_client(world) as client, open_producer(world, pair.cluster.name_servers, "w2") as producer:
                pair.client = client
                properties = "UNIQ_KEY\x01n\x02"
                assert await send_raw(pair, pair.master, b"new", properties, queue_id=second.queue_id) == 0
                await trio.sleep(3)
                await producer.queues(TOPIC)
                got = [each for _ in range(8) for each in await pop(producer.session, wish)]
                for each in got:
                    if each.message.body == b"new":
                        await ack(producer.session, each)
                assert b"new" in [each.message.body for each in got]
                await trio.sleep(150)
                # then it does not come again, unless nothing in the log tells it from the lost one
                bodies = [each.body for each in records(pair.master, RETRY)]
                assert b"kept" in bodies
                assert bodies.count(b"new") == (index == "false")

    run(scenario)
