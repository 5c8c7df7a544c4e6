"""When a broker that name servers lose again and again stays away for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from understudy.broker.unheard import Unheard, lost

TIMEOUT, NOTICE = 10.0, 2.0


class Looks:
    """The losses of one broker, one after the other."""

    def __init__(self) -> None:
        self.state = Unheard()

    def may_return(self, now: float, told_at: float) -> bool:
        self.state, at_once = lost(self.state, now, told_at, TIMEOUT, NOTICE)
        return at_once


def test_losses_one_timeout_after_each_registration_keep_a_broker_away_for_one_timeout() -> None:
    unheard = Looks()
    # given two losses in a row, each when nothing was heard since the registration
    assert unheard.may_return(10.0, 0.0)
    assert not unheard.may_return(21.5, 11.0)
    away_until = unheard.state.away_until
    # then it stays away as often as it looks, returns after one timeout, and the count begins anew
    assert not unheard.may_return(31.4, 11.0)
    assert unheard.state.away_until == away_until == 31.5
    assert unheard.may_return(31.5, 11.0)
    assert unheard.may_return(42.0, 32.0)


def test_one_loss_counts_once_however_often_it_is_seen() -> None:
    unheard = Looks()
    assert all(unheard.may_return(10.0 + look / 10, 0.0) for look in range(20))


@given(some.lists(some.floats(0, 9.9) | some.floats(12.1, 1_000), max_size=30))
def test_losses_at_other_moments_never_keep_it_away(ages: list[float]) -> None:
    unheard, now = Looks(), 0.0
    for age in ages:
        told_at, now = now, now + age
        assert unheard.may_return(now, told_at)


@given(some.lists(some.floats(0, 30), max_size=40))
def test_nothing_keeps_it_away_for_longer_than_its_timeout(ages: list[float]) -> None:
    unheard, now = Looks(), 0.0
    for age in ages:
        told_at, now = now, now + age
        if not unheard.may_return(now, told_at):
            now += TIMEOUT
            assert unheard.may_return(now, told_at)
