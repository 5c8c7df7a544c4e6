"""One production member among scripted ones, which speak the members' protocol over the simulated network."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from understudy.controller.raft.facts import Facts
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    FrameReader,
    Hello,
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    Vote,
    VoteRequest,
    Welcome,
    decode_answer,
    decode_hello,
    decode_peer_message,
    encode_frame,
)
from understudy.controller.raft.settings import QuorumSettings
from understudy.runtime.network import ByteStream
from understudy.runtime.signal import Signal
from understudy.testkit.quorum.simulation import RAFT_PORT, QuorumHost, QuorumResult, SimQuorum
from understudy.testkit.waiting import until

ELECTION_MIN, ELECTION_MAX, HEARTBEAT = 0.4, 0.8, 0.1
SLACK = 0.1
"""Seconds that links and turns may add."""

Answerer = Callable[[PeerMessage], PeerMessage | None]
Message = TypeVar("Message")


class Inbox:
    """Messages in the order of their arrival."""

    def __init__(self) -> None:
        self.all: list[tuple[float, PeerMessage]] = []
        self._arrived = Signal()

    def add(self, message: PeerMessage) -> None:
        self.all.append((trio.current_time(), message))
        self._arrived.set()

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.all if isinstance(message, kind)]

    async def next(self, kind: type[Message], after: int = 0) -> Message:
        """Wait for the message of a kind behind the first *after* ones of it."""
        with trio.fail_after(10):
            while len(self.of(kind)) <= after:
                await self._arrived.wait()
        return self.of(kind)[after]


class ScriptedMember:
    """A member that does what the test says; *answer* answers by itself, if given."""

    def __init__(self, quorum: SimQuorum, name: str) -> None:
        self.name = name
        self.inbox = Inbox()
        self.answer: Answerer | None = None
        self._host = quorum.network.host(name)
        self._out: ByteStream | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listener = await self._host.listen(self.name, RAFT_PORT)
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                nursery.start_soon(self._hear, await listener.accept())

    async def dial(self, target: str) -> None:
        self._out = await self._host.connect(target, RAFT_PORT, 1)
        await self._out.send_all(encode_frame(Hello("sim", self.name, target, f"disk of {self.name}", 1, 1)))
        assert isinstance(decode_answer(await next_body(self._out, FrameReader(1 << 20)) or b""), Welcome)

    async def send(self, message: PeerMessage) -> None:
        assert self._out is not None
        await self._out.send_all(encode_frame(message))

    async def _hear(self, stream: ByteStream) -> None:
        reader = FrameReader(1 << 20)
        decode_hello(await next_body(stream, reader) or b"")
        await stream.send_all(encode_frame(Welcome(f"disk of {self.name}", 1, True)))
        while (body := await next_body(stream, reader)) is not None:
            message = decode_peer_message(body)
            self.inbox.add(message)
            answer = None if self.answer is None else self.answer(message)
            if answer is not None:
                await self.send(answer)


async def next_body(stream: ByteStream, reader: FrameReader) -> bytes | None:
    """Return the next frame's body, or nothing at the end of the stream."""
    while (body := reader.next_body()) is None:
        data = await stream.receive_some(65_536)
        if not data:
            return None
        reader.feed(data)
    return body


class TrustingQuorum(SimQuorum):
    """A quorum whose members ask nobody for a secret."""

    def settings(self, name: str) -> QuorumSettings:
        return attrs.evolve(super().settings(name), secret_file="", open_to_all=True)


class Stage:
    """Member n0 of three, under test, and the scripted n1 and n2."""

    def __init__(self, host: QuorumHost, first: ScriptedMember, second: ScriptedMember) -> None:
        self.host = host
        self.first = first
        self.second = second

    def facts(self) -> Facts:
        assert self.host.member is not None
        return self.host.member.facts()

    def script(self, answer: Answerer) -> None:
        self.first.answer = self.second.answer = answer

    async def follow_first(self, term: int, seconds: float) -> None:
        """Let n1 lead: heartbeats for some seconds."""
        for sequence in range(1, round(seconds / HEARTBEAT) + 1):
            await self.first.send(heartbeat(term, sequence))
            await trio.sleep(HEARTBEAT)


def heartbeat(term: int, sequence: int) -> Append:
    return Append(term, 0, 1, 0, [], sequence, 1, True)


def obliging(message: PeerMessage) -> PeerMessage | None:
    """Votes for whoever asks, and follows."""
    if isinstance(message, VoteRequest):
        return Vote(message.term)
    if isinstance(message, Append):
        end = message.entries[-1][1] if message.entries else message.previous_index
        return Acknowledgement(message.term, end + 1, False, True, message.sequence, True)
    return promising(message)


def promising(message: PeerMessage) -> PeerMessage | None:
    """Would vote, but is never heard of again when asked to."""
    if isinstance(message, PreVoteRequest):
        return PreVoteAnswer(message.term, message.term - 1, True, "ACCEPT")
    return None


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        quorum = TrustingQuorum(random.Random(3), nursery, 3, QuorumResult(0))
        quorum.expects_stops = True
        host = quorum.hosts["n0"]
        members = [ScriptedMember(quorum, name) for name in ("n1", "n2")]
        host.start()
        for member in members:
            await nursery.start(member.run)
        played = Stage(host, *members)
        await until(lambda: host.member is not None and len(played.facts().connected) == 2 and played.facts().voter)
        for member in members:
            await member.dial("n0")
        yield played
        nursery.cancel_scope.cancel()
