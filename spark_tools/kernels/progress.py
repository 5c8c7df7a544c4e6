"""Small files that say how far a broker was: checkpoint, epoch file, identity, timer check, timer log."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from understudy.format.record import BLANK_MAGIC, CRC_MASK
from understudy.spark_tools.kernels.damage import Damage

_CHECKPOINT = struct.Struct(">5q")
_TIMER_CHECK = struct.Struct(">7q")
TIMER_UNIT = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
TIMER_BLANK_MAGIC = BLANK_MAGIC - (1 << 32)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The five longs of `checkpoint`, times in milliseconds (StoreCheckpoint.java)."""

    physic_timestamp: int
    logics_timestamp: int
    index_timestamp: int
    master_flushed_offset: int
    confirm_offset: int


def read_checkpoint(data: bytes, path: str) -> tuple[Checkpoint | None, list[Damage]]:
    """The checkpoint, or None with the reason why not."""
    if len(data) < _CHECKPOINT.size:
        return None, [Damage(path, 0, len(data), "short-file", f"{len(data)} bytes, a checkpoint has 4096")]
    checkpoint = Checkpoint(*_CHECKPOINT.unpack_from(data))
    found = []
    for number, value in enumerate(_CHECKPOINT.unpack_from(data)):
        if value < 0:
            found.append(Damage(path, number * 8, 8, "bad-checkpoint", f"negative value {value}"))
    return (None if found else checkpoint), found


@dataclass(frozen=True, slots=True)
class Epoch:
    """One reign: its number and the physical offset it starts at; it ends where the next one starts."""

    epoch: int
    start_offset: int


def read_epochs(data: bytes, path: str) -> tuple[list[Epoch], list[Damage]]:
    """Entries of an epoch file: count, CRC (0 means unchecked), then `epoch-startOffset` lines."""
    lines = data.decode("utf-8", "replace").split("\n")
    try:
        count, crc = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        return [], [Damage(path, 0, len(data), "bad-epoch-file", "the first two lines are not a count and a CRC")]
    entries: list[Epoch] = []
    at = len(lines[0]) + len(lines[1]) + 2
    body_at = at
    for line in lines[2 : 2 + count]:
        if not line:
            break
        epoch, separator, start = line.partition("-")
        if not separator or not epoch.isdecimal() or not start.isdecimal():
            return entries, [Damage(path, at, len(line), "bad-epoch-file", f"line {line!r} is not epoch-startOffset")]
        entry = Epoch(int(epoch), int(start))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            return entries, [Damage(path, at, len(line), "bad-epoch-file", f"line {line!r} goes back")]
        entries.append(entry)
        at += len(line) + 1
    if len(entries) != count:
        return entries, [Damage(path, at, 0, "bad-epoch-file", f"{count} entries announced, {len(entries)} present")]
    if crc and zlib.crc32(data[body_at:]) & CRC_MASK != crc:
        return entries, [Damage(path, body_at, len(data) - body_at, "bad-epoch-file", "CRC does not match the entries")]
    return entries, []


def epoch_at(epochs: list[Epoch], physical_offset: int) -> int | None:
    """Epoch in which the byte at `physical_offset` was written, None before the first entry."""
    found = None
    for entry in epochs:
        if entry.start_offset > physical_offset:
            break
        found = entry.epoch
    return found


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The seven longs of `timercheck`, times in milliseconds (TimerCheckpoint.java)."""

    last_read_time: int
    last_timer_log_flush_position: int
    last_timer_queue_offset: int
    master_timer_queue_offset: int
    state_version: int
    timestamp: int
    counter: int


def read_timer_check(data: bytes, path: str) -> tuple[TimerCheck | None, list[Damage]]:
    """The timer progress; a body of 32 bytes (older peers) has no version."""
    if len(data) >= _TIMER_CHECK.size:
        return TimerCheck(*_TIMER_CHECK.unpack_from(data)), []
    if len(data) >= 32:
        read_time, flushed, queue_offset, master_offset = struct.unpack_from(">4q", data)
        return TimerCheck(read_time, flushed, queue_offset, master_offset, 0, 0, 0), []
    return None, [Damage(path, 0, len(data), "short-file", f"{len(data)} bytes, a timer checkpoint has 56")]


def read_timer_log(data: bytes, path: str, file_offset: int) -> tuple[np.ndarray, list[Damage]]:
    """Units of one timer log file, up to its blank or its first zero unit."""
    whole = np.frombuffer(data, dtype=TIMER_UNIT, count=len(data) // TIMER_UNIT.itemsize)
    good = (whole["size"] == TIMER_UNIT.itemsize) & ((whole["magic"] | 0xF) == 0xF)
    count = len(whole) if good.all() else int(good.argmin())
    found: list[Damage] = []
    at = count * TIMER_UNIT.itemsize
    if at + 16 <= len(data):
        size, _, magic = struct.unpack_from(">iqi", data, at)
        if magic == TIMER_BLANK_MAGIC:
            if size != len(data) - at:
                found.append(Damage(path, at, 16, "bad-blank", f"blank says {size} bytes, {len(data) - at} remain"))
        elif any(data[at : at + TIMER_UNIT.itemsize]):
            detail = f"timer unit at {file_offset + at} has size {size} and magic {magic}"
            found.append(Damage(path, at, TIMER_UNIT.itemsize, "invalid-timer-unit", detail))
    return whole[:count], found
