"""A simulated quorum for tests: started, led, and without violations at its end."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import attrs
import msgspec
import trio

from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.messages import (
    Challenge,
    FrameReader,
    Hello,
    Refusal,
    Welcome,
    decode_answer,
    encode_frame,
)
from understudy.controller.raft.secret import Secret
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.raft.trust import Trust
from understudy.runtime.network import ByteStream
from understudy.testkit.quorum.simulation import SECRET, CounterMachine, QuorumHost, QuorumResult, SimQuorum


class Quorum(SimQuorum):
    """A simulated quorum whose settings a test may change.

    Attributes:
        features: version by member, 1 where nothing is said.
        listed: whom a member that is started finds in its list; everybody when empty.
    """

    features: dict[str, int]
    listed: Collection[str]

    def settings(self, name: str) -> QuorumSettings:
        base = super().settings(name)
        addresses = {each: base.addresses[each] for each in self.listed or base.addresses}
        return attrs.evolve(base, features=self.features.get(name, 1), addresses=addresses)


@asynccontextmanager
async def quorum_of(size: int = 3, *, start: bool = True) -> AsyncIterator[Quorum]:
    outcome = QuorumResult(0)
    async with trio.open_nursery() as nursery:
        quorum = Quorum(random.Random(size), nursery, size, outcome)
        quorum.features, quorum.listed = {}, ()
        quorum.expects_stops = True
        if start:
            for host in quorum.hosts.values():
                host.start()
            assert await quorum.wait_leader(10) is not None
        yield quorum
        assert outcome.violations == []
        nursery.cancel_scope.cancel()


async def leader_of(quorum: Quorum) -> QuorumHost:
    leader = await quorum.wait_leader(10)
    assert leader is not None
    return leader


def running(host: QuorumHost) -> QuorumMember:
    assert host.member is not None
    return host.member


async def greet(stream: ByteStream, hello: Hello, trust: Trust) -> Welcome | Refusal | Challenge:
    """Greet as a member with *trust* does; returns the last answer."""
    hello = msgspec.structs.replace(hello, nonce=trust.nonce())
    await stream.send_all(encode_frame(hello))
    answer = decode_answer(await next_body(stream))
    if not isinstance(answer, Challenge):
        return answer
    await stream.send_all(encode_frame(trust.prove(hello, answer)))
    return decode_answer(await next_body(stream))


async def next_body(stream: ByteStream) -> bytes:
    reader = FrameReader(1 << 20)
    while (body := reader.next_body()) is None:
        data = await stream.receive_some(65_536)
        assert data
        reader.feed(data)
    return body


def knowing(secret: Secret | None = SECRET) -> Trust:
    """Return the trust of a member that knows *secret*."""
    return Trust(secret, certified=False, open_to_all=False, source=random.Random(5))


def counters(host: QuorumHost) -> dict[str, int]:
    assert isinstance(host.machine, CounterMachine)
    return host.machine.counters
