"""A program with a consumer that Ctrl-C ends, at the place that is asked for: ``DOOR [LISTENER] NAME_SERVERS``.

DOOR is ``trio``, ``asyncio`` or ``blocking``, with ``_pop`` or (of trio) ``_ordered``. The listener has ``m0``
until the block is being left. With ``own`` it computes for ever with ``m1`` (of trio only), so that Ctrl-C hits its
own code. What happens is printed, a line each.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import trio
from mqclient_rig import FIRST, TOPIC

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer, run_pop_listener
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.session import Session
from understudy.runtime.world import real_world

PUSH = PushConsumerOptions(consume_from=FIRST, persist_ms=600_000)
ORDERED = PushConsumerOptions(consume_from=FIRST, persist_ms=600_000, ordered=True)
POP = PopConsumerOptions(retry_ms=100, hold_ms=1_000)
GROUP, TOPICS = "cg", {TOPIC: "*"}


def say(text: str) -> None:
    print(text, flush=True)


def tell_what_brokers_hear() -> None:
    """Print what brokers are told of popped messages, and that the consumer signed off, once they have answered."""
    ack, later, sign_off = PopConsumer.ack, PopConsumer.change_invisible, Session.sign_off

    async def noting_ack(self: PopConsumer, *popped: PoppedMessage) -> None:
        await ack(self, *popped)
        say(f"acknowledged {popped[0].message.body.decode()}")

    async def noting_later(self: PopConsumer, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        changed = await later(self, popped, invisible_ms)
        say(f"later {popped.message.body.decode()}")
        return changed

    async def noting_sign_off(self: Session, **group: Any) -> None:
        await sign_off(self, **group)
        say("signed off")

    PopConsumer.ack = noting_ack  # type: ignore[method-assign]
    PopConsumer.change_invisible = noting_later  # type: ignore[method-assign]
    Session.sign_off = noting_sign_off  # type: ignore[method-assign]


class TrioListener:
    """Of both kinds: keeps the first message until somebody leaves."""

    def __init__(self, own: bool) -> None:
        self.leaving = trio.Event()
        self._waits = trio.Event()
        self._own = own

    async def push(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        context.delay_level = 1
        await self.pop(batch[0])

    @trio.lowlevel.enable_ki_protection
    async def _wait(self) -> None:
        """Wait until somebody leaves: Ctrl-C comes at once, and must not hit the code that has just said *ready*."""
        if not self._own:
            say("ready")
        await self.leaving.wait()

    async def pop(self, received: ReceivedMessage) -> None:
        if received.body == b"m0":
            self._waits.set()
            await self._wait()
            await trio.sleep(0.05)
            say("finished m0")
            return
        await self._waits.wait()
        try:
            say("ready")
            while True:
                pass
        finally:
            self.leaving.set()


async def with_trio(door: str, own: bool, servers: str) -> None:
    listener = TrioListener(own)
    try:
        if door == "trio_pop":
            async with open_pop_consumer(real_world(), servers, GROUP, TOPICS, POP) as consumer:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(run_pop_listener, consumer, listener.pop)
                        try:
                            await trio.sleep_forever()
                        finally:
                            listener.leaving.set()
                except* KeyboardInterrupt:
                    raise KeyboardInterrupt from None
        options = ORDERED if door == "trio_ordered" else PUSH
        async with open_push_consumer(real_world(), servers, GROUP, TOPICS, listener.push, options):
            try:
                await trio.sleep_forever()
            finally:
                listener.leaving.set()
    finally:
        say("left")


async def with_asyncio(door: str, servers: str) -> None:
    leaving = asyncio.Event()

    async def pop(received: ReceivedMessage) -> None:
        say("ready")
        await leaving.wait()
        await asyncio.sleep(0.05)
        say("finished m0")

    async def push(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        await pop(batch[0])

    try:
        if door == "asyncio_pop":
            async with aio.open_pop_consumer(servers, GROUP, TOPICS, POP) as consumer:
                try:
                    await consumer.run_listener(pop)
                finally:
                    leaving.set()
        async with aio.open_push_consumer(servers, GROUP, TOPICS, push, PUSH):
            try:
                await asyncio.Event().wait()
            finally:
                leaving.set()
    finally:
        say("left")


def with_threads(door: str, servers: str) -> None:
    leaving = threading.Event()

    def pop(received: ReceivedMessage) -> None:
        say("ready")
        leaving.wait()
        time.sleep(0.05)
        say("finished m0")

    def push(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        pop(batch[0])

    try:
        if door == "blocking_pop":
            with blocking.open_pop_consumer(servers, GROUP, TOPICS, POP) as consumer:
                try:
                    consumer.run_listener(pop)
                finally:
                    leaving.set()
        with blocking.open_push_consumer(servers, GROUP, TOPICS, push, PUSH):
            try:
                threading.Event().wait()
            finally:
                leaving.set()
    finally:
        say("left")


def main(door: str, *arguments: str) -> None:
    own, servers = "own" in arguments, arguments[-1]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever began this may ignore it
    tell_what_brokers_hear()
    try:
        if door.startswith("trio"):
            trio.run(with_trio, door, own, servers)
        elif door.startswith("asyncio"):
            asyncio.run(with_asyncio(door, servers))
        else:
            with_threads(door, servers)
    except KeyboardInterrupt:
        say("interrupted")


if __name__ == "__main__":
    main(*sys.argv[1:])
