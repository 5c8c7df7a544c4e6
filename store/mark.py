"""The recovery mark: up to which physical offset log, queues and index are known to be complete.

A start only has to walk the log from the mark on. Two kinds of marks lie in one small file, ``recovery.mark``:

* a *durable* mark is written after everything before it was synced; it holds after a power loss;
* a *live* mark is written every moment without any sync; it holds when only the process died, because then the
  operating system still has everything the process wrote, in the order it wrote it. The boot id tells the two apart.

Each kind has two slots that are written in turn, each with a checksum, so that one torn write costs nothing. The
reference has no such file and ignores it; what a Java broker does to the folder shows in the totals kept in the mark.
"""

from __future__ import annotations

import struct
import zlib

import attrs

from understudy.runtime.disk import Disk, Mapping

FILE_NAME = "recovery.mark"
FILE_BYTES = 4096
_SLOT_BYTES = 512
_MAGIC = b"USMARK01"
_FIELDS = struct.Struct(">8sqi40sqqqq17sii")
_CRC = struct.Struct(">I")


@attrs.frozen
class Mark:
    """What was complete at one moment.

    Args:
        physical_offset: every record before it is in the log, its queues and the index.
        next_offsets_total: sum over all queues of the offset their next message gets, to notice lost queue files.
        queue_count: number of queues.
        store_ms: store time of the last record before *physical_offset*.
        index_name: name of the newest index file; empty without one.
        index_count: its entry count.
        index_used_slots: its used slots.
    """

    physical_offset: int
    next_offsets_total: int
    queue_count: int
    store_ms: int
    index_name: str = ""
    index_count: int = 1
    index_used_slots: int = 0


class MarkFile:
    """The marks of one store.

    Args:
        disk: where the store is.
        path: the file, created if needed.
        boot_id: identity of the running system, see :meth:`understudy.runtime.disk.Disk.boot_id`.
    """

    def __init__(self, disk: Disk, path: str, boot_id: str) -> None:
        self._boot_id = boot_id.encode()[:40]
        self._mapping: Mapping = disk.map(path, FILE_BYTES)
        disk.allocate(path, 0, FILE_BYTES)
        self._view = self._mapping.view
        self._sequence = 0
        self._next_slot = [0, 2]  # of the durable and of the live marks

    def best(self) -> tuple[Mark | None, Mark | None, bool]:
        """Return (the newest mark that holds now, the newest durable one, whether this boot wrote the last of all)."""
        newest: tuple[int, Mark] | None = None
        same_boot = False
        durable: tuple[int, Mark] | None = None
        for slot in range(4):
            found = self._read(slot)
            if found is None:
                continue
            sequence, boot_id, mark = found
            if sequence > self._sequence:
                self._sequence, same_boot = sequence, boot_id == self._boot_id
            if slot < 2 and (durable is None or sequence > durable[0]):
                durable = (sequence, mark)
                self._next_slot[0] = 1 - slot
            if (slot < 2 or boot_id == self._boot_id) and (newest is None or sequence > newest[0]):
                newest = (sequence, mark)
        return newest and newest[1], durable and durable[1], same_boot

    def write_live(self, mark: Mark) -> None:
        """Note *mark* for a start after a killed process."""
        self._write(1, mark)

    def put_durable(self, mark: Mark) -> None:
        """Note *mark*, whose content must be durable already; call :meth:`sync` after it."""
        self._write(0, mark)

    def sync(self) -> None:
        """Wait until the notes are durable. Blocking; may run in a worker thread."""
        self._mapping.sync(0, FILE_BYTES)

    def forget(self) -> None:
        """Remove every mark and wait until they are gone: the next start looks at everything. Blocking."""
        self._view[: 4 * _SLOT_BYTES] = bytes(4 * _SLOT_BYTES)
        self._mapping.sync(0, 4 * _SLOT_BYTES)

    def close(self) -> None:
        """Give the file back."""
        del self._view
        self._mapping.close()

    def _write(self, kind: int, mark: Mark) -> None:
        self._sequence += 1
        slot = self._next_slot[kind]
        self._next_slot[kind] ^= 1
        raw = _FIELDS.pack(
            _MAGIC,
            self._sequence,
            slot,
            self._boot_id,
            mark.physical_offset,
            mark.next_offsets_total,
            mark.queue_count,
            mark.store_ms,
            mark.index_name.encode(),
            mark.index_count,
            mark.index_used_slots,
        )
        at = slot * _SLOT_BYTES
        self._view[at : at + _FIELDS.size + _CRC.size] = raw + _CRC.pack(zlib.crc32(raw))

    def _read(self, slot: int) -> tuple[int, bytes, Mark] | None:
        at = slot * _SLOT_BYTES
        raw = bytes(self._view[at : at + _FIELDS.size + _CRC.size])
        if _CRC.unpack_from(raw, _FIELDS.size)[0] != zlib.crc32(raw[: _FIELDS.size]):
            return None
        magic, sequence, _, boot_id, offset, total, queues, store_ms, name, count, slots = _FIELDS.unpack_from(raw)
        if magic != _MAGIC:
            return None
        mark = Mark(offset, total, queues, store_ms, name.rstrip(b"\0").decode("ascii"), count, slots)
        return sequence, boot_id.rstrip(b"\0"), mark
