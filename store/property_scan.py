"""Reads of messages whose properties are asked for, of ten perhaps for the one that is wanted.

Here is the quick way through a queue that is as it should be: units are taken by the dozen, of each record one look at
its head shows that it is the one that stands there, and its properties are cut out and asked about.

Source: DefaultMessageStore.java.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from itertools import repeat
from operator import sub

from understudy.format.record import FLAG_HOSTS_V6, properties_of
from understudy.format.record_layout import layout
from understudy.store.consume_queue import UNIT_BYTES, ConsumeQueue, units_at_once
from understudy.store.core import StoreCore
from understudy.store.status import GetResult, GetStatus

_HEAD = layout("size", "magic", "queue_offset", "sys_flag", "body_length")
"""Size, magic, queue offset, system flags, and the body length of a record with IPv4 hosts; its body follows."""
_UNITS_AT_ONCE = 64
_UNBOUNDED = 1 << 62


class PropertyScan:
    """Reads one store; see :class:`understudy.store.reader.Reader`, which comes here when properties count.

    Args:
        core: the store.
        are_whole: whether the records of units (third) that begin at a queue offset (second) are whole.

    Attributes:
        near_bytes: what lies so far before the end of the log at most is near it.
    """

    def __init__(self, core: StoreCore, are_whole: Callable[[ConsumeQueue, int, memoryview], bool]) -> None:
        self._core = core
        self._are_whole = are_whole
        self.near_bytes = 0

    def scan(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: memoryview,
        most_bytes: int,
        most_count: int,
        min_offset: int,
        max_offset: int,
        accept: Callable[[bytes], bool],
    ) -> GetResult | None:
        """Read the messages of *units*, which begin at queue offset *offset*.

        Args:
            queue: that they are of; not a light one, whose records stand elsewhere, too.
            most_bytes, most_count: bounds of the read; the first message is read whatever its size.
            min_offset, max_offset: of the queue, for the result.
            accept: filter by properties.

        Returns:
            What :class:`understudy.store.careful_scan.CarefulScan` would; ``None`` when it must look: something is lost
            or rotten, or stands twice.
        """
        core, log = self._core, self._core.log
        magic, between = queue.magic, _HEAD.size + len(queue.topic_field) + 2
        view, base, end = log.view, log.base, log.base + log.at
        parts: list[memoryview] = []
        run_start = run_end = reached = -1
        total = count = 0
        room = _UNBOUNDED  # the first one is read whatever its size
        place, after = offset, offset + len(units) // UNIT_BYTES
        is_full = False
        while place < after and not is_full:
            at, many = (place - offset) * UNIT_BYTES, min(after - place, _UNITS_AT_ONCE)
            raw = units[at : at + many * UNIT_BYTES]
            values = units_at_once(many).unpack(raw)
            addresses, sizes = values[0::3], values[1::3]
            first = min(addresses)
            if first < core.trusted_from and not (
                queue.whole_from <= place <= place + many <= queue.whole_to or self._are_whole(queue, place, raw)
            ):
                return None
            if not base <= first < end:
                if run_start >= 0:
                    parts.append(view[run_start:run_end])
                    reached, run_start, run_end = base + run_end, -1, -1
                segment = core.segments.find(first)
                if segment is None:
                    return None
                # A view of our own, which stays when the file makes room for another one.
                view, base, end = core.segments.view(segment)[:], segment.start, min(segment.end, log.end)
            if addresses[-1] >= end:  # the rest lies in the next file
                addresses = addresses[: bisect_left(addresses, end)]
                if not addresses:
                    return None
            starts = list(map(sub, addresses, repeat(base)))
            heads = map(_HEAD.unpack_from, repeat(view), starts)
            try:
                for start, size, head in zip(starts, sizes, heads, strict=False):
                    if size > room:
                        is_full = True
                        break
                    own_size, own_magic, own_offset, flags, body_length = head
                    if own_offset != place or own_size != size or own_magic != magic:
                        return None
                    place += 1
                    if flags & FLAG_HOSTS_V6:
                        properties = properties_of(view[start : start + size])
                    else:
                        properties = view[start + between + body_length : start + size].tobytes()
                    if accept(properties):
                        if start != run_end:
                            if run_start >= 0:
                                parts.append(view[run_start:run_end])
                            run_start = start
                        run_end = start + size
                        count += 1
                        total += size
                        room = most_bytes - total
                        if count >= most_count:
                            is_full = True
                            break
            except struct.error:  # a unit that has rotted says that its record is behind the file
                return None
        if run_start >= 0:
            parts.append(view[run_start:run_end])
            reached = base + run_end
        status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
        behind = count > 0 and log.end - reached > self.near_bytes
        return GetResult(status, place, min_offset, max_offset, parts, total, count, behind)
