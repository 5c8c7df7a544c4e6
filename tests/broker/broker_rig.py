"""A whole broker without a network: real tables, real store in a temporary folder, requests handed to its handlers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.format.record import Record, decode_records
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FrameReader, encode
from understudy.runtime.clock import Clock, SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

PORT = 20100
SMALL = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}

#: What an error says that a handler did not mean.
UNEXPECTED = re.compile(
    r"\A(struct\.)?(Type|Key|Value|Attribute|Index|Overflow|Assertion|Recursion|Lookup|Runtime|UnicodeEncode|"
    r"UnicodeDecode|Memory|ZeroDivision|Json)?(Error|error): "
)


class SilentListener:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.refused = 0

    async def accept(self) -> Any:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class NoNetwork:
    """Every port is free, nobody ever connects, nobody can be reached."""

    async def listen(self, host: str, port: int) -> SilentListener:
        await trio.lowlevel.checkpoint()
        return SilentListener((host, port or 40_000))

    async def connect(self, host: str, port: int, timeout_seconds: float) -> Any:
        raise ConnectionRefusedError(f"{host}:{port}")


class Peer:
    """A connection whose other side is the test: what the broker writes is decoded and kept."""

    def __init__(self, nursery: trio.Nursery, port: int = 46322, host: str = "127.0.0.1") -> None:
        self.peer = (host, port)
        self.source = host
        self.local = ("127.0.0.1", PORT)
        self.address = f"{host}:{port}"
        self.state: dict[str, object] = {}
        self.alive = True
        self.choked = self.receiving = False
        self.holds = 0
        self.received: list[Command] = []
        self.replies: dict[int, Command] = {}
        self.arrival = Signal()
        self.invoked: list[Command] = []
        self.invoke_answer: Callable[[Command], Command] | None = None
        self._nursery = nursery
        self._reader = FrameReader()

    def write(self, frame: Any) -> None:
        parts: Sequence[Any] = (frame,) if isinstance(frame, (bytes, bytearray, memoryview)) else frame
        for command in self._reader.feed(b"".join(bytes(part) for part in parts)):
            if command.is_response:
                self.replies[command.opaque or 0] = command
            else:
                self.received.append(command)
        self.arrival.set()

    def notify(self, command: Command) -> None:
        command.flag |= 2
        self.write(encode(command))

    def respond(self, to: Command, answer: Command) -> None:
        if not to.flag & 2:
            self.write(encode(answer))

    async def invoke(self, command: Command, timeout_ms: float) -> Command:
        self.invoked.append(command)
        assert self.invoke_answer is not None
        return self.invoke_answer(command)

    def start_soon(self, run: Any, *args: object) -> bool:
        self._nursery.start_soon(run, *args)
        return True

    def close(self, reason: str) -> None:
        self.alive = False


class FakeConnection:
    """Keeps what is written to it, as it was written."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.alive = True
        self.choked = False
        self.drained: list[Callable[[], None]] = []
        self.address = "10.0.0.1:4000"

    def when_drained(self, callback: Callable[[], None]) -> None:
        self.drained.append(callback)

    def write(self, frames: Any) -> None:
        self.written.append(frames)


class Rig:
    """A running broker and its first client."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.broker = broker
        self.nursery = nursery
        self.peer = Peer(nursery)

    def tell(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> Command:
        """Hand a request to the broker, alone in its receive unless *more_follow*; return it."""
        peer, more_follow = more.pop("peer", self.peer), more.pop("more_follow", False)
        command = request(code, ext, body)
        for name, value in more.items():
            setattr(command, name, value)
        (decoded,) = FrameReader().feed(encode(command))
        peer.holds += not peer.receiving
        peer.receiving = True
        self.broker.server.dispatch(cast(Connection, peer), decoded)
        if not more_follow:
            self.end_receive(peer)
        return command

    def end_receive(self, peer: Peer | None = None) -> None:
        """End the receive of *peer*, as a connection does."""
        assert self.broker.server.handed_on is not None
        self.broker.server.handed_on()
        (peer or self.peer).receiving = False
        self.broker.send.end_receive()

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> Command:
        """Hand a request to the broker; return the answer it gave at once."""
        peer = more.get("peer", self.peer)
        command = self.tell(code, ext, body, **more)
        return peer.replies.pop(command.opaque or 0)

    async def ask_all(self, requests: Sequence[tuple[int, dict[str, str] | None, bytes]]) -> list[Command]:
        """Hand over requests no client would send, all at once; return the answers, none of them an accident."""
        asked, answers = [], []
        for code, ext, body in requests:
            for name in ("suspendTimeoutMillis", "pollTime"):
                if ext is not None and name in ext:
                    ext[name] = "1"  # a held pull is as good as an answered one, and takes longer
            asked.append((code, ext, body, self.tell(code, ext, body)))
        for code, ext, body, command in asked:
            answer = await self.wait(command)
            context = f"{code} {ext} {body!r}: {answer.code} {answer.remark}"
            assert answer.code != 1 or answer.remark, context
            assert not UNEXPECTED.match(answer.remark or ""), context
            answers.append(answer)
        return answers

    def serves_another(self) -> None:
        """Let another client send, and find what it sent."""
        self.peer = Peer(self.nursery, 50001)
        sent = self.send("Afterwards", b"still alive")
        assert (sent.code, self.stored("Afterwards")[0].body) == (0, b"still alive")

    async def wait(self, command: Command, peer: Peer | None = None) -> Command:
        """Wait for the answer to a request."""
        peer = peer or self.peer
        with trio.fail_after(30):
            while command.opaque not in peer.replies:
                await peer.arrival.wait()
        return peer.replies.pop(command.opaque or 0)

    def send(self, topic: str, body: bytes = b"x", properties: str = "", queue_id: int = 0, **more: Any) -> Command:
        """Send one message; return the answer."""
        return self.ask(310, send_header(topic, properties, queue_id, **more.pop("header", {})), body, **more)

    def pull(self, topic: str, queue_id: int = 0, offset: int = 0, group: str = "cg", **header: str) -> Command:
        """Pull once, without waiting; return the answer."""
        return self.ask(11, pull_header(topic, queue_id, offset, group, **header))

    def stored(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Return every message of a queue."""
        records: list[Record] = []
        while True:
            found = self.broker.store.get(topic, queue_id, len(records), 32, 1 << 20)
            if not found.count:
                return records
            records += [record for part in found.parts for record in decode_records(part)]


def send_header(topic: str, properties: str = "", queue_id: int = 0, **more: str) -> dict[str, str]:
    return {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1795245197902",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
        **more,
    }


def properties(**pairs: str) -> str:
    """Return properties as clients write them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def code_and_remark(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


def pull_header(topic: str, queue_id: int = 0, offset: int = 0, group: str = "cg", **more: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
        **more,
    }


async def pulled(client: RemotingClient, address: str, topic: str) -> list[Record]:
    """Return every message of a topic's first queue, in order, repeated ones included."""
    found: list[Record] = []
    offset = 0
    while True:
        header = pull_header(topic, offset=offset, suspendTimeoutMillis="0")
        answer = await client.invoke(address, request(11, header), 3_000)
        if answer.code != 0:
            return found
        found += decode_records(answer.body)
        offset = int((answer.ext or {})["nextBeginOffset"])


def options(folder: str, keys: dict[str, str] | None = None) -> BrokerOptions:
    properties = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(PORT),
        "storePathRootDir": folder,
        **SMALL,
        **(keys or {}),
    }
    return BrokerOptions.from_properties(properties, machine=Machine("vm", "127.0.0.1", folder))[0]


@asynccontextmanager
async def open_rig(
    folder: str, keys: dict[str, str] | None = None, *, clock: Clock | None = None, world: World | None = None
) -> AsyncIterator[Rig]:
    """Run a broker on *folder* until the block ends, then stop it cleanly."""
    world = world or World(clock or SystemClock(), cast(Any, NoNetwork()), RealDisk(), Random(7))
    async with trio.open_nursery() as nursery:
        broker = await nursery.start(host_broker, world, options(folder, keys))
        try:
            yield Rig(broker, nursery)
        finally:
            nursery.cancel_scope.cancel()
