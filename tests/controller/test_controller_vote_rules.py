"""One production member among scripted ones: what it asks, what it answers, and when, message by message.

The scripted members speak the members' protocol over the simulated network, so that every row of the voting and
heartbeat tables can be played: also those that members of ours never cause.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from understudy.controller.raft.facts import Facts
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    FrameReader,
    Hello,
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    Refusal,
    TermNotice,
    Vote,
    VoteRefusal,
    VoteRequest,
    Welcome,
    decode_answer,
    decode_hello,
    decode_peer_message,
    encode_frame,
)
from understudy.runtime.network import ByteStream
from understudy.testkit.sim_quorum import RAFT_PORT, Outcome, QuorumHost, SimQuorum
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
        self._arrived = trio.Event()

    def add(self, message: PeerMessage) -> None:
        self.all.append((trio.current_time(), message))
        self._arrived.set()
        self._arrived = trio.Event()

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
        assert isinstance(decode_answer(await _body(self._out, FrameReader(1 << 20)) or b""), Welcome)

    async def send(self, message: PeerMessage) -> None:
        assert self._out is not None
        await self._out.send_all(encode_frame(message))

    async def _hear(self, stream: ByteStream) -> None:
        reader = FrameReader(1 << 20)
        decode_hello(await _body(stream, reader) or b"")
        await stream.send_all(encode_frame(Welcome(f"disk of {self.name}", 1, True)))
        while (body := await _body(stream, reader)) is not None:
            message = decode_peer_message(body)
            self.inbox.add(message)
            answer = None if self.answer is None else self.answer(message)
            if answer is not None:
                await self.send(answer)


async def _body(stream: ByteStream, reader: FrameReader) -> bytes | None:
    while (body := reader.next_body()) is None:
        data = await stream.receive_some(65_536)
        if not data:
            return None
        reader.feed(data)
    return body


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
        quorum = SimQuorum(random.Random(3), nursery, 3, Outcome(0))
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


class TestStanding:
    """When it stands for election, and what it asks."""

    @pytest.mark.covers("R269", "R294", "R295")
    async def test_it_stands_only_when_its_leader_was_silent_for_the_election_time(
        self, autojump_clock: MockClock
    ) -> None:
        async with stage() as played:
            await played.follow_first(term=1, seconds=5)
            facts = played.facts()
            assert (facts.role, facts.leader, facts.term) == ("FOLLOWER", "n1", 1)
            silent_since = trio.current_time() - HEARTBEAT
            # every question so far was asked before the leader was heard first
            asked_before = len(played.second.inbox.of(PreVoteRequest))
            assert asked_before <= 1

            await played.second.inbox.next(PreVoteRequest, after=asked_before)

            waited = trio.current_time() - silent_since
            assert ELECTION_MIN - SLACK <= waited <= ELECTION_MAX + SLACK

    @pytest.mark.covers("R270", "R271", "R272")
    async def test_each_candidacy_raises_the_term_by_one_and_asks_every_member_with_its_log(
        self, autojump_clock: MockClock
    ) -> None:
        async with stage() as played:
            played.script(promising)
            requests = [await played.first.inbox.next(VoteRequest, after=number) for number in range(4)]

            last = played.facts()
            log = (last.last_index, last.last_term)
            assert [request.term for request in requests] == [1, 2, 3, 4]
            assert {(request.last_index, request.last_term) for request in requests} == {log}
            await until(lambda: len(played.second.inbox.of(VoteRequest)) >= 4)
            assert played.second.inbox.of(VoteRequest)[:4] == requests
            tried = next(election for election in played.facts().rounds if election.term == 2)
            assert tried.votes == {"n0": "ACCEPT"}
            assert tried.outcome != "won"

    @pytest.mark.covers("R271", "R286")
    async def test_its_own_vote_counts_so_that_one_other_makes_the_majority(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            played.first.answer, played.second.answer = obliging, promising
            await until(lambda: played.facts().role == "LEADER")
            assert played.facts().rounds[-1].votes == {"n0": "ACCEPT", "n1": "ACCEPT"}

    @pytest.mark.covers("R288", "R289")
    async def test_a_split_vote_is_followed_by_another_round_at_another_moment(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            splits = 4

            def split(message: PeerMessage) -> PeerMessage | None:
                if isinstance(message, VoteRequest) and message.term <= splits:
                    return VoteRefusal(message.term, message.term, "REJECT_ALREADY_VOTED", 1, 0)
                return obliging(message)

            played.script(split)
            await until(lambda: played.facts().role == "LEADER", 20)

            facts = played.facts()
            assert facts.term == splits + 1
            lost = [election for election in facts.rounds if election.outcome == "timed out"]
            assert {answer for election in lost for answer in election.votes.values()} == {
                "ACCEPT",
                "REJECT_ALREADY_VOTED",
            }
            arrivals = [at for at, message in played.first.inbox.all if isinstance(message, VoteRequest)]
            pauses = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
            assert all(pause >= ELECTION_MIN - SLACK for pause in pauses)
            assert len({round(pause, 3) for pause in pauses}) == len(pauses)

    @pytest.mark.covers("R267", "R284")
    async def test_without_a_majority_of_answers_it_does_not_even_raise_its_term(
        self, autojump_clock: MockClock
    ) -> None:
        async with stage() as played:
            await played.first.inbox.next(PreVoteRequest, after=3)
            assert (played.facts().role, played.facts().term) == ("FOLLOWER", 0)
            assert played.first.inbox.of(VoteRequest) == []


class TestVoting:
    """What it answers to a candidate."""

    @pytest.mark.covers("R277", "R279", "R281")
    async def test_one_vote_in_a_term_and_a_newer_term_is_taken_over(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            await played.first.send(VoteRequest(5, 1, 0, False))
            assert await played.first.inbox.next(Vote) == Vote(5)
            assert (played.facts().term, played.facts().voted_for) == (5, "n1")

            await played.second.send(VoteRequest(5, 9, 4, False))
            refused = await played.second.inbox.next(VoteRefusal)
            assert (refused.term, refused.voter_term, refused.reason) == (5, 5, "REJECT_ALREADY_VOTED")
            assert played.facts().voted_for == "n1"

            await played.second.send(VoteRequest(6, 9, 4, False))
            assert await played.second.inbox.next(Vote) == Vote(6)
            assert (played.facts().term, played.facts().voted_for) == (6, "n2")

    @pytest.mark.covers("R276", "R280", "R274", "R275")
    async def test_logs_and_terms_behind_its_own_are_refused_with_the_reason(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            entries = [(b"\x01", 2, 3), (b"\x01", 3, 3)]
            await played.first.send(Append(3, 1, 1, 0, entries, 1, 3, True))
            await until(lambda: (played.facts().last_index, played.facts().last_term) == (3, 3))
            await trio.sleep(ELECTION_MAX)  # the leader is silent: votes are not refused on its account

            for request, reason in (
                (VoteRequest(2, 9, 2, False), "REJECT_EXPIRED_VOTE_TERM"),
                (VoteRequest(7, 99, 2, False), "REJECT_EXPIRED_LEDGER_TERM"),
                (VoteRequest(8, 2, 3, False), "REJECT_SMALL_LEDGER_END_INDEX"),
            ):
                before = len(played.second.inbox.of(VoteRefusal))
                await played.second.send(request)
                refusal = await played.second.inbox.next(VoteRefusal, after=before)
                assert (refusal.term, refusal.reason) == (request.term, reason)
                assert (refusal.last_index, refusal.last_term) == (3, 3)
            assert played.second.inbox.of(Vote) == []

    @pytest.mark.covers("R278")
    async def test_nobody_gets_its_vote_while_it_hears_a_leader(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            await played.follow_first(term=1, seconds=1)
            await played.second.send(VoteRequest(2, 99, 9, False))
            assert (await played.second.inbox.next(VoteRefusal)).reason == "REJECT_ALREADY_HAS_LEADER"
            assert played.facts().term == 1


class TestHeartbeats:
    """What it sends as a leader, and what it makes of heartbeats."""

    @pytest.mark.covers("R290", "R298")
    async def test_an_idle_leader_is_heard_by_everybody_at_its_interval(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            played.script(obliging)
            await until(lambda: played.facts().ready)
            await trio.sleep(1)
            before = [len(member.inbox.of(Append)) for member in (played.first, played.second)]
            await trio.sleep(10)
            after = [len(member.inbox.of(Append)) for member in (played.first, played.second)]
            for count in (later - earlier for earlier, later in zip(before, after, strict=True)):
                assert 0.8 * 10 / HEARTBEAT <= count <= 1.2 * 10 / HEARTBEAT
            assert played.facts().ready

    @pytest.mark.covers("R292")
    async def test_who_says_to_be_the_member_itself_is_refused(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            before = played.facts()
            stream = await played.host.quorum.network.host("stranger").connect("n0", RAFT_PORT, 1)
            await stream.send_all(encode_frame(Hello("sim", "n0", "n0", "disk of n0", 1, 1)))
            answer = decode_answer(await _body(stream, FrameReader(1 << 20)) or b"")
            assert isinstance(answer, Refusal)
            await stream.send_all(encode_frame(heartbeat(99, 1)))
            await trio.sleep(HEARTBEAT)
            assert (played.facts().leader, played.facts().term) == (None, before.term)

    @pytest.mark.covers("R293")
    async def test_a_heartbeat_of_an_older_term_is_told_so_and_does_not_delay_elections(
        self, autojump_clock: MockClock
    ) -> None:
        async with stage() as played:
            await played.first.send(VoteRequest(5, 1, 0, False))
            await played.first.inbox.next(Vote)
            began = trio.current_time()
            asked = len(played.first.inbox.of(PreVoteRequest))
            while len(played.first.inbox.of(PreVoteRequest)) == asked:
                await played.second.send(heartbeat(4, 1))
                await trio.sleep(HEARTBEAT)
                assert trio.current_time() - began <= ELECTION_MAX + SLACK + HEARTBEAT
            assert await played.second.inbox.next(TermNotice) == TermNotice(5)
            assert played.facts().leader is None

    @pytest.mark.covers("R297")
    async def test_a_heartbeat_of_a_newer_term_is_followed_and_says_where_to_go_on(
        self, autojump_clock: MockClock
    ) -> None:
        async with stage() as played:
            await played.first.send(Append(4, 1, 9, 3, [], 1, 9, True))
            behind = await played.first.inbox.next(Acknowledgement)
            assert (behind.term, behind.success, behind.reset, behind.next_index) == (4, False, True, 2)
            assert (played.facts().leader, played.facts().term) == ("n1", 4)

            entries = [(b"\x01", index, 3) for index in range(2, 10)]
            await played.first.send(Append(4, 1, 1, 0, entries, 2, 9, True))
            await until(lambda: any(ack.next_index == 10 for ack in played.first.inbox.of(Acknowledgement)))
            assert (played.facts().last_index, played.facts().last_term) == (9, 3)

    @pytest.mark.covers("R282", "R300")
    async def test_a_leader_that_is_told_of_a_newer_term_follows(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            played.script(obliging)
            await until(lambda: played.facts().ready)
            played.script(lambda message: None)
            await played.first.send(TermNotice(50))
            await until(lambda: played.facts().term == 50)
            assert played.facts().role == "FOLLOWER"

    @pytest.mark.covers("R296", "R301")
    async def test_a_leader_that_meets_another_one_in_its_term_stops(self, autojump_clock: MockClock) -> None:
        async with stage() as played:
            played.script(obliging)
            await until(lambda: played.facts().ready)
            await played.first.send(heartbeat(played.facts().term, 1))
            await until(lambda: played.host.member is None)
            assert "two leaders in one term" in played.host.stopped


@pytest.mark.covers("R279", "R287", "R266")
async def test_members_with_lagging_terms_elect_within_a_few_timeouts(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        quorum = SimQuorum(random.Random(5), nursery, 3, Outcome(0))
        for host in quorum.hosts.values():
            host.start()
        leader = await quorum.wait_leader(10)
        assert leader is not None
        ahead = next(host for host in quorum.hosts.values() if host is not leader)
        assert ahead.member is not None
        ahead.member.deliver(leader.name, VoteRequest(40, 99, 9, True))
        began = trio.current_time()
        await until(lambda: quorum.leading() and all(_term(host) > 40 for host in quorum.hosts.values()))
        assert trio.current_time() - began <= 3 * ELECTION_MAX
        assert len({_term(host) for host in quorum.hosts.values()}) == 1
        assert quorum.outcome.violations == []
        nursery.cancel_scope.cancel()


@pytest.mark.covers("R299", "R342")
async def test_a_member_that_comes_back_has_everything_within_a_second(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        quorum = SimQuorum(random.Random(6), nursery, 3, Outcome(0))
        for host in quorum.hosts.values():
            host.start()
        leader = await quorum.wait_leader(10)
        assert leader is not None and leader.member is not None
        away = next(host for host in quorum.hosts.values() if host is not leader)
        await away.kill(power=True)
        for number in range(60):
            await leader.member.propose("client", number + 1, b"x")
        away.start()
        began = trio.current_time()
        end = leader.member.facts().last_index
        await until(lambda: away.member is not None and away.member.facts().applied_index >= end)
        assert trio.current_time() - began < 1
        assert leader.member.leads()
        nursery.cancel_scope.cancel()


def _term(host: QuorumHost) -> int:
    return 0 if host.member is None else host.member.term()
