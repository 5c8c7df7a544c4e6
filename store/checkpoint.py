"""The reference's ``checkpoint`` file: times up to which log, queues and index were durable (StoreCheckpoint.java).

4096 bytes, five longs used. We write it for a Java broker that opens the folder after us; our own start uses the more
exact :mod:`understudy.store.mark`.
"""

from __future__ import annotations

import os.path
import struct

import attrs

from understudy.runtime.disk import Disk

FILE_BYTES = 4096
_FIELDS = struct.Struct(">5q")


@attrs.frozen
class Checkpoint:
    """Content of the file.

    Args:
        physic_ms: store time of the last durable record.
        logics_ms: store time of the last record whose queue entry is durable.
        index_ms: end time of the newest full and durable index file; 0 before there is one.
        master_flushed_offset: what a slave knows of its master.
        confirm_offset: confirm offset of controller mode; 0 otherwise.
    """

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @property
    def safe_ms(self) -> int:
        """Everything stored before this time was durable in log and queues."""
        return max(0, min(self.physic_ms, self.logics_ms) - 3000)


def load_checkpoint(disk: Disk, path: str) -> Checkpoint:
    """Read the file; a missing or short one counts as all zero."""
    if not disk.exists(path):
        return Checkpoint()
    raw = disk.read(path)[: _FIELDS.size]
    if len(raw) < _FIELDS.size:
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack(raw))


def save_checkpoint(disk: Disk, path: str, checkpoint: Checkpoint) -> None:
    """Write the file in place and wait until it is durable. Blocking."""
    is_new = not disk.exists(path)
    file = disk.open(path)
    try:
        if file.size() != FILE_BYTES:
            file.truncate(FILE_BYTES)
        file.write_at(0, _FIELDS.pack(*attrs.astuple(checkpoint)))
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(os.path.dirname(path))
