"""The records of the log file: a header with length, checksum, group and the byte where the group began, then a body.

The first byte of a body says what it is. Behind the last record the file may hold zeros, room for what comes next.
"""

from __future__ import annotations

import enum
import re
import struct
import zlib

import msgspec

Entry = tuple[bytes, int, int]
"""Command, index, term."""

MAGIC = b"USRAFT02"
MAX_RECORD_BYTES = 16 << 20

_HEADER = struct.Struct("<IIIQ")  # length of the body, checksum, group, offset where the group began
HEADER_BYTES = _HEADER.size
_CHECKED = struct.Struct("<IQ")
_NOT_ZERO = re.compile(rb"[^\0]")

encode_entries = msgspec.msgpack.Encoder().encode
decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode


class Kind(enum.IntEnum):
    """What a record says. Numbers stay as they are: files outlive programs."""

    IDENTITY = 1
    """Length of the synced part, quorum, member, and which life of the disk this is."""
    ENTRIES = 2
    """Entries that follow the last one."""
    CUT = 3
    """Entries from an index on are gone."""
    TERM = 4
    """Term, and who was voted for in it."""
    COMMIT = 5
    """A hint: entries up to an index were committed."""
    CLEAR = 6
    """All entries are gone: a snapshot takes their place."""
    PEER = 7
    """The disk of another member, or that it is forgotten."""
    VOTER = 8
    """Whether this member may vote."""


def encode_record(kind: int, rest: bytes, group: int, group_start: int) -> bytes:
    """Return a record with the body *kind* + *rest*.

    Args:
        kind: the first byte of its body.
        rest: the others.
        group: what all records have in common that are written together.
        group_start: byte of the file where the first of them begins.
    """
    body = bytes((kind,)) + rest
    checksum = zlib.crc32(body, zlib.crc32(_CHECKED.pack(group, group_start)))
    return _HEADER.pack(len(body), checksum, group, group_start) + body


def only_zeros_from(data: bytes, offset: int) -> bool:
    """Whether nothing but zeros follows."""
    return data[offset : offset + 4] == b"\0\0\0\0" and _NOT_ZERO.search(data, offset) is None


def intact_record(data: bytes, offset: int) -> tuple[bytes, int, int] | str:
    """Return body, group and group start of the record at *offset*, or what is wrong with it."""
    if offset + _HEADER.size > len(data):
        return "a record header is cut"
    length, checksum, group, group_start = _HEADER.unpack_from(data, offset)
    start = offset + _HEADER.size
    if length == 0 or length > MAX_RECORD_BYTES:
        return f"a record claims {length} bytes"
    if start + length > len(data):
        return "a record is cut"
    body = data[start : start + length]
    if zlib.crc32(body, zlib.crc32(_CHECKED.pack(group, group_start))) != checksum:
        return "a record fails its checksum"
    return body, group, group_start


def later_group(data: bytes, damaged_at: int) -> int | None:
    """Return where a group began that was written after the bytes at *damaged_at* had been synced."""
    position, last = damaged_at + 1, len(data) - _HEADER.size
    while position < last:
        length, _, _, group_start = _HEADER.unpack_from(data, position)
        if length == 0:
            found = _NOT_ZERO.search(data, position)
            if found is None:
                return None
            position = max(position + 1, found.start() - 3)
            continue
        if length <= len(data) - position - _HEADER.size and group_start <= position:
            record = intact_record(data, position)
            if not isinstance(record, str):
                if record[2] > damaged_at:
                    return record[2]
                position += _HEADER.size + length
                continue
        position += 1
    return None
