"""Traffic across a failover of real processes, by our clients or by the Java ones; both write the same history."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, SendStatus, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.sending import ProducerOptions
from understudy.runtime.world import real_world
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.history import History, Verdict
from understudy.testkit.java_tools import LAUNCHER

TOPIC = "orders"
CONCURRENT, ORDERLY = "concurrent-readers", "orderly-readers"
SENDERS = 3
SEND_PAUSE_SECONDS = 0.02
DELAY_LEVEL = 2
# A client that sends again after a lost answer may store a message twice: what is repeated then is its own doing.
ONE_ATTEMPT = ProducerOptions(attempts=1)
_JAVA_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_DRAIN_SECONDS = 90.0


class Traffic(ABC):
    """Three senders that wait for each answer, one of delayed messages, a concurrent group and an orderly one."""

    def __init__(self) -> None:
        self.history = History()

    @abstractmethod
    async def stop_sending(self) -> None:
        """Let the senders finish what they are at."""

    async def drain(self) -> None:
        """Wait until both groups have what was acknowledged, but not for ever."""
        with trio.move_on_after(_DRAIN_SECONDS):
            while self._wanting():  # noqa: ASYNC110 - what arrives comes from other processes
                await trio.sleep(0.2)

    def _wanting(self) -> bool:
        wanted = {sent.key for sent in self.history.sends if sent.acknowledged}
        for group in (CONCURRENT, ORDERLY):
            if wanted - {each.key for each in self.history.deliveries if each.group == group}:
                return True
        return False

    def verdict(self) -> Verdict:
        """Judge what was seen; only the orderly group promises an order."""
        return self.history.check([CONCURRENT, ORDERLY], ordered=(ORDERLY,), may_move=True)


class OurTraffic(Traffic):
    """By this project's own clients, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._sending = True
        self._senders = 0
        self._idle = trio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, name_servers: str) -> AsyncIterator[OurTraffic]:
        """Send and consume until the block ends."""
        traffic = cls()
        world, topics = real_world(), {TOPIC: "*"}
        concurrent = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        orderly = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, ordered=True)
        async with (
            open_producer(world, name_servers, "writers", ONE_ATTEMPT) as producer,
            open_push_consumer(
                world, name_servers, CONCURRENT, topics, partial(traffic._listen, CONCURRENT), concurrent
            ),
            open_push_consumer(world, name_servers, ORDERLY, topics, partial(traffic._listen, ORDERLY), orderly),
            trio.open_nursery() as nursery,
        ):
            for number in range(SENDERS):
                nursery.start_soon(traffic._send, producer, f"sender-{number}", 0)
            nursery.start_soon(traffic._send, producer, "delayed", DELAY_LEVEL)
            yield traffic
            nursery.cancel_scope.cancel()

    async def _send(self, producer: Producer, sender: str, level: int) -> None:
        self._senders += 1
        number = 0
        while self._sending:
            key = f"{sender}-{number}"
            number += 1
            lane = key if level else sender  # delayed messages arrive when they are due: each is a sender of its own
            try:
                sent = await producer.send(Message(TOPIC, key.encode(), {"DELAY": str(level)} if level else {}))
            except ClientError:
                self.history.sent(key, lane, None, acknowledged=False)
            else:
                queue = (sent.queue.topic, sent.queue.broker_name, sent.queue.queue_id)
                # Any other status says that the message is stored, and that it may go with the master that has it.
                self.history.sent(key, lane, queue, acknowledged=sent.status is SendStatus.OK)
            await trio.sleep(SEND_PAUSE_SECONDS)
        self._senders -= 1
        if not self._senders:
            self._idle.set()

    async def _listen(self, group: str, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        queue = (context.queue.topic, context.queue.broker_name, context.queue.queue_id)
        for each in batch:
            self.history.delivered(each.body.decode(), group, queue, each.queue_offset)

    async def stop_sending(self) -> None:
        self._sending = False
        with trio.move_on_after(_STOP_SECONDS):
            await self._idle.wait()


class JavaTraffic(Traffic):
    """By the real Java client, in a process of its own that tells of each send and delivery in a line."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__()
        self._process = process
        self._told: dict[str, trio.Event] = {"ready": trio.Event(), "stopped": trio.Event()}
        self._failure = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, name_servers: str) -> AsyncIterator[JavaTraffic]:
        """Send and consume until the block ends. Raises :class:`DrillError` when the program does not start."""
        arguments = {
            "namesrv": name_servers,
            "topic": TOPIC,
            "senders": str(SENDERS),
            "delay-level": str(DELAY_LEVEL),
            "pause-ms": str(round(SEND_PAUSE_SECONDS * 1000)),
            "concurrent-group": CONCURRENT,
            "orderly-group": ORDERLY,
        }
        command = [
            str(LAUNCHER),
            "traffic",
            *(part for name, text in arguments.items() for part in (f"--{name}", text)),
        ]
        async with trio.open_nursery() as nursery:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            traffic = cls(process)
            try:
                nursery.start_soon(traffic._read)
                await traffic._await("ready", _JAVA_START_SECONDS)
                yield traffic
            finally:
                process.kill()
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await process.wait()

    async def stop_sending(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"stop\n")
        await self._await("stopped", _STOP_SECONDS)

    async def _await(self, event: str, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._told[event].wait()
        if self._failure or not self._told[event].is_set():
            raise DrillError(f"the Java clients did not get {event} within {seconds:g} s: {self._failure or 'no word'}")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        async for data in self._process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.take(line)
        self._failure = self._failure or "the program ended"
        for event in self._told.values():
            event.set()

    def take(self, line: bytes) -> None:
        """Record one line of the program."""
        if not line.startswith(b"{"):
            return  # the Java client's own chatter
        told = json.loads(line)
        event = told["event"]
        if event == "sent":
            queue = (TOPIC, str(told["broker"]), int(told["queue"])) if told["ok"] else None
            self.history.sent(told["key"], told["sender"], queue, acknowledged=told["ok"])
        elif event == "delivered":
            queue = (TOPIC, str(told["broker"]), int(told["queue"]))
            self.history.delivered(told["key"], told["group"], queue, int(told["offset"]))
        elif event in self._told:
            self._told[event].set()
        else:
            self._failure = str(told.get("why", event))
            for waiting in self._told.values():
                waiting.set()


CLIENTS: dict[str, Callable[[str], AbstractAsyncContextManager[Traffic]]] = {
    "ours": OurTraffic.open,
    "java": JavaTraffic.open,
}
"""Whose clients make the traffic; each is given the name servers."""
