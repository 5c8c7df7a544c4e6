"""Seats of a port: no host shuts others out, and what says nothing gives way to newcomers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.runtime.seats import Seat, Seats


def nothing() -> None:
    return None


def test_a_single_host_gets_half_and_a_newcomer_finds_room() -> None:
    seats = Seats(16)
    held = [seats.take("greedy", nothing) for _ in range(30)]
    for seat in held:
        if seat is not None:
            seat.kept = True
    assert 8 == len(seats)
    assert seats.take("other", nothing) is not None


def test_the_oldest_that_is_not_kept_gives_way_to_a_newcomer_of_its_host() -> None:
    seats, left = Seats(4), list[int]()
    first, second = (seats.take("a", lambda number=number: left.append(number)) for number in (1, 2))
    assert first is not None and second is not None
    first.kept = True
    third = seats.take("a", nothing)
    assert third is not None and [2] == left
    third.kept = True
    # all that the host may hold are kept: one more is refused, and ends nothing
    assert seats.take("a", nothing) is None
    assert (1, [2]) == (seats.refused, left)
    # a seat that a newcomer has got is not given back twice
    seats.give_back(second)
    assert 2 == len(seats)


def test_a_host_without_a_seat_gets_one_of_those_that_say_nothing() -> None:
    seats, left = Seats(4), list[str]()
    for host in "abcd":
        assert seats.take(host, lambda host=host: left.append(host)) is not None
    assert seats.take("e", nothing) is not None
    assert ["a"] == left


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=60), st.integers(1, 9))
def test_never_more_than_there_are_and_each_is_ended_once(steps: list[tuple[str, bool, bool]], most: int) -> None:
    seats, ended, held = Seats(most), Counter[int](), dict[int, Seat]()

    def leave(number: int) -> None:
        ended[number] += 1
        assert not held.pop(number).kept

    for number, (host, kept, gives_back) in enumerate(steps):
        if gives_back and held:
            seats.give_back(held.pop(min(held)))
            continue
        seat = seats.take(host, lambda number=number: leave(number))
        if seat is not None:
            seat.kept = kept
            held[number] = seat
        else:
            # refused only where nobody who could give way holds a seat that is not kept
            assert all(each.kept for each in held.values() if each.host == host)
            assert host in {each.host for each in held.values()} or all(each.kept for each in held.values())
        assert len(held) == len(seats) <= most
    assert set(ended.values()) <= {1}


@given(
    silent=st.lists(st.sampled_from([f"10.0.0.{number}" for number in range(8)]), max_size=60),
    kept=st.integers(0, 8),
    most=st.integers(1, 16),
)
@example(silent=[f"10.0.0.{n}" for n, count in enumerate((8, 4, 2, 1)) for _ in range(count)], kept=1, most=16)
def test_a_host_that_holds_less_than_the_greatest_silent_one_gets_in(silent: list[str], kept: int, most: int) -> None:
    # given hosts that say nothing, one after the other, and a newcomer's host with seats of its own that are kept
    seats, held = Seats(most), Counter[str]()

    def come(host: str) -> Seat | None:
        def leave() -> None:
            held[host] -= 1

        seat = seats.take(host, leave)
        held[host] += seat is not None
        return seat

    for _ in range(kept):
        own = come("ours")
        if own is not None:
            own.kept = True
    for host in silent:
        come(host)
    mine, greatest = held["ours"], max((held[host] for host in silent), default=0)
    # then it gets one more while the greatest of them holds more than it does
    if mine < greatest:
        assert come("ours") is not None
    assert len(seats) <= most
    assert mine <= held["ours"]  # and lost none


def test_who_makes_progress_gives_way_after_those_that_stand_still() -> None:
    seats, left = Seats(4), list[int]()
    first = seats.take("a", lambda: left.append(1))
    assert seats.take("a", lambda: left.append(2)) is not None
    assert first is not None
    seats.moved(first)
    assert seats.take("a", nothing) is not None and seats.take("a", nothing) is not None
    assert [2, 1] == left
    # one that has gone stays away
    seats.moved(first)
    assert 2 == len(seats)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("fe80::1%eth0", "fe80::1%eth1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("a name", "another", False),
    ],
)
def test_a_host_of_ipv6_is_its_64(one: str, other: str, same: bool) -> None:
    seats, left = Seats(2), list[str]()
    assert seats.take(one, lambda: left.append(one)) is not None
    # of two seats a host may have one: a second connection costs the first its seat
    assert seats.take(other, nothing) is not None
    assert ([one] if same else []) == left
