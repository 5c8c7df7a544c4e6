"""What a leader counts and proves, message by message: acknowledgements, rounds, and its word to a new disk."""

from __future__ import annotations

import random
from typing import Any

import pytest
from controller_consensus import Member, append, entry
from hypothesis import given
from hypothesis import strategies as st

from understudy.controller.raft.messages import Acknowledgement, Append, PeerMessage, PreVoteAnswer, Vote
from understudy.testkit.sim.disk import SimDisk

START = (1, 0)
"""Index and term of the entry that every log begins with."""


class Ticket:
    def __init__(self) -> None:
        self.answers: list[tuple[Any, Exception | None]] = []

    def deliver(self, value: Any, error: Exception | None) -> None:
        self.answers.append((value, error))


def a_member(size: int = 3, *, voter: bool = True) -> Member:
    member = Member(SimDisk(random.Random(7)), size)
    if voter:
        member.journal.set_voter()
    return member


def ack(term: int, next_index: int, sequence: int) -> Acknowledgement:
    return Acknowledgement(term, next_index, False, True, sequence, True)


def a_leader(size: int = 3) -> tuple[Member, int, int]:
    """Return a member that leads and whose no-op everybody holds; its term; and the number of its newest round."""
    member = a_member(size)
    member.turn(1.0)
    member.turn(1.0, *((peer, PreVoteAnswer(1, 0, True, "ACCEPT")) for peer in member.peers))
    sent = member.turn(2.0, *((peer, PreVoteAnswer(1, 0, True, "ACCEPT")) for peer in member.peers))
    term = member.consensus.core.term()
    sent = member.turn(2.0, *((peer, Vote(term)) for peer in member.peers))
    number = rounds(sent)
    member.turn(2.01, *((peer, ack(term, member.journal.last_index() + 1, number)) for peer in member.peers))
    assert member.consensus.leads()
    return member, term, number


def rounds(sent: list[tuple[str, PeerMessage]]) -> int:
    return max(message.sequence for _, message in sent if isinstance(message, Append))


@given(st.integers(0, 30), st.sampled_from([0, 1, 2]))
def test_acknowledgements_of_another_term_count_for_nothing(older: int, following: int) -> None:
    member, term, number = a_leader(5)
    member.consensus.propose(b"\0nothing that is looked at", Ticket())
    member.turn(2.02)
    end, commit = member.journal.last_index(), member.consensus.core.commit_index()
    others = [(peer, ack(term - 1 - older, end + 1, number)) for peer in member.peers[: following + 1]]
    if term - 1 - older < 0:
        return
    member.turn(2.03, *others)
    assert member.consensus.core.commit_index() == commit < end
    assert {member.consensus.core.match_index(peer) for peer, _ in others} == {end - 1}


def test_a_new_disk_votes_once_it_holds_what_a_followed_leader_had() -> None:
    member = a_member(voter=False)
    entries = [entry(index, 3) for index in range(2, 8)]
    message = append(3, START, entries, commit=7)

    def said(confirmed: bool, sequence: int) -> Append:
        return Append(3, 7, 7, 3, [], sequence, 7, confirmed)

    # given a leader that nobody follows, for as long as it likes
    member.turn(0.0, ("n1", Append(3, 7, 1, 0, message.entries, 1, 7, False)))
    for sequence in range(2, 20):
        member.turn(sequence / 10, ("n1", said(False, sequence)))
    assert member.consensus.core.commit_index() == 7
    assert not member.journal.voter
    # then its word that a majority without this member follows it is what counts
    member.turn(2.0, ("n1", said(True, 20)))
    assert member.journal.voter


def test_a_read_needs_a_round_that_left_after_it_was_asked_for() -> None:
    member, term, number = a_leader()
    ticket = Ticket()
    member.consensus.open_barrier(ticket)
    # given that everybody has heard every round that left before
    newer = rounds(member.turn(2.02, *((peer, ack(term, 1, number)) for peer in member.peers)))
    assert newer == number + 1
    assert member.consensus.take_results() == []
    member.turn(2.03, *((peer, ack(term, 1, number)) for peer in member.peers))
    assert member.consensus.take_results() == []
    # when one of them has heard the one that left after it
    member.turn(2.04, (member.peers[0], ack(term, 1, newer)))
    assert [(each[0], each[2]) for each in member.consensus.take_results()] == [(ticket, None)]


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_leader_that_has_handed_over_is_nobody_whom_a_new_disk_may_join(handed_over: bool) -> None:
    member, term, number = a_leader()
    if handed_over:
        assert member.consensus.hand_over("n1") is None
        member.turn(2.02)
    sent = member.turn(2.15, ("n1", ack(term, member.journal.last_index() + 1, number)))
    word = {peer: message.confirmed for peer, message in sent if isinstance(message, Append)}
    assert word == {"n1": not handed_over, "n2": not handed_over}
