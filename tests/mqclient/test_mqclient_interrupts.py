"""Ctrl-C: consumers leave properly, wherever it hits the program."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from interrupted_program import POP
from mqclient_rig import FIRST, TOPIC, Basket

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pop_consumer import open_pop_consumer, run_pop_listener
from understudy.mqclient.producer import Producer, SendStatus
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session
from understudy.runtime.world import World
from understudy.testkit import blocking as blocking_testkit
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

PROGRAM = Path(__file__).parent / "interrupted_program.py"


async def interrupted(*arguments: str) -> list[str]:
    """Return what the program with these arguments prints after Ctrl-C, which it gets as soon as it is ready."""
    said: list[str] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, stdout=subprocess.PIPE)
            process = await nursery.start(run, [sys.executable, str(PROGRAM), *arguments])
            text = ""
            async for part in process.stdout:
                text += part.decode()
                *lines, text = text.split("\n")
                for line in lines:
                    if line == "ready":
                        process.send_signal(signal.SIGINT)
                    else:
                        said.append(line)
    return said


async def send(producer: Producer, *bodies: str) -> None:
    """Send each to a queue of its own, the first of them to the first."""
    for number, body in enumerate(bodies):
        await producer.send(message(TOPIC, body.encode()), queue=MessageQueue(TOPIC, "broker-a", number))


@pytest.mark.parametrize("door", ["trio", "trio_ordered", "asyncio", "blocking"])
async def test_a_push_consumer_that_waits_leaves_properly(cluster: LocalCluster, producer: Producer, door: str) -> None:
    await send(producer, "m0")
    assert await interrupted(door, cluster.namesrv_address) == ["finished m0", "signed off", "left", "interrupted"]
    assert cluster.brokers["broker-a"].offsets.query("cg", TOPIC, 0) == 1


@pytest.mark.parametrize("door", ["trio_pop", "asyncio_pop", "blocking_pop"])
async def test_a_pop_consumer_that_waits_leaves_properly(cluster: LocalCluster, producer: Producer, door: str) -> None:
    await send(producer, "m0")
    said = await interrupted(door, cluster.namesrv_address)
    assert said == ["finished m0", "acknowledged m0", "signed off", "left", "interrupted"]


@pytest.mark.parametrize("door", ["trio", "trio_ordered"])
async def test_the_code_of_a_push_listener_is_interrupted_and_the_others_have_their_time(
    cluster: LocalCluster, producer: Producer, world: World, door: str
) -> None:
    await send(producer, "m0", "m1")
    said = await interrupted(door, "own", cluster.namesrv_address)
    assert said == ["finished m0", "signed off", "left", "interrupted"]
    offsets, ordered = cluster.brokers["broker-a"].offsets, door == "trio_ordered"
    assert offsets.query("cg", TOPIC, 0) == 1
    # what was interrupted comes again, and queues are free for the next member
    basket, options = Basket(), PushConsumerOptions(consume_from=FIRST, ordered=ordered)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(1)
    assert [(each.body, each.reconsume_times) for each in basket.got] == [(b"m1", 0 if ordered else 1)]


async def test_the_code_of_a_pop_listener_is_interrupted_and_the_others_have_their_time(
    cluster: LocalCluster, producer: Producer
) -> None:
    await send(producer, "m0", "m1")
    said = await interrupted("trio_pop", "own", cluster.namesrv_address)
    assert sorted(said[:3]) == ["acknowledged m0", "finished m0", "later m1"]
    assert said[3:] == ["signed off", "left", "interrupted"]


@pytest.mark.parametrize("door", ["together", "ordered", "pop"])
async def test_ctrl_c_hits_the_listener_or_the_program_and_never_what_the_consumer_does_behind_them(
    cluster: LocalCluster, producer: Producer, world: World, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    await send(producer, "m0")
    mine, call = trio.lowlevel.current_task(), Session.call
    behind, listening, heard = set[bool](), set[bool](), trio.Event()

    async def noting(self: Session, *args: Any, **named: Any) -> Any:
        if trio.lowlevel.current_task() is not mine:
            behind.add(trio.lowlevel.currently_ki_protected())
        return await call(self, *args, **named)

    async def listen(*_: object) -> None:
        listening.add(trio.lowlevel.currently_ki_protected())
        heard.set()

    monkeypatch.setattr(Session, "call", noting)
    with trio.fail_after(20):
        if door == "pop":
            async with (
                open_pop_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, POP) as consumer,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(run_pop_listener, consumer, listen)
                await heard.wait()
                nursery.cancel_scope.cancel()
        else:
            options = PushConsumerOptions(consume_from=FIRST, ordered=door == "ordered", persist_ms=50)
            async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
                await heard.wait()
                await until(lambda: cluster.brokers["broker-a"].offsets.query("cg", TOPIC, 0) == 1)
    assert (behind, listening) == ({True}, {False})


def test_an_interrupt_of_an_asyncio_loop_ends_no_other_client() -> None:
    async def main(servers: str) -> None:
        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            raise KeyboardInterrupt  # as asyncio raises for the second Ctrl-C

        async with aio.open_push_consumer(servers, "cg", {TOPIC: "*"}, listen, PushConsumerOptions(consume_from=FIRST)):
            await asyncio.Event().wait()

    with blocking_testkit.local_cluster() as cluster, blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        producer.send(message(TOPIC, b"x"))
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main(cluster.namesrv_address))
        assert producer.send(message(TOPIC, b"y")).status is SendStatus.OK


def test_a_listener_in_a_thread_that_exits_has_failed_and_ends_no_client_but_its_own_call() -> None:
    told: list[str] = []
    again = threading.Event()

    def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        context.delay_level = 1
        if batch[0].reconsume_times == 0:
            sys.exit("not now")
        again.set()

    options = PushConsumerOptions(consume_from=FIRST, on_error=lambda error, _: told.append(str(error)))
    with blocking_testkit.local_cluster() as cluster, blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        producer.send(message(TOPIC, b"x"))
        with blocking.open_push_consumer(cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
            assert again.wait(20)
    assert told == ["it was interrupted by SystemExit('not now')"]
