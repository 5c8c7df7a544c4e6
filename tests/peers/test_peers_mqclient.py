"""Our client and our admin tool against the real name server and broker."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import peer_processes
import pytest
import trio
from peer_processes import JAVA, AdminConsole, PeerCluster

from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqclient.admin import topics
from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.pull_consumer import PullConsumerOptions, open_pull_consumer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks

pytestmark = pytest.mark.slow
FIRST = ConsumeFrom.FIRST_OFFSET
MOST_TRIES = 5


@pytest.fixture(scope="module")
def java_cluster(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeerCluster]:
    with peer_processes.peer_cluster(JAVA, JAVA, tmp_path_factory.mktemp("java"), port_blocks) as cluster:
        yield cluster


async def make_topic(producer: Producer, topic: str) -> None:
    master = (await cluster_info(producer.session)).masters_of("DefaultCluster")[0]
    await topics.save_topic(producer.session, master, topics.TopicSettings(topic, 4, 4))
    with trio.fail_after(60):
        while not await topics.exists(producer.session, topic):
            await trio.lowlevel.checkpoint()


async def test_what_we_pop_from_the_real_broker_comes_again_until_we_acknowledge_it(java_cluster: PeerCluster) -> None:
    world, topic = real_world(), "OurPops"
    patient, hasty = PopConsumerOptions(invisible_ms=120_000), PopConsumerOptions(invisible_ms=3_000)
    names, group = java_cluster.namesrv, "pops"
    # given a topic of the real broker; when our consumer pops all of it and acknowledges it, alone and in a batch
    async with open_producer(world, names, "pg") as producer:
        await make_topic(producer, topic)
        for number in range(12):
            await producer.send(message(topic, f"m{number}".encode(), tag="A"), timeout_ms=10_000)
        async with (
            open_pop_consumer(world, names, group, {topic: "A"}, patient) as consumer,
            open_pop_consumer(world, names, group, {topic: "A"}, hasty) as other,
        ):

            async def pop(by: PopConsumer, count: int) -> list[PoppedMessage]:
                popped: list[PoppedMessage] = []
                with trio.fail_after(90):
                    while len(popped) < count:
                        popped += await by.pop(topic, hold_ms=2_000)
                return popped

            popped = await pop(consumer, 12)
            longer = await consumer.change_invisible(popped[1], 240_000)
            await consumer.ack(popped[2])
            await consumer.ack(longer, popped[0], *popped[3:])
            # and one more, which it does not acknowledge
            await producer.send(message(topic, b"left", tag="A"), timeout_ms=10_000)
            (left,) = await pop(other, 1)
            # then exactly that comes again
            again = await pop(consumer, 1)
            assert [(each.message.body, each.message.reconsume_times) for each in again] == [(left.message.body, 1)]
            await consumer.ack(*again)
            assert await consumer.pop(topic, hold_ms=8_000) == []


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_we_send_we_consume_and_failures_come_again(java_cluster: PeerCluster, ordered: bool) -> None:
    world, topic = real_world(), f"OurClient{ordered}"
    got: list[str] = []
    tries: Counter[str] = Counter()
    complete = trio.Event()

    async def listener(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        (received,) = batch
        body = received.body.decode()
        tries[body] += 1
        context.delay_level, context.suspend_ms = 1, 10
        if body == "m3" and tries[body] == 1:
            return ConsumeResult.LATER
        got.append(body)
        if len(got) == 20:
            complete.set()
        return None

    # given a topic of the real broker; when our producer sends to it, alone and in a batch, long and short
    async with open_producer(world, java_cluster.namesrv, "pg") as producer:
        await make_topic(producer, topic)
        queue = (await producer.queues(topic))[1]
        for number in range(10):
            await producer.send(message(topic, f"m{number}".encode(), tag="A"), queue=queue, timeout_ms=10_000)
        await producer.send_batch([message(topic, f"m{n}".encode(), tag="A") for n in range(10, 20)], queue=queue)
        await producer.send(message(topic, b"z" * 10_000, tag="B"), queue=queue)
        # and our consumer reads one tag of it
        options = PushConsumerOptions(consume_from=FIRST, ordered=ordered)
        async with open_push_consumer(world, java_cluster.namesrv, f"g{ordered}", {topic: "A"}, listener, options):
            with trio.fail_after(150):
                await complete.wait()
    # then each message came once, the refused one twice, and in order where that was asked
    assert Counter(got) == Counter(f"m{number}" for number in range(20))
    assert (tries["m3"], sum(tries.values())) == (2, 21)
    assert not ordered or got == [f"m{number}" for number in range(20)]


LONG_BODY = b"long " * 3000


@pytest.fixture(scope="module")
def polled(java_cluster: PeerCluster) -> tuple[list[bytes], int]:
    """The bodies that our pull consumer got of a topic, and how much of it the group "poller" has committed."""
    return trio.run(poll_all, java_cluster)


async def poll_all(java_cluster: PeerCluster) -> tuple[list[bytes], int]:
    world, topic = real_world(), "OurPoll"
    async with open_producer(world, java_cluster.namesrv, "pg") as producer:
        await make_topic(producer, topic)
        await producer.send(message(topic, LONG_BODY), timeout_ms=10_000)
    options = PullConsumerOptions(consume_from=FIRST)
    async with open_pull_consumer(world, java_cluster.namesrv, "poller", options) as consumer:
        await consumer.subscribe({topic: "*"})
        with trio.fail_after(150):
            while not (batch := await consumer.poll(1_000)):
                await trio.lowlevel.checkpoint()
        await consumer.commit()
        stored = [await consumer.committed(queue) for queue in consumer.queues]
    return [received.body for received in batch], sum(offset or 0 for offset in stored)


def test_polling_reads_commits_and_inflates(polled: tuple[list[bytes], int]) -> None:
    assert polled == ([LONG_BODY], 1)


SAME_TABLES = (
    "topicRoute -t OurPoll -l",
    "topicStatus -t OurPoll",
    "topicClusterList -t OurPoll",
    "topicList",
    "updateTopic -c DefaultCluster -t Compared -r 2 -w 2 -o true",
    "updateSubGroup -c DefaultCluster -g compared -r 3",
    "getConsumerConfig -g compared",
    "wipeWritePerm -b broker-a",
    "addWritePerm -b broker-a",
    "consumerProgress -g poller -t OurPoll",
    "statsAll -t OurPoll",
)


@pytest.mark.parametrize("words", SAME_TABLES)
async def test_our_tool_prints_what_the_real_tool_prints(
    java_cluster: PeerCluster, polled: object, admin: AdminConsole, words: str
) -> None:
    # given both tools on the same cluster with a topic and a group, in the same time zone
    time.tzset()
    command = load_commands()[words.split()[0]]
    values = parse(command.all_options, words.split()[1:])
    # when the real one is asked before ours and after, and what a broker counts by itself has not changed meanwhile

    async def theirs() -> list[str]:
        return comparable(await trio.to_thread.run_sync(admin.printed, java_cluster.namesrv, words))

    before, after = [""], await theirs()
    for _ in range(MOST_TRIES):
        stream = io.StringIO()
        await run_command(command, values, java_cluster.namesrv, Output(False, stream), real_world())
        before, after = after, await theirs()
        if before == after:
            break
    # then they print the same, but for the order of hash maps and for rates, which change from call to call
    assert before == after == comparable(stream.getvalue())


def comparable(printed: str) -> list[str]:
    lines = (re.sub(r" *\d+\.\d+(?=\s|$)", " RATE", line).rstrip() for line in printed.split("\n"))
    return sorted(line for line in lines if line)
