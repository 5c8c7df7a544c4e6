"""Traffic across a failover of real processes, by our clients or by the Java ones; both write the same history."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Self

import trio

from understudy.format.record import decode_offset_message_id
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, SendStatus, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.sending import ProducerOptions, SendResult
from understudy.mqclient.transactions import TransactionProducer, TransactionState, open_transaction_producer
from understudy.runtime.world import World, real_world
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.held_handles import Fault
from understudy.testkit.drills.led_judge import Acknowledgement, Reading
from understudy.testkit.drills.met_faults import Met
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.drills.timed_history import DELAYED_SENDER, TimedHistory
from understudy.testkit.history import Verdict
from understudy.testkit.java_tools import LAUNCHER

TOPIC = "orders"
CONCURRENT, ORDERLY = "concurrent-readers", "orderly-readers"
SENDERS = 3
SEND_PAUSE_SECONDS, HALF_PAUSE_SECONDS = 0.02, 0.1
HALF_SENDER = "half"
DELAY_LEVEL = 2
# A client that sends again after a lost answer may store a message twice: what is repeated then is its own doing.
ONE_ATTEMPT = ProducerOptions(attempts=1)
JAVA_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
UNTROUBLED_SECONDS = 6.0
"""How long clients must have worked before the first fault, for it to be seen what they get without one."""


class Traffic(ABC):
    """Three senders that wait for each answer, one of delayed messages, a concurrent group and an orderly one.

    With transactions there is another sender: of each four half messages one is committed, one rolled back, and about
    two the broker has to ask, of which one is committed. The history knows those that are committed.

    Attributes:
        history: what they saw.
        rolled_back: keys of half messages that were; whoever gets one gets what was never sent.
        acknowledgements: who acknowledged each message, where the clients tell.
        readings: who had stored what was delivered, likewise.
        came: when each delivery of the history did (monotonic seconds).
        faults: from when to when something was wrong.
    """

    groups: ClassVar[tuple[str, ...]] = (CONCURRENT, ORDERLY)
    drain_seconds: ClassVar[float] = 90.0
    delay_seconds: ClassVar[float] = 5.0
    """How long what :data:`DELAY_LEVEL` delays waits."""

    def __init__(self) -> None:
        self.history = TimedHistory(self.delay_seconds)
        self.acknowledgements: dict[str, Acknowledgement] = {}
        self.readings: list[Reading] = []
        self.came: list[float] = []
        self.faults: list[Fault] = []
        self.rolled_back: set[str] = set()

    @contextmanager
    def troubled(self) -> Iterator[None]:
        """Something is wrong as long as the block runs."""
        begin = trio.current_time()
        try:
            yield
        finally:
            self.faults.append(Fault(begin, trio.current_time()))

    def delivered(self, key: str, group: str, queue: tuple[str, str, int], offset: int) -> None:
        """Record a delivery that comes now.

        Args:
            key: of the message.
            group: consumer group that got it.
            queue: topic, broker name and queue id that it came from.
            offset: its queue offset.
        """
        self.history.delivered(key, group, queue, offset)
        self.came.append(trio.current_time())

    @abstractmethod
    async def stop_sending(self) -> None:
        """Let the senders finish what they are at."""

    async def drain(self) -> None:
        """Wait until all groups have what was acknowledged, but not for ever."""
        with trio.move_on_after(self.drain_seconds):
            while self._wanting():  # noqa: ASYNC110 - what arrives comes from other processes
                await trio.sleep(0.2)

    def _wanting(self) -> bool:
        wanted = {sent.key for sent in self.history.sends if sent.acknowledged}
        for group in self.groups:
            if wanted - {each.key for each in self.history.deliveries if each.group == group}:
                return True
        return False

    def _decided(self, key: str, *, committed: bool) -> None:
        """Record what became of a half message; where it is stored is not told."""
        if committed:
            self.history.sent(key, key, None, acknowledged=True)
        else:
            self.rolled_back.add(key)

    def verdict(self) -> Verdict:
        """Judge what was seen; only the orderly group promises an order."""
        return self.history.check(list(self.groups), ordered=(ORDERLY,), may_move=True)

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """See :meth:`understudy.testkit.drills.timed_history.TimedHistory.repeats`."""
        return self.history.repeats(met_by, hosts)

    def told(self) -> list[str]:
        """Return what else was seen, a line for each."""
        committed = sum(sent.key.startswith(HALF_SENDER) for sent in self.history.sends)
        if not committed and not self.rolled_back:
            return []
        return [f"transactions: {committed} committed, {len(self.rolled_back)} rolled back"]

    def lines(self) -> Iterator[str]:
        """Return the whole history, a line for each send and each delivery."""
        for sent in self.history.sends:
            yield f"sent {sent.key} {sent.queue} {sent.acknowledged} {self.acknowledgements.get(sent.key)}\n"
        for each, at in zip(self.history.deliveries, self.came, strict=True):
            yield f"delivered {each.key} {each.group} {each.queue} {each.offset} at {at:.3f}\n"


class OurTraffic(Traffic):
    """By this project's own clients, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._sending = True
        self._senders = 0
        self._idle = trio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, name_servers: str, *, transactions: bool = False) -> AsyncIterator[OurTraffic]:
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
            nursery.start_soon(traffic._send, producer, DELAYED_SENDER, DELAY_LEVEL)
            if transactions:
                await nursery.start(traffic._send_halves, world, name_servers)
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
                if sent.status is SendStatus.OK:
                    _, port, position = decode_offset_message_id(sent.offset_message_id)
                    now = trio.current_time()
                    self.acknowledgements[key] = Acknowledgement(port, position, now, sent.queue_offset)
            await trio.sleep(SEND_PAUSE_SECONDS)
        self._sender_ends()

    def _sender_ends(self) -> None:
        self._senders -= 1
        if not self._senders:
            self._idle.set()

    async def _send_halves(
        self, world: World, name_servers: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        books: dict[str, TransactionState] = {}

        async def check(half: ReceivedMessage) -> TransactionState:
            # Nobody was told that an unknown one is stored: it is not sent.
            return books.setdefault(half.body.decode(), TransactionState.ROLLBACK)

        async with open_transaction_producer(world, name_servers, "half-writers", check, ONE_ATTEMPT) as producer:
            self._senders += 1
            task_status.started()
            number = 0
            while self._sending:
                await self._send_half(producer, number, books)
                number += 1
                await trio.sleep(HALF_PAUSE_SECONDS)
            self._sender_ends()
            await trio.sleep_forever()  # brokers ask until the end

    async def _send_half(self, producer: TransactionProducer, number: int, books: dict[str, TransactionState]) -> None:
        key = f"{HALF_SENDER}-{number}"
        wanted = TransactionState.ROLLBACK if number % 4 in (1, 2) else TransactionState.COMMIT

        async def execute(message: Message, sent: SendResult) -> TransactionState:
            state = books.setdefault(key, wanted)
            return state if number % 4 < 2 else TransactionState.UNKNOWN

        with suppress(ClientError):
            await producer.send(Message(TOPIC, key.encode(), {}), execute)
        self._decided(key, committed=books.setdefault(key, TransactionState.ROLLBACK) is TransactionState.COMMIT)

    async def _listen(self, group: str, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        queue = (context.queue.topic, context.queue.broker_name, context.queue.queue_id)
        for each in batch:
            key, port = each.body.decode(), int(each.store_host.rpartition(":")[2])
            self.delivered(key, group, queue, each.queue_offset)
            stored = Acknowledgement(port, each.commit_log_offset, trio.current_time(), each.queue_offset)
            self.readings.append(Reading(key, group, queue, each.queue_offset, stored))

    async def stop_sending(self) -> None:
        self._sending = False
        with trio.move_on_after(_STOP_SECONDS):
            await self._idle.wait()


class ProgramTraffic(Traffic):
    """By clients in a process of their own, which tells of each send and delivery in a line.

    Args:
        process: of the program, whose both ends are pipes.
    """

    def __init__(self, process: trio.Process) -> None:
        super().__init__()
        self._process = process
        self._told = {event: trio.Event() for event in ("consuming", "ready", "stopped")}
        self._failure = ""

    @classmethod
    @asynccontextmanager
    async def started(cls, command: Sequence[str]) -> AsyncIterator[Self]:
        """Run the program until the block ends; nothing was waited for yet."""
        async with trio.open_nursery() as nursery:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            traffic = cls(process)
            try:
                nursery.start_soon(traffic._read)
                yield traffic
            finally:
                process.kill()
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await process.wait()

    async def stop_sending(self) -> None:
        await self.say("stop")
        await self.told_of("stopped", _STOP_SECONDS)

    async def say(self, word: str) -> None:
        """Send *word* to the program."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{word}\n".encode())

    async def told_of(self, event: str, seconds: float) -> None:
        """Wait until the program tells of *event*. Raises :class:`DrillError` after *seconds*."""
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
        if event in self._told:
            self._told[event].set()
        elif not self._record(event, told):
            self._failure = str(told.get("why", event))
            for waiting in self._told.values():
                waiting.set()

    @abstractmethod
    def _record(self, event: str, told: dict[str, Any]) -> bool:
        """Record what the program saw; return whether it is known."""


class JavaTraffic(ProgramTraffic):
    """By the real Java client of the remoting protocol."""

    @classmethod
    @asynccontextmanager
    async def open(cls, name_servers: str, *, transactions: bool = False) -> AsyncIterator[JavaTraffic]:
        """Send and consume until the block ends. Raises :class:`DrillError` when the program does not start."""
        arguments = {
            "namesrv": name_servers,
            "topic": TOPIC,
            "senders": str(SENDERS),
            "delay-level": str(DELAY_LEVEL),
            "pause-ms": str(round(SEND_PAUSE_SECONDS * 1000)),
            "concurrent-group": CONCURRENT,
            "orderly-group": ORDERLY,
            "half-pause-ms": str(round(HALF_PAUSE_SECONDS * 1000) if transactions else 0),
        }
        async with cls.started([str(LAUNCHER), "traffic", *options(arguments)]) as traffic:
            await traffic.told_of("ready", JAVA_START_SECONDS)
            yield traffic

    def _record(self, event: str, told: dict[str, Any]) -> bool:
        if event == "rolled back" or (event == "sent" and told["key"].startswith(HALF_SENDER)):
            self._decided(told["key"], committed=event == "sent")
        elif event == "sent":
            queue = (TOPIC, str(told["broker"]), int(told["queue"])) if told["ok"] else None
            self.history.sent(told["key"], told["sender"], queue, acknowledged=told["ok"])
        elif event == "delivered":
            queue = (TOPIC, str(told["broker"]), int(told["queue"]))
            self.delivered(told["key"], told["group"], queue, int(told["offset"]))
        else:
            return False
        return True


def options(arguments: Mapping[str, str]) -> list[str]:
    """Return the options of a program of ours in Java."""
    return [part for name, text in arguments.items() for part in (f"--{name}", text)]
