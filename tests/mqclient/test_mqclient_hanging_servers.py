"""Servers that hang: one of them costs its own time and nobody else's."""

from __future__ import annotations

import random

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake, stored

from understudy.mqclient.errors import (
    NotConnectedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.message import message
from understudy.mqclient.producer import ProducerOptions, open_producer
from understudy.mqclient.pull_consumer import PullConsumerOptions, open_pull_consumer
from understudy.mqclient.session import SessionOptions, open_session
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.world import real_world
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


def test_a_cancelled_caller_does_not_fail_those_who_wait_for_the_same_connection() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            client_host, server = cluster.address("client"), cluster.address("n1")
            async with open_client(cluster.client_world()) as client, trio.open_nursery() as nursery:
                cluster.network.partition({client_host}, {server})
                first = trio.CancelScope()
                codes: list[int] = []

                async def ask(scope: trio.CancelScope) -> None:
                    with scope:
                        command = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
                        codes.append((await client.invoke(cluster.name_servers, command, 10_000)).code)

                nursery.start_soon(ask, first)
                await trio.sleep(0.1)
                nursery.start_soon(ask, trio.CancelScope())
                await trio.sleep(0.1)
                first.cancel()
                cluster.network.heal()
            assert len(codes) == 1

    run_seed(scenario, 3)


def never(command: Command) -> Command | None:
    return None


async def test_one_broker_that_hangs_leaves_time_for_the_others() -> None:
    hangs, answers = FakeBroker("a", answer=never), FakeBroker("b", answer=stored)
    async with (
        open_fake(hangs, answers) as cluster,
        open_producer(real_world(), cluster.name_server, "pg", ProducerOptions(send_timeout_ms=2_000)) as producer,
    ):
        for _ in range(4):
            sent = await producer.send(message("T", b"x"))
            assert sent.queue.broker_name == "b"
    assert len(hangs.sends) <= 2, "after that it is known to hang"


async def test_the_time_limit_of_a_send_counts_the_look_for_its_brokers() -> None:
    calm = ProducerOptions(session=SessionOptions(request_timeout_ms=60_000))
    broker = FakeBroker("a", answer=never)
    async with (
        open_fake(broker) as cluster,
        open_producer(real_world(), cluster.name_server, "pg", calm) as producer,
    ):
        began = trio.current_time()
        with pytest.raises(SendFailedError, match="50 ms"):
            await producer.send(message("T", b"x"), timeout_ms=50)
        assert trio.current_time() - began < 30
    silent = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = silent[0].socket.getsockname()[1]
    async with open_producer(real_world(), f"127.0.0.1:{port}", "pg", calm) as producer:
        began = trio.current_time()
        with pytest.raises((SendFailedError, NotConnectedError)):
            await producer.send(message("T", b"x"), timeout_ms=50)
        assert trio.current_time() - began < 30
    await silent[0].aclose()


async def test_a_missing_topic_is_asked_for_once_in_a_while_not_with_each_send() -> None:
    async with open_fake(FakeBroker("a")) as cluster:
        once = ProducerOptions(session=SessionOptions(route_retry_ms=600_000))
        async with open_producer(real_world(), cluster.name_server, "pg", once) as producer:
            for _ in range(100):
                with pytest.raises(RouteNotFoundError):
                    await producer.send(message("Missing", b"x"))
        assert cluster.asked.count("Missing") <= 3
        cluster.topics.add("Missing")
        options = SessionOptions(route_retry_ms=0)
        async with open_session(real_world(), cluster.name_server, options) as session:
            assert (await session.route("Missing")).write_queues


async def test_offsets_of_a_broker_that_hangs_do_not_hold_up_those_of_others() -> None:
    hangs, answers = FakeBroker("a"), FakeBroker("b")
    hangs.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = never
    async with open_fake(hangs, answers) as cluster, open_pull_consumer(
        real_world(), cluster.name_server, "cg",
        PullConsumerOptions(auto_commit=False, session=SessionOptions(request_timeout_ms=60_000)),
    ) as reader:  # fmt: skip
        queues = await reader.topic_queues("T")
        for queue in queues:
            reader.offsets.update(queue, 7)

        def told() -> int:
            return sum(command.code == RequestCode.UPDATE_CONSUMER_OFFSET for command in answers.requests)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.offsets.persist, queues)
            await until(lambda: told() == 8)
            nursery.cancel_scope.cancel()
