"""What a proxy keeps of requests that wait for brokers: what their answers need, and not what the clients have sent."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy_rig import Rig, play, receive_request, received
from test_proxy_parked import GROUP as READERS
from test_proxy_remoting import old_client, pull

from understudy.proxy.forward.guests import ASKED_BYTES
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.testkit.waiting import until

COUNT = 100
JUNK = 40_000
"""Characters of a request that nobody needs for its answer."""
REMOTING_BYTES, GRPC_BYTES = 6_000, 16_000
"""What proxy, broker and client, which are one process here, may keep of one request that waits."""


async def grown(park: Callable[[int], Awaitable[object]]) -> float:
    """Return by how many bytes the process has grown for each request of some more, after as many to begin with."""
    await park(COUNT)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await park(COUNT)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / COUNT


def test_a_pull_that_waits_is_a_small_row() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            await old.heartbeat("old-1")
            connection = await old.client.connection(old.address, 5_000)
            hold = rig.cluster.brokers("c1")["broker-a"].hold
            answers: list[Command | None] = []
            waiting = 0

            async def park(count: int) -> None:
                nonlocal waiting
                waiting += count
                for number in range(count):
                    ext = {**pull("broker-a", 900_000), "junk": f"{number}".rjust(JUNK)}
                    connection.ask(request(RequestCode.PULL_MESSAGE, ext), answers.append)
                await until(lambda: len(hold) == waiting, 10)

            each = await grown(park)
            assert each < REMOTING_BYTES, each
            # and counts into the total of the process
            kept = rig.proxy._world.load.parked
            held = kept.used
            assert held >= waiting * ASKED_BYTES
            assert answers == []
            kept.limit = held
            refused = await old.ask(RequestCode.PULL_MESSAGE, pull("broker-a", 900_000))
            assert (2, True) == (refused.code, "too much memory of this proxy" in (refused.remark or ""))
            connection.close("enough")
            await until(lambda: kept.used == 0, 10)

    play(test)


def test_a_receive_that_waits_is_a_small_row() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(READERS, "Normal")
        await rig.user.receive(READERS, "Normal")

        async def park(count: int) -> None:
            before = len(rig.receives)
            for _ in range(count):
                await rig.user.begin("ReceiveMessage", receive_request(READERS, "Normal", poll_ms=900_000))
            await until(lambda: len(rig.receives) == before + count, 10)

        each = await grown(park)
        assert each < GRPC_BYTES, each

    play(test)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_a_receive_says_beside_its_topic_is_not_kept() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(READERS, "Normal")

        async def park(count: int) -> None:
            before = len(rig.receives)
            for _ in range(count):
                asked = receive_request(READERS, "Normal", poll_ms=900_000)
                asked.message_queue.broker.endpoints.addresses.add(host="h" * 900_000)
                await rig.user.begin("ReceiveMessage", asked)
            await until(lambda: len(rig.receives) == before + count, 30)

        await park(20)
        gc.collect()
        before = resident_bytes()
        await park(80)
        gc.collect()
        # given messages that are read outside of Python's memory: 72 MB of them
        assert resident_bytes() - before < 36 << 20

    play(test)


def test_long_subscriptions_of_receives_that_wait_have_a_total() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(READERS, "Normal")
        kept = rig.proxy._world.load.parked
        kept.limit = 400_000
        answered: list[v2.Code] = []
        for _ in range(20):
            asked = receive_request(READERS, "Normal", poll_ms=900_000)
            asked.filter_expression.expression = "||".join(f"tag{number}" for number in range(300))
            before = len(rig.receives)
            stream = await rig.user.begin("ReceiveMessage", asked)
            await until(lambda: len(rig.receives) > before or stream.ended, 10)  # noqa: B023
            if stream.ended:
                status, _ = received(stream)
                answered.append(status.code)
        assert set(answered) == {v2.TOO_MANY_REQUESTS}
        assert len(rig.receives) + len(answered) == 20
        assert 2 <= len(rig.receives) < 12

    play(test)
