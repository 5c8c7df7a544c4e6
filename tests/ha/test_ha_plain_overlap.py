"""The end of a slave's log is compared with its master's before anything follows it."""

from __future__ import annotations

import itertools
import random

import pytest
import trio
from ha_rig import FILE, Log, master_of, slave_of
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.ha.continuity import MismatchError
from understudy.ha.overlap import COMPARED_BYTES, Overlap, end_of
from understudy.ha.wire import Transfer
from understudy.store.walk import VOID_TOPIC
from understudy.testkit.sim.network import SimNetwork

OURS = random.Random(3).randbytes(200)
START = 1_000
END = START + len(OURS)


def frames_of(data: bytes, cuts: set[int]) -> list[Transfer]:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [Transfer(START + at, data[at:to]) for at, to in itertools.pairwise(places)]


@given(more=st.binary(max_size=50), cuts=st.sets(st.integers(1, 240), max_size=6), at_once=st.booleans())
def test_what_follows_our_end_is_what_is_left(more: bytes, cuts: set[int], at_once: bool) -> None:
    overlap, frames, rest = Overlap(START, OURS), frames_of(OURS + more, cuts), list[Transfer]()
    for some in [frames] if at_once else [[each] for each in frames]:
        rest += some if overlap.position == END else overlap.take(some, 0)
    assert overlap.position == overlap.end == END
    assert rest[0].offset == END
    assert b"".join(bytes(each.body) for each in rest) == more


@given(at=st.integers(0, len(OURS) - 1), cuts=st.sets(st.integers(1, 199), max_size=3))
def test_one_other_byte_is_enough_to_refuse_a_master(at: int, cuts: set[int]) -> None:
    theirs = bytearray(OURS)
    theirs[at] ^= 1
    with pytest.raises(MismatchError, match=f"other bytes at {START + at}:.*another history.*move this store away"):
        Overlap(START, OURS).take(frames_of(bytes(theirs), cuts), 0)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_damage_that_either_side_made_void_is_no_other_history(whose: str) -> None:
    void = bytearray(OURS)
    void[50:92] = bytes(32) + bytes([len(VOID_TOPIC)]) + VOID_TOPIC + bytes(2)
    ours, theirs = (bytes(void), OURS) if whose == "ours" else (OURS, bytes(void))
    assert Overlap(START, ours).take([Transfer(START, theirs)], 0) == [Transfer(END, b"")]
    # what stands behind it must be the same
    with pytest.raises(MismatchError, match=f"other bytes at {END - 1}:"):
        Overlap(START, ours).take([Transfer(START, theirs[:-1] + b"?")], 0)


def test_a_master_that_begins_elsewhere_or_has_no_more_is_refused() -> None:
    for frame in (Transfer(START - 1, OURS), Transfer(END, b""), Transfer(END, b"more")):
        with pytest.raises(MismatchError, match=f"was asked from {START} on and sends from {frame.offset}"):
            Overlap(START, OURS).take([frame], 0)
    overlap = Overlap(START, OURS)
    assert overlap.take([Transfer(START, OURS[:80])], 0) == []
    assert overlap.take([Transfer(START + 80, b"")], 1.0) == []  # held back by its flow control
    with pytest.raises(MismatchError, match=f"has nothing from {START + 80} on: this slave is ahead"):
        overlap.take([Transfer(START + 80, b"")], 5.0)


@pytest.mark.parametrize(
    ("base", "size", "start"),
    [
        (0, 100, 1),  # 0 is what an empty slave asks from
        (0, 10 * FILE, 9 * FILE),  # a file that is full is compared itself, not the next one, which has nothing
        (9 * FILE, FILE, 9 * FILE),
        (0, FILE + 50, FILE),
        (8_192, 50, 8_192),
        (0, 1, None),
    ],
)
def test_where_a_comparison_begins(base: int, size: int, start: int | None) -> None:
    overlap = end_of(Log(b"x" * size, base), FILE)
    assert (None if overlap is None else overlap.position) == start
    assert overlap is None or overlap.end == base + size


def test_of_a_large_file_only_the_end_is_compared() -> None:
    log = Log(random.Random(1).randbytes(3_000))
    overlap = end_of(log, 1 << 30)
    assert overlap is not None and overlap.position == 1
    assert COMPARED_BYTES < 1 << 20


def test_zeros_that_fill_a_file_are_compared_with_what_stands_before_them() -> None:
    file_bytes = 1 << 20

    class Filled(Log):
        def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
            return memoryview(self.data)[physical_offset : physical_offset + max_bytes]

    for zeros in (0, 100, COMPARED_BYTES, 300_000, file_bytes - 5_000, file_bytes - 2_000):
        log = Filled(b"\1" * (file_bytes - zeros) + bytes(zeros))
        overlap = end_of(log, file_bytes)
        assert overlap is not None
        assert overlap.position <= max(file_bytes - zeros - COMPARED_BYTES, 1)
        assert overlap.end == file_bytes


async def test_a_log_that_ends_with_a_file_is_compared_before_another_history_follows_it(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    # given a slave whose log ends exactly with a file, and a master that has lost its end and gone on
    theirs = Log(b"s" * (FILE - 80) + b"lost" * 20)
    ours = Log(b"s" * (FILE - 80) + b"else" * 40)
    async with master_of(network, ours), slave_of(network, theirs) as slave:
        await trio.sleep(5)
        # then nothing of it is taken
        assert len(theirs.data) == FILE
        assert f"has other bytes at {FILE - 80}" in slave.progress().refusal
    # and a master with the same history is followed from the border on
    theirs, ours = Log(b"s" * FILE), Log(b"s" * FILE + b"more")
    async with master_of(network, ours), slave_of(network, theirs):
        await trio.sleep(5)
        assert ours.data == theirs.data


async def test_a_master_with_other_messages_is_refused_however_long_its_log_is(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    same, theirs = b"s" * 500, Log(b"s" * 500 + b"lost" * 20)
    ours = Log(same)
    async with master_of(network, ours) as master, slave_of(network, theirs) as slave:
        # given a master that has lost what its slave has: both sides say so
        await trio.sleep(3)
        assert "80 bytes after the master's" in caplog.text
        # when it stores something else, up to our end and beyond
        for _ in range(50):
            ours.append(b"else")
            await trio.sleep(1)
        # then nothing of it is taken
        assert same + b"lost" * 20 == theirs.data
        assert "has other bytes at 500" in slave.progress().refusal
        assert master.in_sync_count() == 1
