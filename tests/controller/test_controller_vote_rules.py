"""One production member among scripted ones: what it asks, what it answers, and when, message by message.

Every row of the voting and heartbeat tables can be played: also those that members of ours never cause.
"""

from __future__ import annotations

import itertools

import pytest
import trio
from controller_stage import (
    ELECTION_MAX,
    ELECTION_MIN,
    HEARTBEAT,
    SLACK,
    heartbeat,
    next_body,
    obliging,
    promising,
    stage,
)
from trio.testing import MockClock

from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    FrameReader,
    Hello,
    PeerMessage,
    PreVoteRequest,
    Refusal,
    TermNotice,
    Vote,
    VoteRefusal,
    VoteRequest,
    decode_answer,
    encode_frame,
)
from understudy.testkit.quorum.simulation import RAFT_PORT
from understudy.testkit.waiting import until


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
            answer = decode_answer(await next_body(stream, FrameReader(1 << 20)) or b"")
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
