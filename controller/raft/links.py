"""Connections between members: each member dials every other and sends on the connection it dialled.

A connection begins with a greeting that names quorum, both members and the dialler's disk; the accepting side answers
whether it will listen (:mod:`~understudy.controller.raft.trust` says whom it believes). One bad connection never ends
another one, nor the member.
"""

from __future__ import annotations

import contextlib
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from understudy.controller.raft.messages import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    PROTOCOL_VERSION,
    Challenge,
    FrameError,
    FrameReader,
    Hello,
    PeerMessage,
    Refusal,
    Welcome,
    decode_answer,
    decode_hello,
    decode_peer_message,
    decode_proof,
    encode_frame,
)
from understudy.controller.raft.security import MemberSecurity, SecurityError
from understudy.controller.raft.trust import Trust
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream, accept_loop
from understudy.runtime.signal import Signal
from understudy.runtime.tls import TlsStream
from understudy.runtime.world import World

log = get_logger("controller.raft.links")

MAX_QUEUED_BYTES = 64 << 20
MAX_SENT_AT_ONCE_BYTES = 1 << 20
"""A peer that takes less than this within ``SEND_SECONDS`` is given up; a snapshot is many times as long."""
GREETING_SECONDS = 2.0
CONNECT_SECONDS = 1.0
SEND_SECONDS = 4.0
MAX_CONNECTIONS = 64

_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ssl.SSLError)


class LinkOwner(Protocol):
    """The member behind the links."""

    def greeting_for(self, peer: str, nonce: bytes) -> Hello:
        """Return the greeting to send to *peer*."""
        ...

    async def admit(self, hello: Hello) -> Welcome | Refusal:
        """Judge a greeting whose quorum and names are right; a :class:`Welcome` is durable."""
        ...

    async def welcomed(self, peer: str, welcome: Welcome) -> str:
        """Judge the answer of *peer*; returns what is wrong with it, or an empty string."""
        ...

    def refused(self, peer: str, refusal: Refusal) -> None:
        """Hear that *peer* will not talk."""
        ...

    def link(self, peer: str, up: bool) -> None:
        """Hear that messages to *peer* can be sent, or no longer."""
        ...

    def deliver(self, peer: str, message: PeerMessage) -> None:
        """Take a message of *peer*."""
        ...


class _Stream(Protocol):
    """The part of a connection that links use: plain or under TLS."""

    @property
    def local(self) -> tuple[str, int]: ...
    @property
    def peer(self) -> tuple[str, int]: ...
    async def receive_some(self, max_bytes: int) -> bytes: ...
    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int: ...
    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...
    async def aclose(self) -> None: ...


@attrs.define(eq=False)
class _Outgoing:
    stream: _Stream
    frames: deque[memoryview] = attrs.field(factory=deque)
    queued_bytes: int = 0
    more: Signal = attrs.field(factory=Signal)


@attrs.define
class LinkCounters:
    """What crossed the links since the start."""

    sent_bytes: int = 0
    rejected_connections: int = 0


class Links:
    """All connections of one member.

    Args:
        world: network, clock and randomness.
        owner: the member.
        cluster: name of the quorum.
        member: own id.
        addresses: host and port of every member, own included.
        listen_host: where to listen.
        security: mutual TLS, or ``None`` for plain TCP.
        trust: judges greetings.
    """

    def __init__(
        self,
        world: World,
        owner: LinkOwner,
        cluster: str,
        member: str,
        addresses: dict[str, tuple[str, int]],
        listen_host: str,
        security: MemberSecurity | None,
        trust: Trust,
    ) -> None:
        self._world = world
        self._owner = owner
        self._cluster = cluster
        self._member = member
        self._addresses = addresses
        self._listen_host = listen_host
        self._security = security
        self._trust = trust
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: dict[str, trio.CancelScope] = {}
        self._said: dict[str, str] = {}
        self._connections = 0
        self.counters = LinkCounters()

    def send(self, peer: str, message: PeerMessage) -> None:
        """Queue *message*; a full queue or a broken link drops it, which the protocol expects."""
        outgoing = self._outgoing.get(peer)
        if outgoing is None or outgoing.queued_bytes > MAX_QUEUED_BYTES:
            return
        frame = encode_frame(message)
        sent = 0
        if not outgoing.queued_bytes:
            # nothing waits and nothing is under way: the task that sends is not needed
            sent = outgoing.stream.send_nowait([frame])
            self.counters.sent_bytes += sent
        if sent < len(frame):
            outgoing.frames.append(memoryview(frame)[sent:])
            outgoing.queued_bytes += len(frame) - sent
            outgoing.more.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and dial until cancelled. Raises ``ListenError`` when the port cannot be had."""
        port = self._addresses[self._member][1]
        listener = await self._world.network.listen(self._listen_host, port)
        try:
            async with trio.open_nursery() as nursery:
                for peer in self._addresses:
                    if peer != self._member:
                        nursery.start_soon(self._dial_for_ever, peer)
                task_status.started()
                await accept_loop(listener, self._serve, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    # -- dialling ------------------------------------------------------------------------------------------------

    async def _dial_for_ever(self, peer: str) -> None:
        pause = 0.02
        while True:
            try:
                if await self._dial(peer):
                    pause = 0.02
            except* _BROKEN:
                pass
            except* (SecurityError, FrameError) as errors:
                self._say(peer, str(errors.exceptions[0]))
            await self._world.clock.sleep(pause * (0.5 + self._world.random.random()))
            pause = min(2 * pause, 0.5)

    async def _dial(self, peer: str) -> bool:
        """Connect, greet and send until the connection ends; returns whether the peer listened."""
        host, port = self._addresses[peer]
        plain = await self._world.network.connect(host, port, CONNECT_SECONDS)
        stream: _Stream = plain
        try:
            with trio.fail_after(GREETING_SECONDS):
                if self._security is not None:
                    stream = await self._security.dial(plain, peer)
                answer = await self._greet(stream, self._owner.greeting_for(peer, self._trust.nonce()))
            if isinstance(answer, Refusal):
                self._say(peer, answer.reason)
                self._owner.refused(peer, answer)
                await self._world.clock.sleep(0.5)
                return False
            wrong = await self._owner.welcomed(peer, answer)
            if wrong:
                self._say(peer, wrong)
                await self._world.clock.sleep(0.5)
                return False
            self._said.pop(peer, None)
            await self._send_until_broken(peer, stream)
            return True
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async def _greet(self, stream: _Stream, hello: Hello) -> Welcome | Refusal:
        """Say *hello*, and prove the secret to who knows it, too; returns the answer."""
        await stream.send_all(encode_frame(hello))
        answer = decode_answer(await _one_body(stream, MAX_HELLO_BYTES))
        if not isinstance(answer, Challenge):
            self._trust.check_unasked(hello, answer)
            return answer
        await stream.send_all(encode_frame(self._trust.prove(hello, answer)))
        answer = decode_answer(await _one_body(stream, MAX_HELLO_BYTES))
        if isinstance(answer, Challenge):
            raise FrameError(f"member {hello.target} asks twice for the secret")
        return answer

    async def _send_until_broken(self, peer: str, stream: _Stream) -> None:
        outgoing = self._outgoing[peer] = _Outgoing(stream)
        self._owner.link(peer, True)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_closed, stream, nursery.cancel_scope)
                while True:
                    if not outgoing.frames:
                        await outgoing.more.wait()
                    data = _take(outgoing.frames, MAX_SENT_AT_ONCE_BYTES)
                    with trio.fail_after(SEND_SECONDS):
                        await stream.send_all(data)
                    outgoing.queued_bytes -= len(data)
                    self.counters.sent_bytes += len(data)
        finally:
            del self._outgoing[peer]
            self._owner.link(peer, False)

    # -- accepting -----------------------------------------------------------------------------------------------

    async def _serve(self, stream: ByteStream) -> None:
        where = f"{stream.peer[0]}:{stream.peer[1]}"
        if self._connections >= MAX_CONNECTIONS:
            self._reject(where, f"more than {MAX_CONNECTIONS} connections")
            await _close(stream)
            return
        self._connections += 1
        try:
            await self._listen_to(stream)
        except _BROKEN:
            pass
        except (SecurityError, FrameError) as error:
            self._reject(where, str(error))
        finally:
            self._connections -= 1
            await _close(stream)

    async def _listen_to(self, plain: ByteStream) -> None:
        stream: _Stream = plain
        with trio.fail_after(GREETING_SECONDS):
            if self._security is not None:
                stream = await self._security.accept(plain)
            body = await _one_body(stream, MAX_HELLO_BYTES)
            hello = decode_hello(body)
            names = stream.names() if isinstance(stream, TlsStream) else None
            refusal = await self._doubt(stream, hello, body) or self._judge(hello, names)
            answer = refusal or await self._owner.admit(hello)
            await stream.send_all(encode_frame(answer))
        if isinstance(answer, Refusal):
            self._reject(f"{hello.source} at {stream.peer[0]}", answer.reason)
            return
        peer = hello.source
        with trio.CancelScope() as scope:
            former = self._incoming.get(peer)
            if former is not None:
                former.cancel()  # one connection per member counts: the newest
            self._incoming[peer] = scope
            try:
                await self._deliver_all(peer, stream)
            finally:
                if self._incoming.get(peer) is scope:
                    del self._incoming[peer]

    async def _doubt(self, stream: _Stream, hello: Hello, body: bytes) -> Refusal | None:
        """Have the dialler prove that it may greet; returns why it is not believed."""
        challenge = self._trust.judge(hello, body, stream.local[0], stream.peer[0])
        if not isinstance(challenge, Challenge):
            return challenge
        await stream.send_all(encode_frame(challenge))
        proof = decode_proof(await _one_body(stream, MAX_HELLO_BYTES))
        return self._trust.judge_proof(hello, body, challenge, proof)

    async def _deliver_all(self, peer: str, stream: _Stream) -> None:
        reader = FrameReader(MAX_FRAME_BYTES)
        while True:
            data = await stream.receive_some(65_536)
            if not data:
                return
            reader.feed(data)
            while (body := reader.next_body()) is not None:
                self._owner.deliver(peer, decode_peer_message(body))

    def drop(self, peer: str) -> None:
        """End what *peer* dialled, so that it must greet again."""
        scope = self._incoming.get(peer)
        if scope is not None:
            scope.cancel()

    def _judge(self, hello: Hello, names: frozenset[str] | None) -> Refusal | None:
        if hello.protocol != PROTOCOL_VERSION:
            return Refusal(f"protocol {hello.protocol} is not spoken here, {PROTOCOL_VERSION} is", False)
        if hello.cluster != self._cluster:
            return Refusal(f"this is group {self._cluster}, not {hello.cluster}: check controllerDLegerGroup", False)
        if hello.target != self._member:
            return Refusal(f"this is member {self._member}, not {hello.target}: check controllerDLegerPeers", False)
        if hello.source not in self._addresses or hello.source == self._member:
            members = ", ".join(sorted(self._addresses))
            return Refusal(f"{hello.source} is no other member here; members are {members}", False)
        if names is not None and hello.source not in names:
            return Refusal(f"the certificate names {', '.join(sorted(names)) or 'nobody'}, not {hello.source}", False)
        return None

    def _reject(self, who: str, reason: str) -> None:
        self.counters.rejected_connections += 1
        if self._said.get(who) != reason:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[who] = reason
            self._world.tell(log.warning, "connection refused", member=self._member, peer=who, reason=reason)

    def _say(self, peer: str, reason: str) -> None:
        if self._said.get(peer) != reason:
            self._said[peer] = reason
            log.warning("no link", member=self._member, peer=peer, reason=reason)


def _take(frames: deque[memoryview], limit_bytes: int) -> bytes:
    """Take frames from the left, at least one, until they are *limit_bytes* long."""
    taken = [frames.popleft()]
    length = len(taken[0])
    while frames and length < limit_bytes:
        length += len(frames[0])
        taken.append(frames.popleft())
    return b"".join(taken)


async def _one_body(stream: _Stream, limit_bytes: int) -> bytes:
    """Read one frame and nothing after it: whatever follows belongs to the next reader."""
    head = await _exactly(stream, 4)
    length = int.from_bytes(head, "big")
    if not 0 < length <= limit_bytes:
        raise FrameError(f"frame of {length} bytes; allowed are 1 to {limit_bytes}")
    return await _exactly(stream, length)


async def _exactly(stream: _Stream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = await stream.receive_some(count - len(data))
        if not part:
            raise trio.BrokenResourceError("the peer closed the connection in the middle of a frame")
        data += part
    return bytes(data)


async def _until_closed(stream: _Stream, scope: trio.CancelScope) -> None:
    """Nothing comes back on a dialled connection: whatever does arrive means that it is over."""
    with contextlib.suppress(*_BROKEN):
        await stream.receive_some(1)
    scope.cancel()


async def _close(stream: _Stream) -> None:
    with trio.CancelScope(shield=True):
        await stream.aclose()
