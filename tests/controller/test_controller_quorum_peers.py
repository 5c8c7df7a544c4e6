"""A quorum and strangers: wrong greetings, junk, replayed messages."""

from __future__ import annotations

import pytest
import trio
from controller_quorum import counters, greet, knowing, leader_of, quorum_of, running
from trio.testing import MockClock

from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.messages import (
    Append,
    FrameError,
    Hello,
    Refusal,
    Vote,
    decode_peer_message,
    encode_frame,
)
from understudy.testkit.quorum.simulation import RAFT_PORT
from understudy.testkit.waiting import until


@pytest.mark.covers("R273", "R291")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster": "other"}, "this is group sim, not other"),
        ({"source": "n9"}, "n9 is no other member here; members are n0, n1, n2"),
        ({"source": "n0"}, "n0 is no other member here"),
        ({"target": "n2"}, "this is member n0, not n2"),
        ({"protocol": 9}, "protocol 9 is not spoken here"),
        ({"incarnation": "forged"}, "comes with another disk"),
        ({"members": "n0,n1,n2,n3,n4"}, "n1 is configured with the members n0,n1,n2,n3,n4, n0 with n0,n1,n2"),
    ],
)
async def test_strangers_are_refused_and_told_why(
    change: dict[str, object], why: str, autojump_clock: MockClock
) -> None:
    async with quorum_of() as quorum:
        term = running(quorum.hosts["n0"]).term()
        hello = Hello("sim", "n1", "n0", "whatever", 1, 1)
        fields = {name: getattr(hello, name) for name in hello.__struct_fields__} | change
        stream = await quorum.network.host("stranger").connect("n0", RAFT_PORT, 1)
        answer = await greet(stream, Hello(**fields), knowing())
        assert isinstance(answer, Refusal)
        assert why in answer.reason
        await stream.send_all(encode_frame(Append(10**6, 10**6, 1, 0, [], 1, 1, True)))
        await trio.sleep(2)
        assert running(quorum.hosts["n0"]).term() == term


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x95 pickle",
        b"\xff" * 64,
        (1 << 30).to_bytes(4, "big"),
        b"\0\0\0\0",
        b"\0\0\0\x05junk!",
        encode_frame(Vote(5)),
        encode_frame(Hello("sim", "n1", "n0", "x" * 200, 1, 1))[:20],
        b"",
    ],
)
async def test_junk_ends_its_connection_and_nothing_else(data: bytes, autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        stream = await quorum.network.host("stranger").connect(leader.name, RAFT_PORT, 1)
        await stream.send_all(data)
        with trio.fail_after(5):
            assert await stream.receive_some(100) == b""
        assert running(leader).leads()
        assert await running(leader).propose("client", 1, b"x") == b"1"


async def test_replayed_messages_of_an_old_connection_change_nothing(autojump_clock: MockClock) -> None:
    async with quorum_of() as quorum:
        leader = await leader_of(quorum)
        follower = next(host for host in quorum.hosts.values() if host is not leader)
        for number in range(30):
            await running(leader).propose("client", number + 1, b"x")
        await until(lambda: counters(follower).get("x") == 30)
        before = running(follower).facts()
        term = before.term
        for message in (
            Append(term, 2, 1, 0, [(b"\x01", 2, term)], 1, 2, False),
            Append(term - 1, 99, 1, 0, [], 1, 2, True),
            Vote(term),
        ):
            QuorumMember.deliver(running(follower), leader.name, message)  # nobody said it: no checker shall hear it
        await trio.sleep(1)
        after = running(follower).facts()
        assert (after.last_index, after.term, after.commit_index) == (
            before.last_index,
            term,
            before.commit_index,
        )


@pytest.mark.parametrize("data", [b"", b"\x93", b"\x91\xa6append", b"\x92\xa4vote\xc3", b"\xc1", b"\x92\xa4vote\xff"])
def test_undecodable_messages_are_frame_errors(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_peer_message(data)
