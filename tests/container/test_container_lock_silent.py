"""Strict locks while replicas do not answer: a majority is enough, and is not held up by those that are missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import trio
from container_ring import TOPIC, Ring, acting, assert_unclear, lock, open_ring, run

from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.errors import RemotingError
from understudy.testkit.waiting import until

STRICT = {"lockInStrictMode": "true"}
CLIENT_SECONDS = 1.0
"""How long clients wait for an answer to 41 and 42."""
UNLOCK = 42


async def taken(ring: Ring, client_id: str, queues: list[int], code: int = 41) -> tuple[list[int], float]:
    """Ask the master of g0; return what was locked, and after how many seconds."""
    began = trio.current_time()
    found = await lock(ring, ring.broker("g0", 0), client_id, queues, code)
    return found, trio.current_time() - began


def test_one_silent_replica_of_three_holds_up_nobody() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, STRICT) as ring:
            # given a slave that still counts as a member and does not answer
            ring.cluster.freeze("c3")
            # when clients lock and unlock
            found, seconds = await taken(ring, "a", [0, 1])
            # then two of three are enough, at once
            assert found == [0, 1]
            assert seconds < 0.1
            assert (await taken(ring, "b", [0]))[0] == []
            _, seconds = await taken(ring, "a", [0], UNLOCK)
            assert seconds < CLIENT_SECONDS / 2
            assert (await taken(ring, "b", [0]))[0] == [0]

    run(scenario)


def test_a_client_learns_in_time_that_too_few_answer_and_keeps_what_it_had_until_it_runs_out() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, STRICT) as ring:
            # given a client that holds a queue, and two of three replicas that do not answer
            assert (await taken(ring, "a", [0]))[0] == [0]
            for host in ("c2", "c3"):
                ring.cluster.freeze(host)
            # when it asks for another queue
            found, seconds = await taken(ring, "a", [1])
            # then it is refused before it stops waiting
            assert found == []
            assert seconds < CLIENT_SECONDS
            # and when it renews what it holds, it learns in time that nobody can say
            began = trio.current_time()
            await assert_unclear(ring, ring.broker("g0", 0), "a", [0])
            assert trio.current_time() - began < CLIENT_SECONDS
            for host in ("c2", "c3"):
                ring.cluster.unfreeze(host)
            await trio.sleep(2)
            # nobody else gets the queue that it may still read; the other one is free
            assert (await taken(ring, "b", [0, 1]))[0] == [1]
            assert (await taken(ring, "a", [0]))[0] == [0]

    run(scenario)


def test_a_master_that_knows_of_too_few_replicas_takes_no_queue_from_whoever_holds_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, STRICT) as ring:
            master = ring.broker("g0", 0)
            assert (await taken(ring, "a", [0]))[0] == [0]
            # given slaves that are gone for so long that nobody shows them any more
            for host in ("c2", "c3"):
                await ring.cluster.kill(host)
            await until(lambda: not set(master.member_group.members or {}) - {0}, 30)
            await assert_unclear(ring, ring.broker("g0", 0), "a", [0])
            # and a master that has lost its locks with its power, and knows nobody yet
            await ring.cluster.kill("c1", power=True)
            await ring.cluster.restart("c1")
            with suppress(RemotingError):  # over a connection of its former life
                await taken(ring, "b", [1])
            assert ring.broker("g0", 0).presence.isolated
            await assert_unclear(ring, ring.broker("g0", 0), "a", [0])

    run(scenario)


def test_an_ordered_consumer_keeps_its_queues_when_its_master_dies_twice_just_before_it_renews() -> None:
    async def ignore(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        pass

    async def scenario(source: random.Random) -> None:
        async with open_ring(source, STRICT) as ring:
            servers, world = ring.cluster.name_servers, ring.cluster.client_world("reader")
            options = PushConsumerOptions(ordered=True, consume_from=ConsumeFrom.FIRST_OFFSET)
            began = trio.current_time()
            async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, ignore, options) as consumer:
                await trio.sleep_until(began + 15)
                held = {queue: each for queue, each in consumer.held.items() if each.locked_at is not None}
                assert len(held) >= 6
                # given a master that is lost each time just before its locks are renewed, and comes back
                for seconds in (19.9, 39.9):
                    await trio.sleep_until(began + seconds)
                    await ring.cluster.kill("c1")
                    await until(lambda: ring.broker("g0", 1) in acting(ring), 10)
                    await trio.sleep(3)
                    await ring.cluster.restart("c1")
                # then the consumer has renewed them in time where they could be, and has given up no queue
                await trio.sleep_until(began + 65)
                assert [queue for queue, each in held.items() if each.dropped] == []
                assert {queue: consumer.held[queue] for queue in held} == held

    run(scenario)
