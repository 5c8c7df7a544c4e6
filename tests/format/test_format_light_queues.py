"""What the properties of a message say about light queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.light_queues import (
    NAME_BYTES_MAX,
    NAMES,
    NAMES_MAX,
    OFFSETS,
    LightQueueError,
    divides,
    entries,
    takes_offsets,
    wanted,
    with_offsets,
    without_offsets,
)
from understudy.format.properties import find_property, parse_properties


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        (b"%LMQ%a", b"0", [(b"%LMQ%a", 0)]),
        (b"%LMQ%a,%LMQ%b", b"7,12", [(b"%LMQ%a", 7), (b"%LMQ%b", 12)]),
        (b"%LMQ%a,", b"3", [(b"%LMQ%a", 3)]),  # empty ends do not count
        (b"%LMQ%a,%LMQ%a", b"3,3", [(b"%LMQ%a", 3)]),  # once
        (b"%LMQ%a/b,%LMQ%c", b"1,2", [(b"%LMQ%c", 2)]),  # no folder
        (b"%LMQ%a,%LMQ%b", b"1", []),  # fewer offsets than names
        (b"%LMQ%a", b"1,2", []),  # more
        (b"%LMQ%a,plain", b"1,", []),  # what the reference stores for a name that is no light queue
        (b"plain,%LMQ%a", b",1", [(b"%LMQ%a", 1)]),
        (b"plain", b"4", [(b"plain", 4)]),  # of older versions, which numbered those, too
        (b"%LMQ%a", b"", []),
        (b" ", b" ", []),
        (b"%LMQ%a,%LMQ%b", b"-1,x", []),
    ],
)
def test_a_record_says_where_it_stands_by_as_many_offsets_as_names(
    names: bytes, offsets: bytes, expected: list[tuple[bytes, int]]
) -> None:
    assert entries(names, offsets) == expected


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (b"", "names no queue"),
        (b",,", "names no queue"),
        (b"plain", "'plain' is no light queue"),
        (b"%LMQ%a,,%LMQ%b", "'' is no light queue"),
        (b"%LMQ%a, %LMQ%b", "' %LMQ%b' is no light queue"),
        (b"%LMQ%a/../b", "leave out slashes"),
        (b"%LMQ%a\0", "zero bytes"),
        (b"%LMQ%" + b"x" * NAME_BYTES_MAX, f"the longest has {NAME_BYTES_MAX}"),
        (b",".join([b"%LMQ%a"] * (NAMES_MAX + 1)), f"in {NAMES_MAX} at most"),
    ],
)
def test_a_sender_is_told_what_is_wrong_with_its_names(names: bytes, why: str) -> None:
    with pytest.raises(LightQueueError) as refused:
        wanted(names)
    assert why in str(refused.value)


def test_names_are_taken_in_the_order_of_the_sender_and_as_often() -> None:
    assert wanted("%LMQ%b,%LMQ%a,%LMQ%b,%LMQ%é,".encode()) == ["%LMQ%b", "%LMQ%a", "%LMQ%b", "%LMQ%é"]


@pytest.mark.parametrize(
    ("topic", "read", "numbered"),
    [
        ("Parent", True, True),
        ("%RETRY%group", False, False),
        ("%DLQ%group", True, False),
        ("rmq_sys_wheel_timer", False, False),
        ("SCHEDULE_TOPIC_XXXX", False, False),
    ],
)
def test_what_waits_or_was_given_up_is_not_numbered(topic: str, read: bool, numbered: bool) -> None:
    assert (divides(topic), takes_offsets(topic)) == (read, numbered)


_texts = st.text(st.characters(blacklist_characters="\x01\x02", codec="utf-8"), min_size=1)


@given(st.dictionaries(_texts, _texts), st.lists(st.integers(0, 1 << 62), min_size=1), st.booleans())
def test_offsets_are_put_behind_the_other_properties_and_taken_away_again(
    pairs: dict[str, str], offsets: list[int], ended: bool
) -> None:
    # Given properties with names of light queues and without offsets, with or without their last end
    pairs["INNER_MULTI_DISPATCH"] = ",".join(f"%LMQ%{number}" for number in range(len(offsets)))
    pairs.pop("INNER_MULTI_QUEUE_OFFSET", None)
    before = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items()).encode() + b"\x02" * ended

    # When offsets are added
    after = with_offsets(before, offsets)

    # Then every reader finds them, and everything else as it was
    found_names, found_offsets = find_property(after, NAMES), find_property(after, OFFSETS)
    assert found_names is not None and found_offsets is not None
    assert entries(found_names, found_offsets) == [
        (b"%%LMQ%%%d" % number, offset) for number, offset in enumerate(offsets)
    ]
    # and without them it is what it was before
    assert parse_properties(without_offsets(after)) == parse_properties(before)
