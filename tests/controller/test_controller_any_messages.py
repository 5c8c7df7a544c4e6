"""A member that hears anything that can be said: it may stop, but it never breaks what it promised."""

from __future__ import annotations

import random

from controller_consensus import Member, entry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    Handover,
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    SnapshotPending,
    TermNotice,
    Vote,
    VoteRefusal,
    VoteRequest,
)
from understudy.controller.raft.records import Entry
from understudy.testkit.sim.disk import SimDisk

TERMS = st.integers(0, 3)
INDEXES = st.integers(0, 8)
PEERS = st.sampled_from(["n1", "n2"])


@st.composite
def appends(draw: st.DrawFn) -> Append:
    term, previous = draw(TERMS), draw(st.integers(1, 6))
    previous_term = 0 if previous == 1 else draw(TERMS)
    terms = sorted(draw(st.lists(TERMS, max_size=4))) if draw(st.booleans()) else [term] * draw(st.integers(0, 4))
    entries: list[Entry] = [entry(previous + 1 + place, each) for place, each in enumerate(terms)]
    if entries and draw(st.integers(0, 20)) == 0:
        entries[0] = (b"", entries[0][1], entries[0][2])
    return Append(
        term, draw(INDEXES), previous, previous_term, entries, draw(INDEXES), draw(INDEXES), draw(st.booleans())
    )  # fmt: skip


MESSAGES: st.SearchStrategy[PeerMessage] = st.one_of(
    appends(),
    appends(),
    st.builds(Acknowledgement, TERMS, INDEXES, st.booleans(), st.booleans(), INDEXES, st.booleans()),
    st.builds(VoteRequest, TERMS, st.just(8), st.just(3), st.booleans()),
    st.builds(VoteRequest, TERMS, INDEXES, TERMS, st.booleans()),
    st.builds(Vote, TERMS),
    st.builds(VoteRefusal, TERMS, TERMS, st.just("REJECT_ALREADY_VOTED"), INDEXES, TERMS),
    st.builds(PreVoteRequest, TERMS, INDEXES, TERMS),
    st.builds(PreVoteAnswer, TERMS, TERMS, st.booleans(), st.just("ACCEPT")),
    st.builds(SnapshotPending, TERMS, INDEXES, INDEXES),
    st.builds(TermNotice, TERMS),
    st.builds(Handover, TERMS),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hear"), st.lists(st.tuples(PEERS, MESSAGES), min_size=1, max_size=3)),
        st.tuples(st.just("wait"), st.sampled_from([0.05, 0.5, 1.0])),
        st.tuples(st.just("power"), st.none()),
    ),
    max_size=25,
)


class Promises:
    """What one member has promised so far, whatever happened to its process."""

    def __init__(self) -> None:
        self.term = 0
        self.votes: dict[int, str] = {}
        self.committed: dict[int, Entry] = {}

    def look(self, member: Member, out: list[tuple[str, PeerMessage]]) -> None:
        core, journal = member.consensus.core, member.journal
        assert core.term() == journal.term >= self.term
        self.term = core.term()
        assert [each[1] for each in journal.entries] == list(range(1, journal.last_index() + 1))
        assert core.applied_index() <= core.commit_index() <= journal.last_index()
        held = {each[1]: each for each in journal.entries}
        for index, committed in self.committed.items():
            assert held[index] == committed
        self.committed = {index: held[index] for index in range(1, core.commit_index() + 1)}
        for peer, message in out:
            if isinstance(message, Vote):
                self.vote(message.term, peer)
            elif isinstance(message, VoteRequest):
                self.vote(message.term, "n0")
            elif isinstance(message, Acknowledgement) and message.success and message.term == core.term():
                # one of an older term may speak of what a newer leader cut in the same turn: it was held when it was so
                assert message.next_index <= journal.last_index() + 1

    def vote(self, term: int, candidate: str) -> None:
        assert self.votes.setdefault(term, candidate) == candidate


@given(voter=st.booleans(), steps=STEPS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_terms_votes_and_committed_entries_survive_any_messages_and_power_losses(
    voter: bool, steps: list[tuple[str, object]]
) -> None:
    disk, promises, now = SimDisk(random.Random(5)), Promises(), 0.0
    member = Member(disk)
    if voter:
        for peer in member.peers:
            member.consensus.welcomed(peer, True, 1)
    for kind, what in steps:
        arrived: list[tuple[str, PeerMessage]] = []
        if kind == "hear":
            assert isinstance(what, list)
            arrived, now = [(_sender(peer, message), message) for peer, message in what], now + 0.01
        elif kind == "wait":
            assert isinstance(what, float)
            now += what
        else:
            entries, vote = list(member.journal.entries), member.journal.voted_for
            disk.lose_power()
            member = Member(disk)
            assert (member.journal.entries, member.journal.voted_for) == (entries, vote)
            promises.committed = {}  # how far it was committed is known again once a leader says so
        try:
            promises.look(member, member.turn(now, *arrived))
        except FatalError:
            return


def _sender(peer: str, message: PeerMessage) -> str:
    """Return who says *message*: a term has one leader, else most runs would end where there are two."""
    if isinstance(message, (Append, SnapshotPending)):
        return ("n1", "n2")[message.term % 2]
    return peer
