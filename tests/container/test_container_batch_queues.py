"""Topics with batch queues in a group that loses its master: copied, served by a slave that acts, given back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import trio
from container_ring import run
from test_container_lost_end import DURABLE_SECONDS, Group, content, copied, fail, open_group

from understudy.broker.broker import Broker
from understudy.broker.topics import has_batch_queues
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.codes import RequestCode
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

TOPIC = "batches"


async def made(group: Group) -> None:
    fields = {**topic_fields(TOPIC), "attributes": "+queue.type=BatchCQ"}
    assert (await group.ask(group.master, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
    await until(lambda: TOPIC in group.slave().store.batch_topics, 30)


async def send(group: Group, first: int) -> set[bytes]:
    """Send batches of three and a single message in between."""
    bodies = [b"%d" % number for number in range(first, first + 7)]
    for sent in (bodies[:3], bodies[3:4], bodies[4:]):
        messages = [Message(TOPIC, body) for body in sent]
        await (group.producer.send_batch(messages) if len(messages) > 1 else group.producer.send(messages[0]))
    return set(bodies)


def queues(broker: Broker) -> dict[int, tuple[int, int]]:
    """Return what each queue of the topic holds."""
    store = broker.store
    return {
        queue_id: (store.min_queue_offset(name, queue_id), store.max_queue_offset(name, queue_id))
        for name, queue_id in store.queues()
        if name == TOPIC and store.max_queue_offset(name, queue_id)
    }


def test_consumers_get_each_message_of_a_batch_while_a_slave_acts_and_when_the_master_is_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            await made(group)
            got: Counter[bytes] = Counter()

            async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
                got.update(each.body for each in batch)

            sent = await send(group, 0)
            await copied(group, 1)
            # given a live slave with the same queues
            assert queues(group.master) == queues(group.slave()) != {}
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            world, servers = group.cluster.client_world("r"), group.cluster.name_servers
            async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options):
                await until(lambda: set(got) == sent, 60)
                sent |= await send(group, 100)
                await until(lambda: set(got) == sent, 60)
                await trio.sleep(30)  # the group's offsets are at the slave, too
                sent |= await send(group, 200)
                await copied(group, 1)
                await trio.sleep(DURABLE_SECONDS)
                await group.cluster.kill("c1")
                # when the slave acts, it gives what is there
                await until(lambda: "schedule" in group.slave().services.running(), 90)
                await until(lambda: set(got) == sent, 90)
                before = queues(group.slave())
                await trio.sleep(30)
                await group.cluster.restart("c1")
                await group.online(120)
                server = group.cluster.host("n1").name_server
                assert server is not None
                await until(lambda: 0 in server.table.groups["g"].members, 10)  # it has registered: senders find it
                # then the master goes on where the queues ended
                assert before == queues(group.master)
                sent |= await send(group, 300)
                await until(lambda: set(got) == sent, 120)
                assert {body: 1 for body in sent} == got
                await copied(group, 1)
                assert queues(group.master) == queues(group.slave())

    run(scenario)


def test_a_master_that_lost_the_row_knows_by_what_comes_back_that_it_is_a_batch_topic() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            topics = "/data/g-0/config/topics.json"
            disk = group.cluster.host("c1").disk
            former = {path: disk.read(path) for path in (topics, f"{topics}.bak") if disk.exists(path)}
            await made(group)
            sent = await send(group, 0)
            await copied(group, 1)
            whole, held = content(group.slave()), queues(group.slave())
            # given a master whose power fails, and which then has neither messages nor topic
            await fail(group)
            for path, data in former.items():
                disk.damage(path, lambda _, data=data: data)  # type: ignore[misc]
            await group.cluster.restart("c1")
            assert TOPIC not in group.master.topics.rows
            await group.online()
            # then it takes both back, and the queues are what they were
            assert content(group.master) == whole
            row = group.master.topics.rows[TOPIC]
            assert has_batch_queues(row.attributes)
            assert held == queues(group.master)
            sent |= await send(group, 100)
            await copied(group, 1)
            assert queues(group.master) == queues(group.slave())
            assert sum(end for _, end in queues(group.master).values()) == len(sent)

    run(scenario)
