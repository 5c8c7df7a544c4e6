"""Who of its slaves may give a master back what it lost from the end of its log, and what of their bytes follows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.log_history import Life, LogHistory
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.lost_end import (
    LostEnd,
    Reach,
    doubt,
    goes_on_ours,
    later_life,
    longest_first,
    most_of,
)
from understudy.ha.continuity import MismatchError
from understudy.ha.overlap import Overlap


def history(**starts: int) -> LogHistory:
    return LogHistory(tuple(Life(name, start) for name, start in starts.items()))


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 100)), max_size=4))
def test_who_has_most_is_asked_first_and_who_has_less_not_at_all(own_end: int, ends: list[tuple[int, int]]) -> None:
    found = longest_first(own_end, [Reach(Member(number, f"s{number}:1"), end) for number, end in ends])
    assert [each.end for each in found] == sorted((end for _, end in ends if end > own_end), reverse=True)


@pytest.mark.parametrize(
    ("own", "theirs", "compared", "believed"),
    [
        (history(a=0), history(a=0), True, True),
        (history(a=0), history(a=0), False, True),
        # of a replica that tells nothing bytes must do
        (history(a=0), history(), True, True),
        (history(a=0), history(), False, False),
        (history(a=0), history(b=0), False, False),
        # a slave that slept through the life which began here has other messages
        (history(a=0, b=100), history(a=0), True, False),
        # what comes before that life is the same
        (history(a=0, b=101), history(a=0), True, True),
        (history(a=0, b=101), history(a=0), False, True),
        # one that copied it and was not told of it yet shows it by its bytes
        (history(a=0, b=50), history(a=0), True, True),
        # what the master has forgotten
        (history(a=0), history(a=0, b=100), False, True),
        (history(a=0), history(a=0, b=50), False, False),
    ],
)
def test_histories_say_whose_bytes_may_follow(
    own: LogHistory, theirs: LogHistory, compared: bool, believed: bool
) -> None:
    assert (doubt(own, 100, theirs, compared=compared) == "") is believed


@pytest.mark.parametrize(
    ("own", "believed"),
    [
        (history(), True),
        (history(a=0), True),  # the life that it does not know began before the place where it begins
        (history(a=0, c=50), False),
        (history(c=0), False),
    ],
)
def test_a_slave_with_nothing_may_begin_anywhere_in_a_log_whose_lives_it_knows(own: LogHistory, believed: bool) -> None:
    assert (doubt(own, 100, history(a=0, b=50), compared=False, begins=True) == "") is believed


@pytest.mark.parametrize(
    ("own", "theirs", "most"),
    [
        (history(a=0), history(a=0), math.inf),
        (history(a=0), history(a=0, b=120), math.inf),
        (history(a=0, b=120), history(a=0), 120),
        (history(a=0, b=120), history(a=0, c=110), 110),
        (history(a=0, b=50), history(a=0), math.inf),
        (history(a=0), history(), math.inf),
    ],
)
def test_nothing_follows_that_comes_after_a_life_of_which_the_other_does_not_know(
    own: LogHistory, theirs: LogHistory, most: float
) -> None:
    assert most_of(own, 100, theirs) == most


@pytest.mark.parametrize(
    ("own", "own_end", "theirs", "their_end", "begins"),
    [
        (history(a=0), 120, history(a=0, b=50), 100, 50),
        # of that life it has nothing
        (history(a=0), 120, history(a=0, b=100), 100, None),
        (history(a=0, b=50), 120, history(a=0, b=50), 100, None),
        # of ours nothing is left
        (history(a=0, c=120), 120, history(a=0, b=50), 100, 50),
        (history(a=0, c=60), 120, history(a=0, b=50), 100, None),
        (history(a=0), 120, history(), 100, None),
    ],
)
def test_a_later_life_counts_as_far_as_there_are_bytes_of_it(
    own: LogHistory, own_end: int, theirs: LogHistory, their_end: int, begins: int | None
) -> None:
    assert later_life(own.within(own_end), theirs.within(their_end)) == begins


@pytest.mark.parametrize(
    ("own", "theirs", "empty", "mismatched", "goes_on"),
    [
        (history(a=0), history(a=0), False, False, True),
        (history(a=0), history(a=0, b=50), False, False, True),
        # ours has lost what its end was, and theirs has not
        (history(a=0), history(a=0, b=50), False, True, True),
        # bytes tell more than histories
        (history(a=0), history(a=0), False, True, False),
        (history(a=0, b=50), history(a=0), False, False, False),
        # nothing is known
        (history(a=0), history(), False, False, False),
        (history(), history(a=0), False, False, False),
        (history(), history(a=0), True, False, True),
    ],
)
def test_whose_log_is_ours_continued(
    own: LogHistory, theirs: LogHistory, empty: bool, mismatched: bool, goes_on: bool
) -> None:
    assert goes_on_ours(own, theirs, empty=empty, mismatched=mismatched) is goes_on


@given(st.binary(min_size=20, max_size=60), st.integers(1, 20), st.integers(0, 10), st.lists(st.integers(1, 9)))
def test_what_follows_the_own_end_is_taken_in_order_however_it_is_cut(
    log: bytes, own_end: int, before: int, cuts: list[int]
) -> None:
    start = max(own_end - before, 0)
    overlap = Overlap(start, log[start:own_end]) if start < own_end else None
    lost, own = LostEnd(own_end, overlap), bytearray(log[:own_end])
    for size in (*cuts, len(log)):
        for frame in lost.take(log[lost.position : lost.position + size]):
            assert frame.offset == len(own)
            own += frame.body
    assert own == log


@given(st.binary(min_size=20, max_size=60), st.integers(1, 20), st.data())
def test_nothing_is_taken_from_a_log_with_other_bytes(log: bytes, own_end: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, own_end - 1))
    lost = LostEnd(own_end, Overlap(0, log[:at] + bytes([log[at] ^ 1]) + log[at + 1 : own_end]))
    with pytest.raises(MismatchError, match="other bytes"):
        lost.take(log)
