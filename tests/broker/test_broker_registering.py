"""When and with whom a broker registers, decision by decision."""

from __future__ import annotations

from understudy.broker.registering import (
    RETRY_SECONDS,
    Announce,
    Answered,
    Begun,
    Changed,
    Closed,
    Event,
    Everything,
    Look,
    Register,
    Settings,
    State,
    TellResult,
    Told,
    step,
)

SERVERS = ("a", "b")
KEYS = Settings(heartbeats=False)


def after(state: State, *events: Event, now: float = 0.0) -> State:
    for event in events:
        state, _ = step(state, event, now, KEYS)
    return state


def told(state: State, now: float = 0.0) -> State:
    """Return the state after a round in which both name servers took everything."""
    answers = [Answered(each, TellResult.TOOK) for each in SERVERS]
    return after(state, Look(SERVERS), *answers, Told(everything=True), now=now)


def test_everything_is_told_at_the_start_and_in_turn() -> None:
    assert step(State(), Look(SERVERS), 0.0, KEYS)[1] == (Register(SERVERS),)
    state = told(State())
    assert step(state, Look(SERVERS), KEYS.period_seconds - 0.1, KEYS)[1] == ()
    assert state.wake_at == KEYS.period_seconds
    assert step(state, Look(SERVERS), KEYS.period_seconds, KEYS)[1] == (Register(SERVERS),)


def test_a_broker_that_may_not_be_found_tells_nothing_and_forgets_nothing() -> None:
    state, actions = step(State(), Look(SERVERS, withheld=True), 0.0, KEYS)
    assert (actions, state) == ((), State())


def test_a_name_server_that_missed_something_is_told_everything_later() -> None:
    state = after(State(), Look(SERVERS), Answered("a", TellResult.TOOK), Answered("b", TellResult.MISSED))
    state = after(state, Told(everything=True))
    assert state.wake_at == RETRY_SECONDS
    assert step(state, Look(SERVERS), RETRY_SECONDS - 0.1, KEYS)[1] == ()
    assert step(state, Look(SERVERS), RETRY_SECONDS, KEYS)[1] == (Register(("b",), regular=False),)
    # and when topics change meanwhile, it hears of more than those
    state = after(state, Changed(("t", "u")), Changed(("t",)))
    assert step(state, Look(SERVERS), 1.0, KEYS)[1] == (Announce(SERVERS, ("t", "u"), frozenset("b")),)


def test_a_name_server_that_is_slow_delays_nobody_and_is_told_everything_when_it_answers() -> None:
    # given one that has not answered the last time
    state = after(State(), Look(SERVERS), Answered("a", TellResult.TOOK), Told(everything=True))
    # when everything must be told again
    state, actions = step(after(state, Everything()), Look(SERVERS), 1.0, KEYS)
    assert actions == (Register(("a",)),)
    # then it is told as soon as it has answered, unless the broker may not be found any more
    answered = Answered("b", TellResult.MISSED)
    assert step(state, answered, 20.0, KEYS)[1] == (Register(("b",), regular=False),)
    hidden, actions = step(state, Answered("b", TellResult.MISSED, withheld=True), 20.0, KEYS)
    assert (actions, hidden.under_way) == ((), {"a"})
    # and nothing is under way when the service begins anew
    assert after(state, Begun()).under_way == frozenset()


def test_a_connection_that_ends_counts_only_where_the_broker_was_registered() -> None:
    state = told(State())
    assert after(state, Closed("a")).full
    assert not after(state, Closed("other")).full
    missed = after(State(), Look(SERVERS), Answered("a", TellResult.MISSED), Told(everything=True))
    assert not after(missed, Closed("a")).full
