"""All that comes in one receive is checked, and handshakes of controller mode are never taken for offsets."""

from __future__ import annotations

import struct

import pytest
import trio
from ha_rig import Log, master_of, played_master, slave_of
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.ha import replicas, wire
from understudy.ha.replicas import AheadError, Replica
from understudy.testkit.sim.network import SimNetwork

FOUR_GIB = 1 << 32
# Offsets that the first half of a handshake looks like; one that comes first is kept back.
DOUBTFUL = [FOUR_GIB + flags for flags in (0, 1, 1 << 16, (1 << 16) + 1)]
# Captured from 5.4.0: a slave with broker id 2; a master with the epoch list (1, 0) and an empty log.
SLAVE_HANDSHAKE = bytes.fromhex("00000001000000000000000000000002")
MASTER_HANDSHAKE = bytes.fromhex("000000010000000c000000000000000000000001" + "000000010000000000000000")


def feed_in_pieces(reader: wire.ReportReader, data: bytes, cuts: set[int]) -> list[int]:
    """Feed *data* cut at *cuts* as a master does and return every offset that was taken."""
    found, at = [], 0
    for cut in sorted(cuts | {len(data)}):
        offset = reader.feed(data[at:cut])
        found += [] if offset is None else [offset]
        at = cut
    return found


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20).filter(lambda offsets: offsets[0] not in DOUBTFUL),
    st.sets(st.integers(1, 159)),
)
def test_reports_cut_anywhere_end_at_the_largest(offsets: list[int], cuts: set[int]) -> None:
    data = b"".join(wire.report(offset) for offset in offsets)
    reader = wire.ReportReader()
    found = feed_in_pieces(reader, data, {cut for cut in cuts if cut < len(data)})
    assert max(offsets) == max(found)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 20), st.sampled_from([-1, -(1 << 62), 1 << 40]))
def test_one_hostile_report_among_honest_ones_is_found(offsets: list[int], at: int, claim: int) -> None:
    # given honest reports with one claim among them, all in one receive
    hostile = [*offsets[:at], claim, *offsets[at:]]
    # then none of them counts
    with pytest.raises((wire.WireError, AheadError)):
        largest = wire.ReportReader().feed(b"".join(wire.report(offset) for offset in hostile))
        assert largest is not None
        replicas.reported(Replica(), largest, 1000)


@given(st.integers(0, 3), st.integers(0, 1 << 31), st.sets(st.integers(1, 15)), st.booleans())
def test_a_handshake_of_controller_mode_is_never_an_offset(
    flags: int, broker_id: int, cuts: set[int], slow: bool
) -> None:
    data = struct.pack(">ihhq", 1, flags >> 1, flags & 1, broker_id)
    reader = wire.ReportReader()
    with pytest.raises(wire.WireError, match=rf"handshake of a slave in controller mode \(broker id {broker_id}\)"):
        at = 0
        for cut in sorted(cuts | {len(data)}):
            assert reader.feed(data[at:cut]) is None
            at = cut
            if slow and reader.undecided:  # its second half is late: the first is a report, but its next is none
                assert reader.settle() == FOUR_GIB + ((flags >> 1) << 16) + (flags & 1)
                slow = False


@given(st.sampled_from(DOUBTFUL), st.integers(0, 1 << 20), st.booleans())
def test_a_log_that_ends_after_4_gib_is_reported_as_any_other(first: int, growth: int, together: bool) -> None:
    second = first + growth
    reader = wire.ReportReader()
    if together:
        assert second == reader.feed(wire.report(first) + wire.report(second))
        return
    assert reader.feed(wire.report(first)) is None and reader.undecided
    assert first == reader.settle()
    assert not reader.undecided
    assert second == reader.feed(wire.report(second))


async def test_a_slave_at_4_gib_is_served_within_a_moment(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with master_of(network, Log(b"x" * 100, base=FOUR_GIB)) as master:
        theirs = Log()
        theirs.base = FOUR_GIB
        theirs.data = bytearray()
        async with slave_of(network, theirs):
            await trio.sleep(2)
            assert (2, FOUR_GIB + 100) == (master.in_sync_count(), theirs.max_physical_offset)


async def test_a_slave_in_controller_mode_is_refused_with_one_line_that_says_so(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    # given a master whose log is long enough for the handshake to be an offset in it
    async with master_of(network, Log(b"x" * 100_000, base=FOUR_GIB - 4096)) as master:
        told = trio.Event()
        master.acknowledged.append(told.set)
        for pieces in ([SLAVE_HANDSHAKE], [SLAVE_HANDSHAKE[:8], SLAVE_HANDSHAKE[8:]]):
            caplog.clear()
            stream = await network.host("h").connect("m", 10912, 1)
            for piece in pieces:
                await stream.send_all(piece)
                await trio.sleep(0.2)
            assert b"" == await stream.receive_some(100)
            (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
            assert "peer=h:" in line and "controller mode (broker id 2)" in line and "enableControllerMode" in line
            assert (0, False) == (master.connection_count, told.is_set())


@pytest.mark.parametrize("data", [b"", b"y" * 100], ids=["empty", "with data"])
async def test_a_slave_refuses_the_handshake_of_a_master_in_controller_mode(
    data: bytes, network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = Log(data)
    async with slave_of(network, theirs) as slave:
        listener = await played_master(network)
        stream = await listener.accept()
        await stream.send_all(MASTER_HANDSHAKE)
        assert wire.report(1 if data else 0) == await stream.receive_some(8)
        assert b"" == await stream.receive_some(8)
        assert data == theirs.data
        assert "a handshake of controller mode" in slave.progress().refusal
        assert 1 == sum(each.levelname == "ERROR" for each in caplog.records)


async def test_a_hostile_frame_behind_good_ones_of_the_same_receive_spoils_them_all(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    theirs = Log(b"y" * 100)
    async with slave_of(network, theirs) as slave:
        listener = await played_master(network)
        stream = await listener.accept()
        known = wire.header(1, 99) + b"y" * 99
        good = known + wire.header(100, 10) + b"z" * 10 + wire.header(110, 0)
        await stream.send_all(good + wire.header(50, 10) + b"!" * 10 + wire.header(110, 10) + b"z" * 10)
        assert wire.report(1) == await stream.receive_some(8)
        assert b"" == await stream.receive_some(8)
        assert b"y" * 100 == theirs.data
        assert "our log ends at 110, the master sends from 50" in slave.progress().refusal
