"""Controllers that hear no broker of a group may be the ones who are cut off: what they make of it."""

from __future__ import annotations

import pytest

from understudy.controller.election import Live
from understudy.controller.liveness import UNKNOWN_PATIENCE_SECONDS, BrokerKey, Heartbeat, Liveness

TIMEOUT, INTERVAL = 10.0, 1.0
IDS = (1, 2, 3)
MASTER = 1


class Group:
    """Heartbeats of one group, and what comes of them."""

    def __init__(self) -> None:
        self.liveness = Liveness(0.0)

    def hear(self, now: float, *ids: int, interval: float = INTERVAL, incarnation: str = "x") -> list[bool]:
        facts = Live(incarnation=incarnation)
        return [
            self.liveness.heartbeat(
                BrokerKey("C", "a", one), Heartbeat("10.0.0.1:1", now, TIMEOUT, f"c{one}", facts, interval)
            )
            for one in ids
        ]

    def expire(self, now: float) -> list[int]:
        return [key.broker_id for key in self.liveness.expire(now)]

    def fresh(self, now: float) -> list[int]:
        return sorted(self.liveness.fresh("a", now))

    def may_be_cut_off(self, now: float) -> bool:
        return self.liveness.may_be_cut_off("a", IDS, MASTER, now)

    def may_live(self, now: float) -> bool:
        return self.liveness.maybe_alive("a", MASTER, now)


@pytest.fixture
def group() -> Group:
    """All three have just been heard, at second 100."""
    group = Group()
    group.hear(100.0, *IDS)
    return group


def test_nobody_is_elected_on_the_word_of_old_heartbeats(group: Group) -> None:
    assert group.fresh(103.0) == [1, 2, 3]
    assert group.fresh(103.1) == []
    assert sorted(group.liveness.alive("a", 110.0)) == [1, 2, 3]
    # who does not say how often it sends them gets half of the time after which it is missed
    group.hear(100.0, 2, interval=0.0)
    assert group.fresh(105.0) == [2]
    # nor is anybody old who sends them more seldom than he is missed
    group.hear(100.0, 3, interval=60.0)
    assert group.fresh(110.0) == [3]


def test_a_heartbeat_after_a_pause_is_a_reason_to_look_whether_it_is_needed(group: Group) -> None:
    assert group.hear(101.0, 2) == [False]
    assert group.hear(105.0, 2) == [True]
    assert group.hear(105.5, 2) == [False]


def test_a_master_that_is_missed_while_others_are_heard_is_gone(group: Group) -> None:
    for now in range(101, 111):
        group.hear(now, 2, 3)
    assert group.expire(110.1) == [MASTER]
    assert not group.may_be_cut_off(110.1)


def test_while_nobody_is_heard_all_may_live(group: Group) -> None:
    group.hear(100.2, 2, 3)
    assert group.expire(110.1) == [MASTER]
    assert group.may_be_cut_off(110.1)  # the others will be heard, or missed
    assert group.expire(110.3) == [2, 3]
    assert group.may_be_cut_off(1000.0)


def test_a_master_whose_connection_has_ended_is_gone(group: Group) -> None:
    group.liveness.connection_closed("c1")
    assert not group.may_be_cut_off(100.0)
    # the others have not been heard since: what they said is too old, but they are not missed yet
    assert group.may_be_cut_off(104.0)
    assert group.expire(110.1) == [2, 3]
    assert not group.may_be_cut_off(110.1)


def test_when_the_first_one_is_heard_again_the_others_get_a_moment_more(group: Group) -> None:
    assert group.expire(111.0) == [1, 2, 3]
    assert group.hear(120.0, 2) == [True]
    assert group.may_live(122.9)
    assert group.fresh(120.0) == [2]  # only who was heard may be elected
    assert group.liveness.next_expiry(120.0) == 123.0
    assert group.expire(123.1) == [1, 3]
    assert not group.may_live(123.1)
    # and no second one, for who is heard now is heard with others
    group.hear(123.2, 2)
    assert not group.may_live(123.2)


def test_they_get_it_once_though_the_first_one_is_missed_between_its_heartbeats(group: Group) -> None:
    for now in (111.0, 122.0, 133.0):
        group.expire(now - 0.5)
        group.hear(now, 2, interval=11.0)
        assert group.may_live(now + 0.1) == (now == 111.0)
    # but when they have been heard again they get another one
    group.hear(134.0, MASTER)
    group.expire(150.0)
    group.hear(150.0, 2, interval=11.0)
    assert group.may_live(150.1)


def test_a_controller_whose_process_stood_still_gives_the_others_a_moment_too(group: Group) -> None:
    group.hear(125.0, 2)  # is read before anybody is found to be missed
    assert group.expire(125.0) == []
    assert group.may_live(128.0)
    assert group.expire(128.1) == [1, 3]
    assert not group.may_live(128.1)


def test_a_controller_that_never_heard_anybody_gives_a_moment_too() -> None:
    group = Group()
    assert not group.may_live(60.0)
    group.hear(60.0, 2)
    assert group.may_live(62.9)
    assert group.liveness.next_expiry(60.0) == 63.0
    assert group.liveness.moments_over(62.9) == []
    assert not group.may_live(63.0)
    assert group.liveness.moments_over(63.0) == ["a"]
    assert group.liveness.moments_over(63.1) == []
    # and no second one: the first one to be heard is heard again and again
    group.expire(71.0)
    group.hear(71.0, 2)
    assert not group.may_live(71.0)
    # until the group is forgotten
    group.liveness.forget("a", None)
    group.hear(80.0, 2)
    assert group.may_live(80.0)


def test_who_waits_for_an_election_gets_none() -> None:
    group = Group()
    group.liveness.waits("a", MASTER, 50.0)
    group.hear(60.0, 2)
    assert not group.may_live(60.0)


def test_who_was_missed_for_the_end_of_its_connection_gets_none(group: Group) -> None:
    group.liveness.connection_closed("c1")
    assert group.expire(111.0) == [2, 3]
    group.hear(120.0, 2)
    assert not group.may_live(120.0)


def test_a_broker_that_has_registered_and_is_silent_waits_for_an_election(group: Group) -> None:
    group.expire(111.0)
    assert not group.liveness.registers("a", MASTER, "x", 120.0)
    assert group.may_be_cut_off(122.9)  # its heartbeat may be on its way
    assert group.liveness.next_expiry(120.0) == 123.0
    assert group.liveness.waiting_newcomers(122.9) == []
    assert group.liveness.waiting_newcomers(123.0) == [("a", MASTER)]
    assert not group.may_be_cut_off(123.0)
    group.hear(124.0, MASTER)
    assert group.liveness.waiting_newcomers(130.0) == []


def test_it_may_register_and_ask_before_it_is_missed(group: Group) -> None:
    group.liveness.registers("a", MASTER, "x", 101.0)
    group.liveness.waits("a", MASTER, 104.0)
    group.expire(111.0)
    assert not group.may_be_cut_off(111.0)


@pytest.mark.parametrize("broker_id", IDS)
def test_a_living_broker_that_registered_last_before_an_outage_does_not_wait(group: Group, broker_id: int) -> None:
    group.liveness.registers("a", broker_id, "x", 100.5)
    group.liveness.waits("a", broker_id, 102.9)
    assert group.liveness.next_expiry(103.0) == 110.0
    group.expire(111.0)
    assert group.may_be_cut_off(1000.0)


def test_a_slave_that_died_before_its_first_heartbeat_is_no_sign_that_the_master_waits() -> None:
    group = Group()
    group.liveness.registers("a", 3, "x", 1.0)
    group.hear(100.0, MASTER, 2)
    group.expire(111.0)
    assert group.may_be_cut_off(111.0)


def test_who_was_never_heard_and_registers_is_given_a_moment() -> None:
    group = Group()
    assert group.may_be_cut_off(100.0)
    assert not group.liveness.registers("a", MASTER, "", 100.0)
    assert group.may_be_cut_off(100.0 + UNKNOWN_PATIENCE_SECONDS - 0.1)
    assert not group.may_be_cut_off(100.0 + UNKNOWN_PATIENCE_SECONDS)
    group.liveness.forget("a", None)
    assert group.liveness.next_expiry(0.0) is None


@pytest.mark.parametrize(
    ("missed", "incarnation"), [(False, "y"), (True, "y"), (True, "")], ids=["alive", "missed", "says nothing of it"]
)
def test_who_registers_with_another_store_has_ended_its_former_life(
    group: Group, missed: bool, incarnation: str
) -> None:
    if missed:
        group.expire(111.0)
    assert group.liveness.registers("a", MASTER, incarnation, 111.0)
    assert not group.liveness.registers("a", MASTER, incarnation, 111.1)
    assert not group.may_live(111.0)
    group.expire(111.0)
    assert not group.may_be_cut_off(111.0)
    assert group.liveness.connection_closed("c1") == []


@pytest.mark.parametrize("incarnation", ["x", ""])
def test_a_living_broker_that_registers_once_more_lives(group: Group, incarnation: str) -> None:
    assert not group.liveness.registers("a", MASTER, incarnation, 101.0)
    assert group.fresh(101.0) == [1, 2, 3]
