"""``timercheck``: how far the timer has come, in the reference's 56 bytes (TimerCheckpoint.java).

The file has 4096 bytes. Behind the reference's we note that it was we who wrote it: then position and queue offset
belong together exactly, which they need not in a file that a killed Java broker left.
"""

from __future__ import annotations

import os.path
import struct
import zlib

import attrs

from understudy.runtime.disk import Disk

FILE_BYTES = 4096
_OLD, _FIELDS = struct.Struct(">4q"), struct.Struct(">7q")
_OURS = struct.Struct(">8sI")
_NAME = b"exact-1\0"
CHECK_BYTES = _FIELDS.size


@attrs.frozen
class TimerCheck:
    """Content of the file, and of the answer to a replica that asks for it.

    Attributes:
        read_ms: wall time of the second that is delivered next.
        log_position: everything before it is durable in the timer log.
        queue_offset: everything before it of the timer topic is in the timer log.
        master_queue_offset: everything before it that was due before :attr:`read_ms` is delivered.
        state_version, timestamp, counter: version of this progress.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the 56 bytes."""
        return _FIELDS.pack(*attrs.astuple(self))


def decode_check(data: bytes) -> TimerCheck:
    """Read what :meth:`TimerCheck.encode` returned; 32 bytes of an older peer have no version.

    Raises:
        ValueError: it is neither, or holds what no timer says.
    """
    if len(data) >= _FIELDS.size:
        found = TimerCheck(*_FIELDS.unpack_from(data))
    elif len(data) >= _OLD.size:
        found = TimerCheck(*_OLD.unpack_from(data))
    else:
        raise ValueError(f"a timer checkpoint has 56 bytes, these are {len(data)}")
    if min(found.log_position, found.queue_offset, found.master_queue_offset) < -1:
        raise ValueError("a timer checkpoint with a negative offset")
    return found


def load_check(disk: Disk, path: str) -> tuple[TimerCheck, bool]:
    """Read the file; a missing or short one counts as all zero. Blocking.

    Returns:
        Its content, and whether it is as we wrote it.
    """
    raw = disk.read(path) if disk.exists(path) else b""
    try:
        check = decode_check(raw)
    except ValueError:
        return TimerCheck(), False
    ours = raw[CHECK_BYTES : CHECK_BYTES + _OURS.size]
    return check, ours == _OURS.pack(_NAME, zlib.crc32(raw[:CHECK_BYTES]))


def save_check(disk: Disk, path: str, check: TimerCheck) -> None:
    """Write the file in place, within one sector, and wait until it is durable. Blocking."""
    is_new = not disk.exists(path)
    file = disk.open(path)
    try:
        if file.size() != FILE_BYTES:
            file.truncate(FILE_BYTES)
        content = check.encode()
        file.write_at(0, content + _OURS.pack(_NAME, zlib.crc32(content)))
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(os.path.dirname(path))
