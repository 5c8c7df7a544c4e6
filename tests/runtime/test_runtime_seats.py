"""Seats of a port: no host shuts others out, and what says nothing gives way to newcomers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
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
