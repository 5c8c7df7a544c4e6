"""Name servers that hang up on a broker: nobody is told of it before all of them were asked, and what decides then."""

from __future__ import annotations

import pytest

from understudy.broker import absence, registering
from understudy.broker.absence import DROPPED, HUNG_UP, Limits, Moment
from understudy.broker.member_events import (
    Action,
    Answered,
    AskAgain,
    AskAll,
    Contact,
    Due,
    Examined,
    HungUp,
    Opinions,
)
from understudy.broker.member_view import Own, State, step
from understudy.broker.registering import Announce, Closed, Everything, Examine, Look, Register, Returned, TellResult

M, S = (Own(0, "m", False), Own(1, "s", True))
GROUP = {0: "m", 1: "s"}


def hung_up(own: Own) -> State:
    state, actions = step(State(own, members=GROUP), HungUp(10.0), 1.0)
    assert actions == (AskAgain(),)
    return state


def examined(own: Own, *views: dict[int, str], now: float = 2.0, cannot_say: bool = False) -> tuple[Action, ...]:
    """Return what comes of a look over two name servers, of which those with *views* answer."""
    state, actions = step(hung_up(own), Due(("n1", "n2")), now)
    assert actions == (AskAll(("n1", "n2")),)
    return step(state, Opinions(views, cannot_say=cannot_say), now)[1]


def test_after_a_hang_up_no_answer_decides_that_was_under_way_before() -> None:
    state, _ = step(State(M, members=GROUP), Due(("n1", "n2")), 0.0)
    state, _ = step(state, HungUp(10.0), 1.0)
    state, actions = step(state, Answered("n1", {1: "s"}, ("n1", "n2")), 2.0)
    assert actions == (AskAgain(),)
    assert state.hung_up_until == 11.0


@pytest.mark.parametrize("own", [M, S])
def test_after_a_hang_up_it_counts_who_is_shown_by_any_name_server(own: Own) -> None:
    for views in ([GROUP, {}], [{2: "t"}, GROUP], [{own.broker_id: "twin"}, GROUP]):
        contact, done, *_ = examined(own, *views)
        assert isinstance(contact, Contact)
        assert contact.hung_up
        assert contact.found[own.broker_id] == own.address
        assert done == Examined()


def test_after_a_hang_up_name_servers_that_do_not_answer_are_asked_again_unless_they_do_not_know_the_question() -> None:
    assert examined(M) == ()
    assert examined(M, cannot_say=True) == (Examined(),)


def test_where_all_name_servers_have_just_started_a_slave_waits_for_its_group_and_a_master_does_not() -> None:
    contact, done, *_ = examined(M, {}, {})
    assert (contact, done) == (Contact({}, GROUP, GROUP, hung_up=True), Examined())
    assert examined(S, {}, {}, now=10.9) == (Contact({}, GROUP, {}),)
    assert Examined() in examined(S, {}, {}, now=11.0)
    assert Examined() in examined(S, {}, {2: "t"})


@pytest.mark.parametrize(
    ("broker_id", "found", "before", "remembered", "cause"),
    [
        (0, {1: "s"}, {0: "m", 1: "s"}, {}, HUNG_UP),
        (0, {1: "s"}, None, {}, HUNG_UP),  # it was told of, and not shown yet
        (0, {}, None, {0: "m", 1: "s"}, HUNG_UP),  # all name servers have just started: that is no proof
        (0, {}, None, {0: "m"}, None),
        (0, {0: "m", 1: "s"}, None, {}, None),
        (1, {0: "m"}, {0: "m", 1: "s"}, {}, None),  # a slave that has a master
        (1, {2: "t"}, {0: "m", 1: "s"}, {}, HUNG_UP),
    ],
)
def test_after_a_hang_up_only_being_shown_is_proof_of_having_been_there(
    broker_id: int,
    found: dict[int, str],
    before: dict[int, str] | None,
    remembered: dict[int, str],
    cause: str | None,
) -> None:
    state = absence.State(broker_id, "ms"[broker_id], Moment(0, 0), is_slave=broker_id > 0, guarded=True, contact_ms=0)
    event = absence.Contact(found, before, remembered, hung_up=True)
    state, _ = absence.step(state, event, Moment(1000, 1000), Limits(8000, 8000))
    assert (state.cause if state.isolated else None) == cause
    assert cause != DROPPED


SERVERS, KEYS = ("a", "b"), registering.Settings()


def registered(*events: registering.Event) -> registering.State:
    """Return the state of a broker that both name servers have, after *events*."""
    state = registering.State()
    taken = [registering.Answered(each, TellResult.TOOK) for each in SERVERS]
    for event in (Look(SERVERS), *taken, registering.Told(everything=True), *events):
        state, _ = registering.step(state, event, 0.0, KEYS)
    return state


def test_nobody_is_told_before_all_name_servers_were_asked() -> None:
    state, actions = registering.step(registered(), Closed("a"), 1.0, KEYS)
    assert actions == (Examine(),)
    # neither everything, nor a topic, nor who is late
    for event in (Everything(), registering.Changed(("t",))):
        state, _ = registering.step(state, event, 1.0, KEYS)
    assert registering.step(state, Look(SERVERS), 100.0, KEYS) == (state, ())
    # when that is done
    state, _ = registering.step(state, registering.Examined(), 100.0, KEYS)
    assert registering.step(state, Look(SERVERS), 100.0, KEYS)[1] == (Register(SERVERS),)


def test_a_name_server_that_answers_late_is_told_again_after_the_look_only() -> None:
    state = registered(Everything(), Look(SERVERS), Everything(), Look(SERVERS), Closed("a"))
    state, actions = registering.step(state, registering.Answered("b", TellResult.MISSED), 1.0, KEYS)
    assert actions == ()
    assert "b" in state.missed


def test_a_new_topic_waits_for_nothing_where_nobody_has_hung_up() -> None:
    state = registered(registering.Changed(("t",)))
    assert registering.step(state, Look(SERVERS), 1.0, KEYS)[1] == (Announce(SERVERS, ("t",)),)


def test_who_comes_back_from_pre_online_is_told_of_whatever_has_hung_up_before() -> None:
    state = registered(Closed("a"), Returned())
    assert registering.step(state, Look(SERVERS), 1.0, KEYS)[1] == (Register(SERVERS),)
    # and who has this broker is not known before
    assert registering.step(state, Closed("b"), 1.0, KEYS) == (state, ())


def test_a_broker_that_nobody_acts_for_is_told_of_at_once() -> None:
    keys = registering.Settings(guarded=False)
    state, actions = registering.step(registered(), Closed("a"), 1.0, keys)
    assert actions == ()
    assert registering.step(state, Look(SERVERS), 1.0, keys)[1] == (Register(SERVERS),)
    # also when that changes while it waits
    state = registered(Closed("a"))
    assert registering.step(state, Look(SERVERS), 1.0, keys)[1] == (Register(SERVERS),)
