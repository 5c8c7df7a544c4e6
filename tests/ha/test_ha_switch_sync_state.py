"""The sync-state set: who comes in, who goes out, what counts as copied meanwhile."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.ha.switch import sync_state
from understudy.ha.switch.sync_state import (
    Asked,
    Follower,
    Moment,
    SyncState,
    after_look,
    after_report,
    copied_by,
    copied_by_all,
)

ALONE = SyncState(1, frozenset({1}), 1)
THREE = SyncState(1, frozenset({1, 2, 3}), 4)


def at(offset: int, caught_up: float = 0.0, *, learner: bool = False) -> Follower:
    return Follower(offset, learner, caught_up)


@pytest.mark.covers("R231")
def test_a_slave_that_has_caught_up_comes_in() -> None:
    slave = Follower().sent(100, 1.0).reported(60, 100, 1.1)
    assert {1} == after_report(ALONE, 2, slave, 100, 0)
    slave = slave.reported(100, 120, 1.2)
    assert 1.0 == slave.caught_up, "it had everything of the moment when it was sent"
    assert {1, 2} == after_report(ALONE, 2, slave, 100, 0)
    assert {1} == after_report(ALONE, 2, slave, 101, 0), "readers have seen more"
    assert {1} == after_report(ALONE, 2, slave, 0, 101), "its bytes may be of another epoch"


@pytest.mark.covers("R239")
def test_a_learner_never_comes_in_and_never_counts() -> None:
    learner = attrs.evolve(Follower(learner=True).sent(10, 1.0).reported(10, 10, 1.0))
    assert {1} == after_report(ALONE, 2, learner, 10, 0)
    assert {1, 3} == after_look(THREE, {2: learner, 3: at(10)}, 10, 0.0, 15.0)
    assert 0 == copied_by(THREE, {2: learner}, 10, 2)
    assert 0 == copied_by_all(SyncState(1, frozenset({1, 2})), {2: learner}, 10)


@pytest.mark.covers("R228", "R229", "R230")
def test_who_lags_or_is_gone_goes_out() -> None:
    followers = {2: at(50, 10.0), 3: at(100, 0.0)}
    assert {1, 2, 3} == after_look(THREE, followers, 100, 24.9, 15.0)
    assert {1, 3} == after_look(THREE, followers, 100, 25.1, 15.0), "3 has everything, however long ago it said so"
    assert {1, 2} == after_look(THREE, {2: followers[2]}, 100, 11.0, 15.0), "3 is not connected"
    steady = Follower(0, caught_up=0.0)
    for second in range(60):  # always two seconds behind: never caught up, and never far
        steady = steady.sent(100 * second, float(second)).reported(100 * (second - 2), 100 * second, float(second))
    assert not steady.lags(5_900, 59.5, 15.0)


def test_what_counts_while_the_controller_has_not_answered() -> None:
    followers = {2: at(70), 3: at(90), 4: at(100)}
    shrinking = THREE.wanting(frozenset({1, 3}))
    assert (70, 90) == (copied_by_all(shrinking, followers, 100), copied_by(shrinking, followers, 100, 2))
    assert 0 == copied_by(shrinking, followers, 100, 3), "2 may not be electable any more"
    growing = THREE.wanting(frozenset({1, 2, 3, 4}))
    assert (70, 90) == (copied_by_all(growing, followers, 100), copied_by(growing, followers, 100, 2))
    assert growing.answered(frozenset({1, 2, 3, 4}), 5) == SyncState(1, frozenset({1, 2, 3, 4}), 5)
    assert growing == growing.answered(frozenset({1}), 3), "an old answer"
    assert THREE == growing.wanting(frozenset({1, 2, 3})), "it was not asked for"
    question = Asked(frozenset({1, 2, 3, 4}), 4, 10.0)
    back = growing.asking(question).wanting(frozenset({1, 2, 3}))
    assert frozenset({1, 2, 3, 4}) == back.everybody, "what was asked for first may be accepted yet"
    assert frozenset({1, 2, 3, 4}) == back.answered(frozenset({1, 2, 3, 4}), 5).everybody
    out = growing.asking(question).wanting(frozenset({1, 3}))
    assert frozenset({1, 3}) == out.answered(frozenset({1, 2, 3, 4}), 5).electable
    assert THREE.answered(frozenset({1, 3}), 6) == out.answered(frozenset({1, 3}), 6), "all is settled"
    assert THREE == THREE.wanting(frozenset({1, 2, 3}))


def test_a_master_can_be_replaced_while_the_controller_may_have_others_in_the_set_whatever_it_wants() -> None:
    one, two = frozenset({1}), frozenset({1, 2})
    assert THREE.replaceable and THREE.wanting(one).replaceable
    alone = SyncState(1, one, 4)
    assert not alone.replaceable and not alone.wanting(two).replaceable
    question = Asked(two, 4, math.inf)
    growing = alone.wanting(two).asking(question)
    assert not growing.replaceable, "the controller has not heard it"
    assert growing.left(question, 10.0).replaceable
    assert growing.left(question, 10.0).wanting(one).replaceable, "it may be accepted yet"
    shrinking = SyncState(1, two, 4).wanting(one).asking(Asked(one, 4, 10.0))
    assert shrinking.replaceable, "it may be refused yet"
    assert not shrinking.answered(one, 5).replaceable


def test_a_question_that_left_may_be_accepted_until_another_set_is_or_it_was_refused_or_its_time_is_over() -> None:
    two, three = frozenset({1, 2}), frozenset({1, 2, 3})
    question = Asked(three, 4, 10.0)
    # given 3 that came, was asked for, and left before there was an answer
    left = SyncState(1, two, 4).wanting(three).asking(question).wanting(two)
    # when the controller still has the former set
    said = left.answered(two, 4)
    # then it may accept the question after this answer
    assert (three, two) == (said.everybody, said.electable)
    assert three == said.settled(9.9, 4).everybody
    assert three == said.settled(99.0, 5).everybody, "it was accepted, or another one was: that word is on its way"
    assert SyncState(1, two, 4) == said.settled(10.0, 4) == said.refused(question)
    assert SyncState(1, two, 5) == said.answered(two, 5), "the set that it was to replace is gone"
    later = Asked(three, 5, 12.0)
    assert (later,) == said.asking(later).answered(two, 5).asked
    # asked for again and again, the last one that may be accepted stands for those before
    again, refused = Asked(three, 4, 15.0), Asked(three, 4, 16.0)
    assert (again,) == said.asking(again).asking(refused).refused(refused).asked


def test_a_question_that_has_not_left_is_dropped_when_another_set_is_wanted() -> None:
    alone, both = frozenset({1}), frozenset({1, 2})
    asking = SyncState(1, both, 4).wanting(alone).asking(Asked(alone, 4, math.inf))
    assert SyncState(1, both, 4) == asking.wanting(both)
    assert asking == asking.wanting(alone)
    left = asking.left(Asked(alone, 4, math.inf), 12.0)
    assert left.wanting(both).may_be_alone
    assert left.wanting(both).asked == (Asked(alone, 4, 12.0),)


@pytest.mark.covers("R232")
def test_the_confirm_offset() -> None:
    followers = {2: at(70), 3: at(90)}
    assert 100 == sync_state.confirm_offset(THREE, followers, 100, 100, 0, all_must_ack=False)
    assert 70 == sync_state.confirm_offset(THREE, followers, 100, 100, 0, all_must_ack=True)
    assert 80 == sync_state.confirm_offset(THREE, followers, 100, 100, 80, all_must_ack=True), "what was seen stays"
    assert 50 == sync_state.confirm_offset(THREE, {2: at(70)}, 100, 100, 50, all_must_ack=True), "3 is not heard"
    assert 100 == sync_state.confirm_offset(ALONE, {}, 100, 100, 0, all_must_ack=True)
    assert 60 == sync_state.confirm_offset(ALONE, {}, 100, 60, 0, all_must_ack=True), "its disk is the only other copy"
    assert 70 == sync_state.confirm_offset(THREE, followers, 100, 60, 0, all_must_ack=True), "others have it"
    assert 80 == sync_state.confirm_offset(ALONE, {}, 100, 60, 80, all_must_ack=True), "what was seen stays"
    assert 100 == sync_state.confirm_offset(ALONE, {}, 100, 60, 0, all_must_ack=False)


@given(
    st.frozensets(st.integers(1, 5)),
    st.none() | st.frozensets(st.integers(1, 5)),
    st.lists(st.frozensets(st.integers(1, 5)), max_size=2),
    st.dictionaries(st.integers(2, 5), st.builds(at, st.integers(-1, 100), learner=st.booleans())),
    st.integers(1, 5),
)
def test_what_is_copied_is_with_enough_of_whichever_set_the_controller_has(
    accepted: frozenset[int],
    wanted: frozenset[int] | None,
    asked: list[frozenset[int]],
    followers: dict[int, Follower],
    copies: int,
) -> None:
    questions = tuple(Asked(members | {1}, 1, 10.0) for members in asked)
    state = SyncState(1, accepted | {1}, 1, None if wanted is None else wanted | {1}, questions)
    sets = [state.accepted, state.latest, *(each.members for each in questions)]

    def having(members: frozenset[int], offset: int) -> int:
        counted = [each for key, each in followers.items() if key in members and key != 1 and not each.learner]
        return 1 + sum(each.acknowledged >= offset for each in counted)

    offset = copied_by(state, followers, 100, copies)
    assert offset == 0 or all(having(members, offset) >= copies for members in sets)
    everywhere = copied_by_all(state, followers, 100)
    assert everywhere == 0 or all(having(members, everywhere) == len(members) for members in sets)
    on_disk = copied_by_all(state, followers, 30)
    assert on_disk == (min(everywhere, 30) if any(members == {1} for members in sets) else everywhere)


@pytest.mark.parametrize(
    ("proven_at", "left_at", "now", "is_proven"),
    [
        (Moment(10, 50), -math.inf, Moment(12, 52), True),
        (Moment(10, 50), -math.inf, Moment(12.1, 52), False),
        (Moment(10, 50), -math.inf, Moment(11, 53), False),
        (Moment(10, 50), 10.0, Moment(11, 51), True),
        (Moment(10, 50), 10.1, Moment(11, 51), False),
        (sync_state.NEVER, -math.inf, Moment(0, 0), False),
    ],
    ids=["just said", "too long ago", "suspended", "said after it left", "said before it left", "never said"],
)
def test_a_master_is_proven_by_a_controller_that_was_asked_just_now_and_after_any_member_left(
    proven_at: Moment, left_at: float, now: Moment, is_proven: bool
) -> None:
    assert sync_state.is_proven(proven_at, left_at, now, 2.0) is is_proven


def test_nobody_who_never_reported_has_caught_up() -> None:
    assert Follower().lags(1, 0.0, math.inf) is False
    assert {1} == after_report(ALONE, 2, Follower(), 0, 0)
