"""The plain replication wire and the rules over offsets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.ha import replicas, wire
from understudy.ha.replicas import AheadError, Replica

MIB = 1024 * 1024


def test_the_frames_are_those_captured_from_5_4_0() -> None:
    assert bytes.fromhex("000000000000045b") == wire.report(0x45B)
    assert bytes.fromhex("00000000000000000000045b") == wire.header(0, 0x45B)
    assert bytes.fromhex("000000000000045b00000000") == wire.header(0x45B, 0)


@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.binary(max_size=50)), max_size=10), st.data())
def test_transfers_cut_anywhere_are_the_same_transfers(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(wire.header(offset, len(body)) + body for offset, body in frames)
    reader, found, at = wire.TransferReader(), list[wire.Transfer](), 0
    while at < len(stream):
        size = data.draw(st.integers(1, 40))
        found += reader.feed(stream[at : at + size])
        at += size
    assert [wire.Transfer(offset, body) for offset, body in frames] == found


def test_of_several_reports_the_last_complete_one_counts() -> None:
    reader = wire.ReportReader()
    assert reader.feed(wire.report(1) + wire.report(2) + wire.report(3)[:5]) == 2
    assert reader.feed(b"") is None
    assert reader.feed(wire.report(3)[5:]) == 3


@pytest.mark.parametrize(
    "data", [wire.header(-1, 0), wire.header(0, -1), wire.header(0, wire.LARGEST_BODY_BYTES + 1), b"GET / HTTP/1.1\r\n"]
)
def test_a_hostile_master_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.TransferReader().feed(data)


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(wire.WireError, match="below zero"):
        wire.ReportReader().feed(wire.report(-5))


@given(st.binary(max_size=100))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    try:
        found = wire.TransferReader().feed(data)
    except wire.WireError as error:
        assert str(error)
    else:
        assert all(transfer.offset >= 0 for transfer in found)


@pytest.mark.parametrize("claim", [101, 1 << 40])
def test_a_slave_ahead_of_its_master_is_refused_and_counts_for_nothing(claim: int) -> None:
    with pytest.raises(AheadError, match="move the slave's store away"):
        replicas.reported(Replica(), claim, 100)


def test_acknowledgements_never_go_back() -> None:
    replica = replicas.reported(replicas.reported(Replica(), 50, 100), 80, 100)
    assert Replica(80, 50) == replica
    assert Replica(80, 50) == replicas.reported(replica, 60, 100)


@pytest.mark.parametrize(
    ("requested", "whole_log", "expected"),
    [(0, False, 2048), (0, True, 512), (700, False, 700), (700, True, 700), (2500, False, 2500)],
)
def test_where_a_transfer_begins(requested: int, whole_log: bool, expected: int) -> None:
    assert expected == replicas.transfer_start(requested, 512, 2600, 1024, whole_log=whole_log)


def test_who_counts_as_in_sync_and_who_has_a_copy() -> None:
    slaves = {1: Replica(1000, 0), 2: Replica(400, 0), 3: Replica()}
    assert 2 == replicas.in_sync_count(slaves, 1000, 600)
    assert 3 == replicas.in_sync_count(slaves, 1000, 601)
    assert (2, 3, 1) == tuple(replicas.copies_of(slaves, end) for end in (1000, 400, 1001))


@pytest.mark.covers("HA-13")
@pytest.mark.parametrize(("offset", "expected"), [(199, 5), (200, 3), (299, 3), (300, 2), (399, 2), (400, 1)])
def test_replicas_leave_the_set_at_the_limit_of_the_gap(offset: int, expected: int) -> None:
    slaves = {number: Replica(end, 0) for number, end in enumerate((100, 100, 200, 300))}
    assert expected == replicas.in_sync_count(slaves, offset, 100)


@pytest.mark.parametrize(
    ("in_sync", "alive", "wanted", "least", "auto", "expected"),
    [
        (3, 3, 2, 1, False, 2),
        (1, 3, 2, 1, False, None),
        (3, 1, 2, 1, False, None),  # a replica the name server does not see is not counted
        (1, 3, 2, 1, True, 1),
        (3, 3, 2, 1, True, 2),
        (1, 3, 3, 2, True, None),
        (2, 2, 3, 2, True, 2),
    ],
)
def test_how_many_copies_a_send_needs(
    in_sync: int, alive: int, wanted: int, least: int, auto: bool, expected: int | None
) -> None:
    needed = replicas.acks_needed(
        in_sync=in_sync, alive=alive, in_sync_replicas=wanted, min_in_sync_replicas=least, auto=auto
    )
    assert expected == needed


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=5)), max_size=10))
def test_transfers_that_continue_each_other_are_one(pieces: list[tuple[bool, bytes]]) -> None:
    # given transfers, some after a gap, some heartbeats
    transfers, at = [], 0
    for gap, body in pieces:
        at += 7 if gap else 0
        transfers.append(wire.Transfer(at, body))
        at += len(body)
    # when they are joined
    joined = wire.joined(transfers)
    # then every byte is where it was, heartbeats are kept, and no two bodies side by side stay apart
    assert b"".join(bytes(each.body) for each in joined) == b"".join(body for _, body in pieces)
    assert [each for each in joined if not each.body] == [each for each in transfers if not each.body]
    for first, second in itertools.pairwise(joined):
        assert not (first.body and second.body and first.offset + len(first.body) == second.offset)
