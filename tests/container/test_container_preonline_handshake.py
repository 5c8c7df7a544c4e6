"""The way of a broker from its start to its registration, step by step and with everything that may fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.absence import Moment, gap_ms, limit_ms
from understudy.broker.merge import Reason, StampedOffset, merge, stamped, within
from understudy.container.preonline.handshake import (
    Behind,
    Done,
    Event,
    Failed,
    Finish,
    Member,
    Members,
    Phase,
    State,
    Unfinished,
    begin,
    step,
)

MASTER = State(0, "m:1")
SLAVE = State(1, "s1:1")


def members(found: dict[int, str]) -> Members:
    return Members(tuple(Member(*each) for each in found.items()))


def after(state: State, *events: Event, now: float = 0.0) -> State:
    for event in events:
        state = step(state, event, now)
    return state


def test_a_master_asks_each_slave_in_order_and_then_registers() -> None:
    found = members({2: "s2:1", 0: "m:1", 1: "s1:1"})
    state = after(MASTER, found)
    seen = []
    while state.phase is not Phase.ASK_MEMBERS:
        assert state.target is not None
        seen.append((state.phase, state.target.broker_id))
        state = after(state, Done())
    phases = (Phase.COMPLETE_LOG, Phase.ANNOUNCE, Phase.AWAIT_COPY, Phase.TAKE_OVER)
    assert seen == [(phase, broker_id) for broker_id in (1, 2) for phase in phases]
    # nobody has come meanwhile
    assert after(state, found).phase is Phase.ONLINE


def test_a_slave_that_came_meanwhile_is_asked_before_the_master_registers() -> None:
    # given a master that has asked its only slave
    state = after(MASTER, members({2: "s2:1"}), Done(), Done(), Done(), Done())
    # when another one, which may act for it by now, is there at the second look
    state = after(state, members({1: "s1:1", 2: "s2:1"}))
    # then it is asked, too, and the first one not again
    assert (state.phase, state.target, state.waiting) == (Phase.COMPLETE_LOG, Member(1, "s1:1"), ())
    state = after(state, Done(), Done(), Done(), Done())
    assert after(state, members({1: "s1:1", 2: "s2:1"})).phase is Phase.ONLINE
    assert [each.broker_id for each in state.finished] == [2, 1]
    # and when nobody answers that question, everything begins anew
    failed = after(state, Failed("no name server answers"), Done())
    assert (failed.phase, failed.finished) == (Phase.ASK_MEMBERS, ())


@pytest.mark.parametrize("found", [{}, {0: "m:1"}, {0: "m:2"}, {3: "m:1"}])
def test_a_master_never_waits_for_its_own_old_entry(found: dict[int, str]) -> None:
    assert after(MASTER, members(found)).phase is Phase.ONLINE


def test_a_slave_follows_a_living_master_first() -> None:
    state = after(SLAVE, members({0: "m:1", 2: "s2:1"}))
    assert (state.phase, state.target and state.target.address) == (Phase.ASK_MASTER, "m:1")
    state = after(state, Done())
    assert state.phase is Phase.AWAIT_FOLLOWING
    assert after(state, Done()).phase is Phase.ONLINE


@pytest.mark.parametrize("event", [Done(), Failed("the master's log was not reached")])
def test_a_slave_that_took_long_to_find_its_master_looks_whether_another_one_acts_by_now(event: Event) -> None:
    # given a slave whose master was shown, but answers late
    state = after(SLAVE, members({0: "m:1", 2: "s2:1"}), now=10.0)
    state = after(state, Done(), event, now=13.0)
    assert state.phase is Phase.ASK_MEMBERS
    # when that one is still shown, the slave is online
    assert after(state, members({0: "m:1", 2: "s2:1"}), now=13.0).phase is Phase.ONLINE
    # when it has been dropped, the slave that acts for it is asked first
    state = after(state, members({2: "s2:1"}), now=13.0)
    assert (state.phase, state.target) == (Phase.COMPLETE_LOG, Member(2, "s2:1"))
    # and a master that has come at another address is asked, too
    assert after(state, Failed("away"), Done(), members({0: "m:2"}), now=14.0).phase is Phase.ASK_MASTER


@pytest.mark.parametrize("found", [{}, {1: "s1:1"}])
def test_a_slave_alone_goes_online(found: dict[int, str]) -> None:
    assert after(SLAVE, members(found)).phase is Phase.ONLINE


def test_a_slave_that_will_act_takes_over_from_the_one_that_acted() -> None:
    # given two slaves, the first of which acts until now
    found = members({2: "s2:1", 3: "s3:1"})
    state, seen = after(SLAVE, found), []
    while state.phase is not Phase.ASK_MEMBERS:
        assert state.target is not None
        seen.append((state.phase, state.target.broker_id))
        state = after(state, Done())
    # then that one stands back and is asked, the other one is not, for it copies from the first
    assert seen == [(Phase.COMPLETE_LOG, 2), (Phase.ANNOUNCE, 2), (Phase.TAKE_OVER, 2)]
    assert after(state, found).phase is Phase.ONLINE
    # and when a master has come meanwhile, that is followed
    assert after(state, members({0: "m:1", 2: "s2:1"})).phase is Phase.ASK_MASTER
    # a slave with a larger id will not act
    assert after(State(2, "s2:1"), members({1: "s1:1"})).phase is Phase.ONLINE


def test_a_slave_that_takes_a_long_log_looks_for_its_master_meanwhile() -> None:
    # given a slave that has got a part of what the slave that acts has
    state = after(SLAVE, members({2: "s2:1"}), Unfinished())
    assert (state.phase, state.target) == (Phase.ASK_MEMBERS, None)
    # then it goes on where it was, as often as need be, and tells that one when it has all
    state = after(state, members({2: "s2:1"}), Unfinished(), members({2: "s2:1"}))
    assert (state.phase, state.target) == (Phase.COMPLETE_LOG, Member(2, "s2:1"))
    assert after(state, Done()).phase is Phase.ANNOUNCE
    # and a master that has come gives the rest
    assert after(state, Unfinished(), members({0: "m:1", 2: "s2:1"})).phase is Phase.ASK_MASTER


def test_a_slave_that_has_just_got_more_of_the_log_is_patient_however_long_that_took() -> None:
    state = begin(Member(1, "s1:1"), (), lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0)
    found = members({2: "s2:1"})
    # given a slave that took parts of the log for longer than its patience
    state = after(state, found, Unfinished(), now=70.0)
    # when the one that gives does not answer once
    state = after(state, found, Failed("timed out"), now=80.0)
    # then it is asked again
    assert (state.phase, state.given_up) == (Phase.PAUSE, ())
    # as long as patience lasts
    state = after(state, Done(), found, Failed("timed out"), now=131.0)
    assert state.given_up == (Member(2, "s2:1"),)


def test_a_slave_does_not_act_for_one_that_has_more_and_cannot_give_it() -> None:
    state = begin(Member(1, "s1:1"), (), lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0)
    found = members({2: "s2:1"})
    for now in (0.0, 100.0, 200.0):
        state = after(state, found, Behind("its log begins later"), now=now)
        assert (state.phase, state.trouble, state.given_up) == (Phase.PAUSE, "its log begins later", ())
        state = after(state, Done(), now=now)
    # nor because that one does not answer once
    assert after(state, found, Failed("timed out"), now=210.0).given_up == ()
    # until that one is gone, or a master is there
    assert after(state, members({})).phase is Phase.ONLINE
    assert after(state, members({0: "m:1", 2: "s2:1"})).phase is Phase.ASK_MASTER


def test_a_slave_that_is_outdated_asks_all_others_before_it_acts() -> None:
    state = begin(
        Member(1, "s1:1"), (), lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0, outdated=True
    )
    found, asked = members({3: "s3:1", 2: "s2:1"}), []
    state = after(state, found)
    while state.phase is not Phase.ASK_MEMBERS:
        assert state.target is not None
        asked.append((state.phase, state.target.broker_id))
        state = after(state, Done())
    phases = (Phase.COMPLETE_LOG, Phase.ANNOUNCE, Phase.TAKE_OVER)
    assert asked == [(phase, broker_id) for broker_id in (2, 3) for phase in phases]
    # one that came meanwhile is asked, too, and a master that came is followed
    later = after(state, members({2: "s2:1", 3: "s3:1", 4: "s4:1"}))
    assert (later.phase, later.target) == (Phase.COMPLETE_LOG, Member(4, "s4:1"))
    assert after(state, members({0: "m:1", 2: "s2:1"})).phase is Phase.ASK_MASTER
    assert after(state, found).phase is Phase.ONLINE


def test_a_slave_that_fails_in_the_middle_begins_a_new_round() -> None:
    state = after(MASTER, members({1: "s1:1", 2: "s2:1"}), Failed("no connection"))
    assert (state.phase, state.tries, state.trouble) == (Phase.PAUSE, 1, "no connection")
    # the slave is gone from the group by then
    state = after(state, Done(), members({2: "s2:1"}))
    assert (state.phase, state.target and state.target.broker_id) == (Phase.COMPLETE_LOG, 2)


def test_a_slave_that_does_not_copy_in_time_is_asked_for_what_it_knows_all_the_same() -> None:
    waiting = after(MASTER, members({1: "s1:1"}), Done(), Done())
    state = after(waiting, Failed("did not begin to copy"))
    assert (state.phase, state.trouble) == (Phase.TAKE_OVER, "did not begin to copy")
    assert after(state, Done(), members({1: "s1:1"})).phase is Phase.ONLINE


events = st.one_of(
    st.builds(Done),
    st.builds(Unfinished),
    st.builds(Behind, st.just("its log begins later")),
    st.builds(Failed, st.just("why")),
    st.builds(
        Members,
        st.lists(st.builds(Member, st.integers(0, 3), st.sampled_from(["m:1", "a:1", "b:1"])), unique=True).map(tuple),
    ),
)
former = st.lists(st.builds(Member, st.integers(0, 3), st.sampled_from(["m:1", "a:1", "b:1"])), max_size=3).map(tuple)


@given(st.sampled_from([0, 1]), former, st.lists(events, max_size=30), st.floats(0, 100))
def test_whatever_happens_the_way_leads_on(
    own_id: int, remembered: tuple[Member, ...], happened: list[Event], now: float
) -> None:
    own = Member(own_id, "m:1" if own_id == 0 else "s1:1")
    state = begin(own, remembered, lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0)
    for event in happened:
        if state.phase is Phase.ONLINE:
            return
        if isinstance(event, Members) != (state.phase is Phase.ASK_MEMBERS):
            event = Members(()) if state.phase is Phase.ASK_MEMBERS else Done()
        state = after(state, event, now=now)
        assert state.target is None or state.target.address != state.own_address
    # Whatever fails, patience ends; and from everywhere good answers lead online.
    for good in (False, True):
        there = state
        for _ in range(60):
            if there.phase is not Phase.ONLINE:
                answer = Done() if good else Failed("why")
                there = after(there, Members(()) if there.phase is Phase.ASK_MEMBERS else answer, now=100.0)
        assert there.phase is Phase.ONLINE


@given(former, st.lists(events, max_size=10))
def test_an_operator_ends_it_at_any_moment_and_who_was_not_asked_is_told(
    remembered: tuple[Member, ...], happened: list[Event]
) -> None:
    state = begin(Member(0, "m:1"), remembered, lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0)
    for event in happened:
        if state.phase is not Phase.ONLINE and isinstance(event, Members) == (state.phase is Phase.ASK_MEMBERS):
            state = after(state, event)
    if state.phase is Phase.ONLINE:
        return
    ended = after(state, Finish())
    assert ended.phase is Phase.ONLINE
    known = {each.broker_id for each in (*state.former, *state.shown)}
    assert {each.broker_id for each in (*ended.finished, *ended.given_up)} >= known


def test_places_behind_the_end_of_a_shorter_log_are_cut() -> None:
    rows = within(merge(stamped({"t@g": {0: 5, 1: 5}}), stamped({"t@g": {0: 9, 1: 7}})), lambda key, queue: 7)
    assert [(row.merged, row.reason) for row in rows] == [
        (StampedOffset(0, 7), Reason.BEYOND_LOG),
        (StampedOffset(0, 7), Reason.OTHER_AHEAD),
    ]


@given(st.integers(0, 100_000), st.integers(-100_000, 100_000))
def test_an_absence_shows_on_either_clock(monotonic_ms: int, wall_ms: int) -> None:
    gap = gap_ms(Moment(1_000, 50_000), Moment(1_000 + monotonic_ms, 50_000 + wall_ms))
    assert gap == max(monotonic_ms, wall_ms)


def test_an_absence_is_noticed_before_the_name_server_can_have_dropped_the_broker() -> None:
    assert limit_ms(10_000, 1_000, 1_000) == 8_000
    assert limit_ms(1_000, 1_000) == 500


def test_who_is_reachable_is_learned_from_before_and_after_another_one_fails() -> None:
    # given a slave that acts, and another one that only this master remembers
    absent, acting = Member(1, "s1:1"), Member(2, "s2:1")
    state = begin(Member(0, "m:1"), (absent, acting), lone=False, now=0.0, patience_seconds=60.0, timeout_seconds=10.0)
    state = after(state, members({2: "s2:1"}))
    # then what the one knows is taken before the other one is waited for, and with each try
    for _ in range(2):
        assert (state.phase, state.reachable) == (Phase.LEARN, (acting,))
        state = after(state, Done())
        assert (state.phase, state.target, state.waiting) == (Phase.COMPLETE_LOG, absent, (acting,))
        state = after(state, Failed("no answer"), Done(), members({2: "s2:1"}))
    # and it is told when the other one is out of time, and asked once more
    state = after(state, Done(), Failed("no answer"), now=11.0)
    assert (state.phase, state.target, state.given_up) == (Phase.COMPLETE_LOG, acting, (absent,))
    # a group where everybody is shown needs nothing of this
    assert after(MASTER, members({1: "s1:1", 2: "s2:1"})).phase is Phase.COMPLETE_LOG
