"""Every kind of damage to a log is found at its byte, the rest is still read, and nothing else is called damaged."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.format.record import BLANK_MAGIC
from understudy.spark_tools import faults
from understudy.spark_tools.kernels import chain
from understudy.spark_tools.kernels.commitlog import walk
from understudy.spark_tools.kernels.compare import differing_records, first_difference
from understudy.spark_tools.kernels.damage import DAMAGE, WARNING, Damage
from understudy.spark_tools.kernels.extents import joined
from understudy.spark_tools.kernels.window import Chunk, Window
from understudy.spark_tools.layout import LogFile
from understudy.spark_tools.synthetic import encode_record

FILE_BYTES = 16384


def log(count: int = 60, sizes: int = 7) -> tuple[bytes, list[int]]:
    """A log file in memory with records of a few different sizes, and where each starts."""
    data = bytearray()
    starts = []
    for number in range(count):
        starts.append(len(data))
        data += encode_record(
            topic=f"Topic{number % 3}",
            queue_id=number % 2,
            queue_offset=number // 6,
            physical_offset=len(data),
            store_timestamp=1_700_000_000_000 + number,
            body=b"b" * (20 + number % sizes),
            properties={"UNIQ_KEY": f"{number:032X}", "TAGS": "A"},
        )
    assert len(data) + 8 <= FILE_BYTES
    return bytes(data).ljust(FILE_BYTES, b"\0"), starts


def examined(data: bytes, split_bytes: int | None = None) -> tuple[list[int], list[Damage]]:
    """Records and faults of a whole file, walked at once or in splits."""
    window = Window("log", 0, len(data), 0, data)
    positions: list[int] = []
    found: list[Damage] = []
    step = split_bytes or max(len(data), 1)
    for start in range(0, len(data), step):
        for item in walk(window, start, min(start + step, len(data))):
            if isinstance(item, Chunk):
                positions += [int(at) for at in item.positions]
            else:
                found.append(item)
    return positions, found


def test_a_whole_log_has_only_its_end_to_report() -> None:
    data, starts = log()

    positions, found = examined(data)

    assert positions == starts
    assert [(item.kind, item.severity) for item in found] == [("end-of-log", WARNING)]


@pytest.mark.parametrize(
    ("field", "offset", "width"), [("size", 0, 4), ("magic", 4, 4), ("address", 28, 8), ("body length", 84, 4)]
)
@pytest.mark.parametrize("split_bytes", [None, 512, 2000])
def test_a_flipped_header_field_is_found_at_its_record(
    field: str, offset: int, width: int, split_bytes: int | None
) -> None:
    data, starts = log()
    damaged = bytearray(data)
    victim = starts[20]
    damaged[victim + offset + width - 1] ^= 0x15

    positions, found = examined(bytes(damaged), split_bytes)

    assert positions == [start for start in starts if start != victim], field
    faults_found = [item for item in found if item.severity == DAMAGE]
    assert [(item.offset_bytes, item.length_bytes) for item in faults_found] == [(victim, starts[21] - victim)]
    assert f"records go on at byte {starts[21]}" in faults_found[0].detail


def test_a_flipped_body_byte_is_found_by_its_crc(tmp_path: Path) -> None:
    data, starts = log()
    damaged = bytearray(data)
    damaged[starts[7] + 90] ^= 1
    path = tmp_path / f"{0:020d}"
    path.write_bytes(damaged)
    file = LogFile(str(path), 0, len(damaged), path.stat().st_mtime_ns)

    found = faults.log_part_faults(file, 0, len(damaged), None, verify=True)

    assert [(item.kind, item.offset_bytes) for item in found if item.severity == DAMAGE] == [("bad-crc", starts[7])]


def test_a_torn_tail_is_told_from_the_zeros_behind_the_log() -> None:
    data, starts = log()
    torn = data[: starts[40] + 50].ljust(len(data), b"\0")

    positions, found = examined(torn)

    assert positions == starts[:40]
    assert [(item.kind, item.offset_bytes, item.severity) for item in found] == [("damaged-tail", starts[40], DAMAGE)]


def test_a_hole_of_zeros_is_told_from_the_end_of_the_log() -> None:
    data, starts = log()
    holed = bytearray(data)
    holed[starts[10] : starts[14]] = bytes(starts[14] - starts[10])

    positions, found = examined(bytes(holed))

    assert positions == starts[:10] + starts[14:]
    assert [(item.kind, item.offset_bytes, item.length_bytes) for item in found if item.severity == DAMAGE] == [
        ("hole", starts[10], starts[14] - starts[10])
    ]


def test_little_endian_records_are_named() -> None:
    data, _ = log()
    swapped = data[:4][::-1] + data[4:8][::-1] + b"\1" * 100

    positions, found = examined(swapped)

    assert positions == []
    assert "wrong byte order" in found[0].detail
    assert found[0].offset_bytes == 0


def test_a_blank_marker_of_the_wrong_length_is_named() -> None:
    data, _ = log(10)
    end = len(data.rstrip(b"\0"))
    marked = bytearray(data)
    struct.pack_into(">iI", marked, end, 77, BLANK_MAGIC)

    _, found = examined(bytes(marked))

    assert [(item.kind, item.offset_bytes) for item in found] == [("bad-blank", end)]


@given(
    flips=st.lists(st.tuples(st.integers(0, FILE_BYTES - 1), st.integers(1, 255)), max_size=6),
    cut=st.integers(0, FILE_BYTES),
    split_bytes=st.integers(64, 9000),
    lane_bytes=st.sampled_from([200, 600, 1500, chain.LANE_BYTES]),
)
@settings(max_examples=120)
def test_whatever_is_damaged_splits_agree_with_the_whole_and_every_record_proves_itself(
    flips: list[tuple[int, int]], cut: int, split_bytes: int, lane_bytes: int
) -> None:
    data, starts = log(40)
    damaged = bytearray(data)
    for at, mask in flips:
        damaged[at] ^= mask
    damaged = damaged[:cut]

    whole, faults_whole = examined(bytes(damaged))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "LANE_BYTES", lane_bytes)
        pieces, faults_pieces = examined(bytes(damaged), split_bytes)

    assert pieces == whole
    assert sorted(map(str, faults_pieces)) == sorted(map(str, faults_whole))
    for at in whole:
        assert int.from_bytes(damaged[at + 28 : at + 36], "big") == at
    ends = [*starts[1:], len(data.rstrip(b"\0"))]
    touched = {start for start, end in zip(starts, ends, strict=True) if end > cut}
    touched |= {max(start for start in starts if start <= at) for at, _ in flips}
    assert set(starts) - touched <= set(whole)


@pytest.mark.parametrize("sizes", [1, 7])
def test_lanes_find_what_the_serial_chain_finds(monkeypatch: pytest.MonkeyPatch, sizes: int) -> None:
    data, starts = log(50, sizes=sizes)
    window = Window("log", 0, len(data), 0, data)
    end = len(data.rstrip(b"\0"))
    monkeypatch.setattr(chain, "LANE_BYTES", 600)

    positions, met = chain.follow_many(window, 0, end)

    assert met
    assert positions.tolist() == starts
    assert chain.follow_one(window, 0, 50).tolist() == starts


def test_lanes_behind_one_that_does_not_arrive_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    data, starts = log(50)
    damaged = bytearray(data)
    struct.pack_into(">i", damaged, starts[20], 333)
    window = Window("log", 0, len(data), 0, bytes(damaged))
    monkeypatch.setattr(chain, "LANE_BYTES", 600)

    positions, met = chain.follow_many(window, 0, len(data.rstrip(b"\0")))

    assert not met
    assert positions[:21].tolist() == starts[:21]
    assert len(positions) < 30
    found, faults_found = examined(bytes(damaged))
    assert found == starts[:20] + starts[21:]
    assert [item.offset_bytes for item in faults_found if item.severity == DAMAGE] == [starts[20]]


def test_a_record_copied_into_a_body_opens_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    # a body that happens to hold a record with the very address it lies at: only the chain can tell
    def encoded(body: bytes) -> bytes:
        return encode_record(
            topic="T", queue_id=0, queue_offset=0, physical_offset=0, store_timestamp=1, body=body, properties={}
        )

    def inner(at: int) -> bytes:
        return encode_record(
            topic="T", queue_id=0, queue_offset=0, physical_offset=at, store_timestamp=1, body=b"i", properties={}
        )

    outer = encoded(inner(88) * 3 + inner(88 + 3 * len(inner(88))) * 4)
    rest, starts = bytearray(), []
    for number in range(20):
        starts.append(len(outer) + len(rest))
        rest += encode_record(
            topic="T",
            queue_id=0,
            queue_offset=number,
            physical_offset=starts[-1],
            store_timestamp=1,
            body=b"b" * 50,
            properties={},
        )
    data = (outer + bytes(rest)).ljust(8192, b"\0")
    monkeypatch.setattr(chain, "LANE_BYTES", 300)

    positions, found = examined(data)

    assert positions == [0, *starts]
    assert not [item for item in found if item.severity == DAMAGE]


def test_a_file_that_grows_while_it_is_read_is_named(tmp_path: Path) -> None:
    data, _ = log()
    path = tmp_path / f"{0:020d}"
    path.write_bytes(data)
    stale = LogFile(str(path), 0, len(data), path.stat().st_mtime_ns - 1)

    found = faults.log_part_faults(stale, 0, len(data), None, verify=False)

    assert ("growing-file", WARNING) in [(item.kind, item.severity) for item in found]


def test_a_file_that_vanished_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    gone = LogFile(str(tmp_path / "gone"), 0, 4096, 0)

    found = faults.log_part_faults(gone, 0, 4096, None, verify=False)

    assert [(item.kind, item.path) for item in found] == [("unreadable", gone.path)]


@given(at=st.integers(0, FILE_BYTES - 1), split_bytes=st.integers(100, 5000))
@settings(max_examples=50)
def test_replicas_diverge_exactly_where_a_record_byte_differs(at: int, split_bytes: int) -> None:
    data, starts = log()
    end = len(data.rstrip(b"\0"))
    other = bytearray(data)
    other[at] ^= 0x40
    left, right = (Window(name, 0, FILE_BYTES, 0, raw) for name, raw in (("l", data), ("r", bytes(other))))

    found = [
        item
        for start in range(0, FILE_BYTES, split_bytes)
        if (item := first_difference(left, right, start, min(start + split_bytes, FILE_BYTES)))
    ]

    if at < end:
        assert [(item.record_offset, item.byte_offset) for item in found] == [(max(s for s in starts if s <= at), at)]
    else:
        assert found == []


@given(changed=st.sets(st.integers(0, 7000), max_size=6), split_bytes=st.integers(100, 5000))
@settings(max_examples=50)
def test_records_that_differ_are_found_as_whole_records_by_every_split(changed: set[int], split_bytes: int) -> None:
    data, starts = log()
    ends = [*starts[1:], len(data.rstrip(b"\0"))]
    spans = list(zip(starts, ends, strict=True))
    other = bytearray(data)
    for at in changed:
        start = max(begin for begin in starts if begin <= at)
        if at >= start + 8:  # a size or magic that differs ends the chain of one side
            other[at] ^= 0x40
    left, right = (Window(name, 0, FILE_BYTES, 0, raw) for name, raw in (("l", data), ("r", bytes(other))))
    unlike = {(begin, end) for begin, end in spans if data[begin:end] != other[begin:end]}

    found = [
        differing_records(left, right, start, min(start + split_bytes, FILE_BYTES))
        for start in range(0, FILE_BYTES, split_bytes)
    ]
    whole = joined(np.concatenate([f.starts for f in found]), np.concatenate([f.ends for f in found]), 100)

    assert whole.holds(np.array(starts, np.int64)).tolist() == [span in unlike for span in spans]
    assert whole.bytes == sum(end - begin for begin, end in unlike)


@given(
    ranges=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=20),
    most=st.integers(1, 8),
)
def test_extents_are_bounded_and_hold_all_they_were_made_of(ranges: list[tuple[int, int]], most: int) -> None:
    starts, lengths = np.array([*zip(*ranges, strict=True)] or [[], []], np.int64)

    found = joined(starts, starts + lengths, most)

    assert len(found) <= most
    held = {int(at) for start, length in ranges for at in range(start, start + length)}
    assert found.holds(np.array(sorted(held), np.int64)).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    gaps = sum(b - a > 1 for a, b in itertools.pairwise(sorted(held)))
    if gaps < most:
        assert found.bytes == len(held)
