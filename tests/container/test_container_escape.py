"""Where a message goes that a slave may not store, and what the answers mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.redelivery import STORED
from understudy.container.escape.choice import (
    LocalMaster,
    NoPlace,
    Queue,
    Remote,
    java_hash,
    local_queue,
    locals_in_order,
    named,
    put_status,
    read_outcome,
    remote,
)
from understudy.store.status import PutStatus

QUEUES = [Queue("a", 0), Queue("a", 1), Queue("b", 0), Queue("b", 1)]
MASTERS = {"a": "10.0.0.1:10911", "b": "10.0.0.2:10911"}


def test_masters_of_the_container_that_have_the_topic_come_first_and_the_own_group_never() -> None:
    offers = [
        LocalMaster("own", True, 4),
        LocalMaster("without", True, 0),
        LocalMaster("hidden", False, 4),
        LocalMaster("with", True, 2),
    ]
    assert [each.broker_name for each in locals_in_order("own", offers)] == ["with", "without"]
    assert local_queue(offers[3], 5) == 1


@given(st.integers(0, 1000), st.sampled_from([None, "topic/10.0.0.1:10911"]))
def test_the_other_group_gets_it(turn: int, specific: str | None) -> None:
    place = remote("a", QUEUES, MASTERS, turn, specific=specific)
    assert isinstance(place, Remote)
    assert (place.broker_name, place.address) == ("b", MASTERS["b"])


def test_messages_that_belong_together_find_the_same_queue_and_others_take_turns() -> None:
    same = {remote("x", QUEUES, MASTERS, turn, specific="key") for turn in range(20)}
    turns = {remote("x", QUEUES, MASTERS, turn) for turn in range(20)}
    assert (len(same), len(turns)) == (1, 4)


@pytest.mark.parametrize(
    ("place", "status"),
    [
        (remote("a", QUEUES, MASTERS, 0, allowed=False), PutStatus.SERVICE_NOT_AVAILABLE),
        (remote("a", QUEUES[:2], MASTERS, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
        (remote("a", QUEUES, {}, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
        (named("a", "a", MASTERS, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
        (named("a", "c", MASTERS, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
    ],
)
def test_without_a_place_the_status_says_so(place: Remote | NoPlace, status: PutStatus) -> None:
    assert isinstance(place, NoPlace)
    assert place.status is status
    assert place.why


def test_a_named_group_with_an_address_is_chosen() -> None:
    assert named("a", "b", MASTERS, 3) == Remote("b", MASTERS["b"], 3)


@pytest.mark.parametrize(("code", "stored"), [(0, True), (10, True), (11, True), (12, True), (14, False), (1, False)])
def test_stored_is_stored_even_when_a_copy_or_flush_is_late(code: int, stored: bool) -> None:
    assert (put_status(code) in STORED) is stored


@pytest.mark.parametrize(
    ("code", "expected"), [(19, ("no msg", False)), (20, ("no msg", False)), (1, ("other resp code", True))]
)
def test_what_a_pull_without_a_message_means(code: int, expected: tuple[str, bool]) -> None:
    assert read_outcome(code) == expected


@pytest.mark.parametrize(("text", "value"), [("", 0), ("abc", 96354), ("rmq_sys_REVIVE_LOG_c/10.0.0.1:10911", None)])
def test_the_hash_is_javas(text: str, value: int | None) -> None:
    found = java_hash(text)
    assert -(1 << 31) <= found < 1 << 31
    assert value is None or found == value
