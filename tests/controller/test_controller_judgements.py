"""What one member makes of others: votes after a lost disk, a follower with another log, contradictions."""

from __future__ import annotations

import random

import pytest
from controller_consensus import LOG, Member, append, entry

from understudy.controller.raft.admission import Admission
from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    Hello,
    PreVoteAnswer,
    PreVoteRequest,
    Refusal,
    Vote,
    VoteRefusal,
    VoteRequest,
    Welcome,
)
from understudy.controller.raft.sessions import COMMAND, ReplicatedState, encode_envelope
from understudy.controller.raft.settings import QuorumSettings
from understudy.testkit.quorum.simulation import CounterMachine
from understudy.testkit.sim.disk import SimDisk


def a_disk() -> SimDisk:
    return SimDisk(random.Random(7))


def test_a_new_disk_votes_for_nobody_else_in_the_term_in_which_it_got_its_vote() -> None:
    member = Member(a_disk())
    assert not member.journal.voter
    member.turn(0.0, ("n1", append(5, (1, 0), [entry(2, 5)], commit=2)))
    member.turn(0.1, ("n1", append(5, (2, 5), [], commit=2)))
    assert member.journal.voter

    # its former disk may have voted for n2 in this term, or for n1
    out = member.turn(0.2, ("n2", VoteRequest(5, 9, 5, True)))
    assert [message for _, message in out if isinstance(message, (Vote, VoteRefusal))] == [
        VoteRefusal(5, 5, "REJECT_ALREADY_VOTED", 2, 5)
    ]
    out = member.turn(0.3, ("n2", VoteRequest(6, 9, 5, True)))
    assert ("n2", Vote(6)) in out


def leading_of_five() -> tuple[Member, int]:
    """Return member n0, leader of term 1, and its last index, which n1 alone has confirmed."""
    member = Member(a_disk(), size=5)
    consensus = member.consensus
    for peer in member.peers:
        consensus.welcomed(peer, True, 1)
    asked = member.turn(1.0)
    assert ("n1", PreVoteRequest(1, 1, 0)) in asked
    member.turn(1.01, *((peer, PreVoteAnswer(1, 0, True, "ACCEPT")) for peer in member.peers))
    member.turn(1.02, *((peer, Vote(1)) for peer in member.peers))
    end = member.journal.last_index()
    member.turn(1.03, ("n1", Acknowledgement(1, end + 1, False, True, consensus._leading._followers.round, True)))
    assert consensus.core.role() == 2
    assert consensus.core.match_index("n1") == end
    return member, end


def judged(consensus: Consensus, last_index: int, term: int) -> Welcome | Refusal:
    addresses = {name: (name, 7000) for name in consensus.members}
    admission = Admission(QuorumSettings("sim", "n0", addresses, "/controller"))
    return admission.admit(consensus, Hello("sim", "n1", "n0", "disk of n1", last_index, 1, term=term))


@pytest.mark.parametrize("term", [0, 1])
def test_a_follower_that_holds_less_than_it_confirmed_is_told_that_its_disk_lost_data(term: int) -> None:
    member, end = leading_of_five()
    answer = judged(member.consensus, end - 1, term)
    assert isinstance(answer, Refusal)
    assert answer.fatal
    assert "its disk lost synced data" in answer.reason


def test_a_leader_that_does_not_know_yet_that_it_is_deposed_condemns_nobodys_disk() -> None:
    # n1 gave up what this leader alone had sent it: the leader of term 2 has something else there
    member, end = leading_of_five()
    assert isinstance(judged(member.consensus, end - 1, 2), Welcome)


def test_a_second_leader_in_a_term_stops_the_member_and_the_line_says_what_to_look_for() -> None:
    member = Member(a_disk())
    member.turn(0.0, ("n1", append(5, (1, 0), [])))
    with pytest.raises(FatalError) as stopped:
        member.turn(0.1, ("n2", append(5, (1, 0), [])))
    assert str(stopped.value).startswith(f"{LOG}: members n1 and n2 both lead term 5; some member's disk was lost")
    assert "to rejoin: stop this controller" in str(stopped.value)


def test_a_leader_that_contradicts_what_is_committed_stops_the_member_and_changes_nothing() -> None:
    member = Member(a_disk())
    member.turn(0.0, ("n1", append(5, (1, 0), [entry(2, 5), entry(3, 5)], commit=3)))
    with pytest.raises(FatalError) as stopped:
        member.turn(0.1, ("n2", append(6, (1, 0), [entry(2, 6), entry(3, 6)])))
    assert str(stopped.value).startswith(f"{LOG}: leader n2 contradicts committed entry 2; some member's disk was lost")
    assert "to rejoin: stop this controller" in str(stopped.value)
    assert [each[2] for each in member.journal.entries] == [0, 5, 5]


@pytest.mark.parametrize("late", [True, False])
def test_a_repeated_or_late_message_cuts_nothing_that_was_acknowledged(late: bool) -> None:
    member = Member(a_disk())
    entries = [entry(index, 5) for index in range(2, 8)]
    member.turn(0.0, ("n1", append(5, (1, 0), entries, commit=5)))
    repeated = append(5, (1, 0), entries[:2] if late else entries, commit=3)
    out = member.turn(0.1, ("n1", repeated))
    assert member.journal.last_index() == 7
    assert member.consensus.core.commit_index() == 5
    assert [m.next_index for _, m in out if isinstance(m, Acknowledgement)] == [4 if late else 8]


def test_entries_of_a_lower_term_are_refused_with_the_newer_one() -> None:
    member = Member(a_disk())
    member.turn(0.0, ("n1", append(5, (1, 0), [entry(2, 5)])))
    out = member.turn(0.1, ("n2", append(4, (1, 0), [entry(2, 4)])))
    assert member.journal.entries[-1][2] == 5
    assert not any(isinstance(message, (Acknowledgement, Append)) for to, message in out if to == "n2")


def test_a_vote_is_remembered_when_the_power_goes_right_after_it() -> None:
    disk = a_disk()
    member = Member(disk)
    for peer in member.peers:
        member.consensus.welcomed(peer, True, 1)
    assert ("n1", Vote(5)) in member.turn(1.0, ("n1", VoteRequest(5, 1, 0, False)))
    disk.lose_power()
    again = Member(disk)
    out = again.turn(2.0, ("n2", VoteRequest(5, 1, 0, True)))
    assert ("n2", VoteRefusal(5, 5, "REJECT_ALREADY_VOTED", 1, 0)) in out


def test_entries_of_earlier_terms_are_committed_only_under_one_of_the_leaders_own() -> None:
    # a majority may hold them and still lose them to a member whose last entry is of a later term
    member = Member(a_disk())
    for peer in member.peers:
        member.consensus.welcomed(peer, True, 1)
    member.turn(0.0, ("n1", append(1, (1, 0), [entry(2, 1), entry(3, 1)], commit=1)))
    asked = [message for _, message in member.turn(2.0) if isinstance(message, PreVoteRequest)]
    member.turn(2.01, ("n1", PreVoteAnswer(asked[0].term, 1, True, "ACCEPT")))
    member.turn(2.02, ("n1", Vote(asked[0].term)))
    core = member.consensus.core
    assert (core.role(), core.term(), member.journal.last_index()) == (2, 2, 4)
    member.turn(2.03, ("n2", Acknowledgement(2, 4, False, True, 1, True)))
    assert core.match_index("n2") == 3
    assert core.commit_index() == 1
    member.turn(2.04, ("n2", Acknowledgement(2, 5, False, True, 1, True)))
    assert core.commit_index() == 4


def test_a_repeated_command_is_known_after_a_snapshot_took_the_place_of_the_log() -> None:
    machine, former = CounterMachine(), ReplicatedState(CounterMachine())
    assert former.apply(2, encode_envelope((COMMAND, 1, "client", 7, 0, b"x"))) == (0, b"1")
    state = ReplicatedState(machine)
    state.restore(former.snapshot())
    assert state.apply(3, encode_envelope((COMMAND, 1, "client", 7, 0, b"x"))) == (0, b"1")
    assert state.apply(4, encode_envelope((COMMAND, 1, "client", 6, 0, b"x")))[0] == 1
    assert machine.counters == {"x": 1}


def test_a_member_that_is_cut_off_keeps_the_rounds_of_the_elections_before() -> None:
    member = Member(a_disk())
    for peer in member.peers:
        member.consensus.welcomed(peer, True, 1)
    member.turn(1.0)
    member.turn(1.01, ("n1", PreVoteAnswer(1, 0, True, "ACCEPT")))
    member.turn(1.02, ("n1", Vote(1)))
    for tenths in range(11, 1000):
        member.turn(tenths / 10)
    facts = member.consensus.facts(100.0)
    assert (facts.role, facts.term) == ("FOLLOWER", 1)
    won, vain = facts.rounds
    assert (won.term, won.outcome, won.attempt) == (1, "won", 1)
    assert vain.term == 2
    assert vain.attempt > 100
    assert f"election round term=2 log=(2,1) attempt={vain.attempt} pre-vote[n0=ACCEPT n1=no answer" in vain.describe(
        ["n0", "n1", "n2"]
    )
