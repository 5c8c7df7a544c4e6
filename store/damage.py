"""Damage in the log: it becomes something whole that nobody sees, and what was there is kept in a folder.

Units that pointed into it point to a neighbour, durably before the damage is void, so that no reader waits for what is
gone and a later start, which finds a whole record there, has nothing left to bend.
"""

from __future__ import annotations

import os.path
import zlib

from understudy.format.record import BLANK, BLANK_MAGIC, CRC_MASK, FIXED, FLAG_TRANSACTION_ROLLBACK, HEAD, MAGIC_V1
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger
from understudy.store.consume_queue import FILLER, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.flush import sync_files
from understudy.store.walk import VOID_TOPIC

log = get_logger("store.damage")

MENDED_AT_ONCE_BYTES = 64 << 20
"""So much of the log behind lost bytes is compared with another one, and entered again, in a moment."""
_KEEP_BYTES = 8 << 20
SMALLEST_VOID_BYTES = FIXED[8, 8].size + 4
"""A void record: its fixed part, and a topic of one letter."""


def void(core: StoreCore, start: int, end: int) -> None:
    """Replace the damage in the log by something whole that nobody sees, and keep what was there.

    Args:
        core: the store; blocking, in its recovery.
        start: first byte of the damage, its physical offset.
        end: first byte after it.
    """
    log.error(
        "damaged bytes in the log; the messages in them are lost, those after them are kept",
        folder=core.config.folder,
        first=start,
        after=end,
    )
    # Durably before the damage is void: a later start sees a whole record there and bends nothing.
    bent: set[str] = set()
    for queue in core.consume_queues:
        bent |= _bend_units(core, queue, start, end)
    sync_files(core.disk, sorted(bent), [])
    segment = core.segments.find(start)
    while segment is not None and start < end:
        view = core.segments.view(segment)
        at = start - segment.start
        stop = min(end, segment.end)
        _keep(core, start, bytes(view[at : min(stop - segment.start, at + _KEEP_BYTES)]))
        if stop == segment.end:
            BLANK.pack_into(view, at, segment.end - start, BLANK_MAGIC)
        else:
            write_void_record(core, view, at, start, stop - start)
        sync_files(core.disk, [segment.path], [])
        start = stop
        segment = core.segments.find(start)


def write_void_record(core: StoreCore, view: memoryview, at: int, physical: int, size: int) -> None:
    """Write a whole record that nobody sees.

    Args:
        core: the store.
        view: of the file.
        at: where in it.
        physical: the physical offset of that place.
        size: bytes of the record, at least :data:`SMALLEST_VOID_BYTES`.
    """
    fixed = FIXED[8, 8]
    topic = VOID_TOPIC[: max(1, size - fixed.size - 3)]
    body_length = size - fixed.size - 1 - len(topic) - 2
    body_at = at + fixed.size
    tail = bytes([len(topic)]) + topic + b"\0\0"
    view[body_at + body_length : at + size] = tail
    store_ms = core.last_store_ms
    crc = zlib.crc32(view[body_at : body_at + body_length]) & CRC_MASK if body_length else 0
    host = core.store_host if len(core.store_host) == 8 else bytes(8)
    fixed.pack_into(
        view, at, size, MAGIC_V1, crc, 0, 0, 0, physical, FLAG_TRANSACTION_ROLLBACK,
        store_ms, host, store_ms, host, 0, 0, body_length,
    )  # fmt: skip


def _bend_units(core: StoreCore, queue: ConsumeQueue, first: int, end: int) -> set[str]:
    """Let units that point into [first, end) point to the next message of their queue, or else the one before.

    Returns:
        The files that were changed.
    """
    queues = core.consume_queues
    low = queues.first_at_or_after(queue, first)
    high = queues.first_at_or_after(queue, end)
    if low == high:
        return set()
    replacement = FILLER
    for neighbour in (high, low - 1):
        unit = queues.unit(queue, neighbour) if 0 <= neighbour < queue.next_offset else None
        if unit is not None:
            replacement = UNIT.pack(*unit)
            break
    for offset in range(low, high):
        queues.units(queue, offset, 1)[:UNIT_BYTES] = replacement
    queue.min_checked_for = -2
    paths = {queue.path(start) for start in {queue.start_of(offset) for offset in range(low, high)}}
    queues.dirty_paths |= paths
    return paths


def keep_damaged_tail(core: StoreCore, end: int) -> None:
    """Keep the record that the log would end in at physical offset *end*, if one was begun there."""
    segment = core.segments.find(end)
    if segment is None:
        return
    view = core.segments.view(segment)
    at = end - segment.start
    head = bytes(view[at : at + HEAD.size])
    if not head.strip(b"\0"):
        return
    size = min(max(int.from_bytes(head[:4], "big", signed=True), SMALLEST_VOID_BYTES), _KEEP_BYTES)
    log.warning("the log ends in a damaged record, which is cut off", folder=core.config.folder, at=end)
    _keep(core, end, bytes(view[at : at + size]))


def _keep(core: StoreCore, physical: int, data: bytes) -> None:
    folder = core.path("damaged")
    core.disk.make_folder(folder)
    path = os.path.join(folder, f"{physical:020d}")
    write_durably(core.disk, path, data, keep_previous=False)
    log.info("kept the damaged bytes", path=path, bytes=len(data))
