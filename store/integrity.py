"""Which records are known to be whole: bytes can rot after they were durable, and no reader may get such a message.

What this process wrote, or walked at its start, is trusted. Any older record is compared with its checksum when it is
read for the first time; one that is damaged costs itself. Where the first of them lies is noted as a hole of the log
(:mod:`understudy.store.holes`), so that a slave gets its bytes from its master again. A scrub compares the whole log:
as fast as it can when it is asked for, and slowly by itself after a start, so that later readers of old messages pay
nothing.

The checksum is the record's own: it covers the body, and with ``enabledAppendPropCRC`` everything else, too. Without
it, what a record says of its place and tags is compared with its queue unit (:mod:`understudy.store.agreement`), and
its lengths with each other; other bytes of the head or the properties have nothing to be compared with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from zlib import crc32

import attrs
import trio

from understudy.format import light_queues
from understudy.format.record import BODY_LENGTH_AT, CRC_MASK, HEAD
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_failure
from understudy.runtime.signal import Signal
from understudy.store.agreement import Agreement
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.heads import own_offset
from understudy.store.index_scrub import IndexScrub
from understudy.store.seals import is_as_sealed, may_be_sealed
from understudy.store.segments import Segment
from understudy.store.walk import RecordHead, Walk, parse

log = get_logger("store.integrity")

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
#: A record is longer, so each cell holds the beginning of one record at most.
_CELL_BYTES = 64
#: Log files of which it is kept what was compared: a sixteenth of a percent of their size in memory.
_FILES_KEPT = 32
#: So much of the log is compared by a scrub before others get their turn, and read from the disk at once.
_STEP_BYTES = 32 << 10
_READ_BYTES = 4 << 20
_RETRY_SECONDS = 5.0
#: So long after a start its clients have settled, and what is old is compared.
SETTLE_SECONDS = 600.0
#: Damaged places a report names.
DAMAGE_MAX = 1_000
#: Records without a place of their own, mostly of former lives of their queues, for which a scrub asks all queues.
_UNPLACED_MAX = 64
_QUEUES_IN_A_STEP = 16
#: Of the time of one processor, for a scrub that nobody waits for.
_SHARE = 0.03


def _usual_properties(
    view: memoryview, at: int, physical: int, size: int, queue: ConsumeQueue, offset: int
) -> bytes | None:
    """Return the properties of a whole record that stands in one queue and begins at byte *at*; ``None`` for any other.

    The quick way to say so of most records.
    """
    if size < HEAD.size + len(queue.topic_field) or at + size > len(view):
        return None
    length, magic, crc, queue_id, _, own_offset, own_physical, flags, _ = HEAD.unpack_from(view, at)
    if own_physical != physical or own_offset != offset or length != size:
        return None
    if queue_id != queue.queue_id or magic != queue.magic:
        return None
    body_at = at + BODY_LENGTH_AT[flags >> 4 & 3] + 4
    if body_at > at + size:
        return None
    body_length: int = _INT.unpack_from(view, body_at - 4)[0]
    topic_at = body_at + body_length
    properties_at = topic_at + len(queue.topic_field) + 2
    if body_length < 0 or properties_at > at + size:
        return None
    if crc32(view[body_at:topic_at]) & CRC_MASK != crc and body_length:
        return None
    tail_length: int = _SHORT.unpack_from(view, properties_at - 2)[0]
    if properties_at + tail_length != at + size or view[topic_at : properties_at - 2] != queue.topic_field:
        return None
    properties = bytes(view[properties_at : at + size])
    if may_be_sealed(properties) and not is_as_sealed(view[at : at + size], properties):
        return None
    return properties


def _stands_at(head: RecordHead, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a record says that it is the one at *offset* of *queue*, or is in more queues than one."""
    own = (head.topic, head.queue_id, head.queue_offset)
    return own == (queue.topic.encode(), queue.queue_id, offset) or light_queues.NAMES in head.properties


@attrs.define
class ScrubReport:
    """How far a scrub is; offsets are bytes of the log.

    Attributes:
        begin, end: what it compares.
        position: up to here it has.
        records: whole ones so far.
        damaged: (first byte, byte after) of damage, the first ones.
        units: how many queue units had rotted and were entered again.
        entries: how many parts of the key index had rotted and were written anew.
        running: whether it is still at work.
    """

    begin: int
    end: int
    position: int
    records: int = 0
    damaged: list[tuple[int, int]] = attrs.Factory(list)
    units: int = 0
    entries: int = 0
    running: bool = True


class Integrity:
    """What is known of the records of one store."""

    def __init__(self, core: StoreCore, agreement: Agreement, index: IndexScrub) -> None:
        self._core = core
        self._index = index
        self._agreement = agreement
        self._compared: dict[int, bytearray] = {}
        self._damaged: set[int] = set()
        self._news = Signal()
        self._wanted = Signal()
        self._slowly = False
        self._unplaced: list[RecordHead] = []
        self.report: ScrubReport | None = None

    def all_whole(self, queue: ConsumeQueue, wanted: Iterable[tuple[int, int, int, int]]) -> bool:
        """Whether records of *queue* are whole, given by queue offset, physical offset, size and tags code of each.

        Some of them are old; a unit among these that points to what is young may have rotted.
        """
        segments, trusted, agreement = self._core.segments, self._core.trusted_from, self._agreement
        begin = stop = 0
        for offset, physical, size, code in wanted:
            if physical >= trusted:
                record = self._core.log.bytes_at(physical, size)
                if record is None or own_offset(record, 0, size) != offset:
                    return False
                continue
            if not begin <= physical < stop:
                segment = segments.find(physical)
                if segment is None:
                    return False
                begin, stop, view, cells = segment.start, segment.end, segments.view(segment), self._cells(segment)
            at = physical - begin
            cell, bit = at // _CELL_BYTES >> 3, 1 << (at // _CELL_BYTES & 7)
            if cells[cell] & bit:
                continue
            properties = _usual_properties(view, at, physical, size, queue, offset)
            if properties is not None and physical not in self._damaged and agreement.fits(queue, code, properties):
                cells[cell] |= bit
            elif not self.is_whole(physical, size, queue, offset, code):
                return False
        return True

    def is_whole(
        self, physical: int, size: int, queue: ConsumeQueue | None = None, offset: int = 0, code: int | None = None
    ) -> bool:
        """Whether the record at *physical* has *size* bytes and is as it was written.

        Args:
            queue, offset, code: where it stands and with which tags code, if that is known.
        """
        segment = self._core.segments.find(physical)
        if segment is None:
            return False
        cells = self._cells(segment)
        at = physical - segment.start
        cell, bit = at // _CELL_BYTES >> 3, 1 << (at // _CELL_BYTES & 7)
        if cells[cell] & bit:
            return True
        head = None if physical in self._damaged else parse(self._core.segments.view(segment), at, segment.start)
        if head is None or head.size_bytes != size or (queue is not None and not _stands_at(head, queue, offset)):
            return False
        agreement = self._agreement
        if queue is not None and code is not None and agreement.expected_code(queue, code) is not None:
            differs = code != agreement.code_of(head.properties)
            if differs and agreement.settle(head) is False:
                return False
        cells[cell] |= bit
        return True

    def _cells(self, segment: Segment) -> bytearray:
        """Return what is kept of a file: one bit for each cell."""
        cells = self._compared.get(segment.start)
        if cells is not None:
            return cells
        if len(self._compared) >= _FILES_KEPT:
            del self._compared[next(iter(self._compared))]
        cells = self._compared[segment.start] = bytearray(segment.size // _CELL_BYTES // 8 + 1)
        return cells

    def is_damaged(self, physical: int) -> bool:
        """Whether a record that begins there is known to be damaged."""
        return physical in self._damaged

    def forget_from(self, physical: int) -> None:
        """Know nothing any more of the bytes from *physical* on: they were cut off, or came again."""
        self._damaged = {at for at in self._damaged if at < physical}

    def note(self, physical: int) -> None:
        """Know that the record at *physical* is damaged; where the first of them lies gets durable."""
        if physical in self._damaged or len(self._damaged) >= DAMAGE_MAX:
            return
        log.error(
            "a message has rotted on the disk and is left out; have the disk looked at, and see mqadmin scrub",
            folder=self._core.config.folder,
            at=physical,
        )
        self._damaged.add(physical)
        if self._core.holes.first is None and not self._core.holes.behind:
            self._core.holes.found_s = self._core.clock.monotonic()
        self._core.holes.behind = True
        segment = self._core.segments.find(physical)
        if segment is not None:
            at = (physical - segment.start) // _CELL_BYTES
            self._cells(segment)[at >> 3] &= ~(1 << (at & 7)) & 0xFF
        for queue in self._core.consume_queues:
            queue.whole_from = queue.whole_to = 0
        self._news.set()

    # --- services ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Note where damage lies, until cancelled; asleep while none is found."""
        core, handled = self._core, 0
        while True:
            handled = await self._news.wait(handled)
            try:
                await core.holes.change(lambda noted: [*noted, *self._damaged])
                core.holes.behind = handled != self._news.count
            except OSError as error:
                log.error("where the damage lies could not be noted, trying again", why=os_failure(error))
                core.holes.behind = False  # what is due cannot wait as long as a disk may be full
                self._news.set()
                await core.clock.sleep(_RETRY_SECONDS)

    def start_scrub(self, *, slowly: bool = False) -> ScrubReport:
        """Have the whole log compared as it is now; the same one again while a scrub runs.

        Args:
            slowly: with ``scrub_bytes_per_second``, unless somebody else waits for it.
        """
        self._slowly = slowly
        if self.report is None or not self.report.running:
            begin = max(self._core.segments.min_offset, 0)
            self.report = ScrubReport(begin, self._core.dispatched, begin)
            self._damaged.clear()
            self._unplaced.clear()
            self._index.begin()
            self._wanted.set()
        return self.report

    async def run_scrubs(self) -> None:
        """Compare when it is wanted, and once by itself when clients have settled after the start, until cancelled."""
        core, handled = self._core, 0
        with trio.move_on_after(SETTLE_SECONDS) as settling:
            handled = await self._wanted.wait(handled)
        if settling.cancelled_caught:
            if core.config.scrub_bytes_per_second and max(core.segments.min_offset, 0) < core.trusted_from:
                self.start_scrub(slowly=True)
            handled = await self._wanted.wait(handled)
        while True:
            report = self.report
            if report is not None:
                await self._scrub(report)
            handled = await self._wanted.wait(handled)

    async def _scrub(self, report: ScrubReport) -> None:
        core = self._core
        read_to = report.position
        while report.position < report.end:
            report.position = max(report.position, core.segments.min_offset)  # files grow too old meanwhile
            if report.position >= read_to:
                read_to = report.position + _READ_BYTES
                try:
                    await core.disk.in_thread(partial(self._read_ahead, report.position))
                except OSError as error:
                    log.error("the scrub ends, its disk fails", at=report.position, why=os_failure(error))
                    report.running = False
                    return
            before, began = report.position, core.clock.monotonic()
            self._compare(report, min(before + _STEP_BYTES, report.end))
            if not self._slowly:
                await trio.lowlevel.checkpoint()
                continue
            rate = core.config.scrub_bytes_per_second
            if not rate:  # set to 0 meanwhile
                report.running = False
                return
            took = core.clock.monotonic() - began
            await core.clock.sleep(max((report.position - before) / rate, took / _SHARE))
        await self._place(report)
        await self._mend_index()
        report.entries = self._index.mended
        if not report.damaged and report.begin <= core.segments.min_offset:
            core.trusted_from = min(core.trusted_from, report.begin)
        report.running = False
        log.info("the log was compared", folder=core.config.folder, records=report.records, damage=len(report.damaged))

    def _read_ahead(self, position: int) -> None:
        """Have the bytes in memory before they are compared, in a thread: the disk may take its time."""
        segment = self._core.segments.find(position)
        if segment is None:
            return
        try:
            file = self._core.disk.open(segment.path, create=False)
        except FileNotFoundError:
            return  # grown too old, or removed
        try:
            file.read_at(position - segment.start, _READ_BYTES)
        finally:
            file.close()

    def _compare(self, report: ScrubReport, limit: int) -> None:
        walk = Walk(self._core.segments, report.position)
        mended = self._agreement.units_mended
        for head in walk:
            after = head.physical_offset + head.size_bytes
            if after > report.end:
                break
            is_placed = self._agreement.settle(head)
            is_good = not self._agreement.is_misplaced(head) if is_placed is None else is_placed
            if is_good and self._index.agrees(head):
                report.records += 1
                if is_placed is None and len(self._unplaced) < _UNPLACED_MAX:
                    self._unplaced.append(head)
            else:
                walk.holes.append((head.physical_offset, after))
            report.position = after
            if after >= limit:
                break
        else:
            # The walk ends where nothing whole follows, or a file is missing: go on behind that.
            following = self._core.segments.after(walk.end)
            report.position = report.end if following is None else min(following.start, report.end)
            if walk.end < report.position:
                walk.holes.append((walk.end, report.position))
        report.units += self._agreement.units_mended - mended
        self._found(report, walk.holes)

    def _found(self, report: ScrubReport, damage: list[tuple[int, int]]) -> None:
        for place in damage:
            self.note(place[0])
            if len(report.damaged) < DAMAGE_MAX:
                report.damaged.append(place)

    async def _mend_index(self) -> None:
        """Compare the rest of the index, when each entry has been compared with its record."""
        clock = self._core.clock
        began = clock.monotonic()
        for _ in self._index.mending_links():
            if self._slowly:
                await clock.sleep((clock.monotonic() - began) / _SHARE)
            else:
                await trio.lowlevel.checkpoint()
            began = clock.monotonic()

    async def _place(self, report: ScrubReport) -> None:
        """Find records that say the wrong topic: a queue of another one has a unit for them."""
        unplaced, self._unplaced = self._unplaced, []
        for number, queue in enumerate(list(self._core.consume_queues) if unplaced else ()):
            if not number % _QUEUES_IN_A_STEP:
                await trio.lowlevel.checkpoint()
            if self._core.consume_queues.by_key.get((queue.topic, queue.queue_id)) is not queue:
                continue
            for head in [each for each in unplaced if self._agreement.owns(queue, each)]:
                unplaced.remove(head)
                report.records -= 1
                self._found(report, [(head.physical_offset, head.physical_offset + head.size_bytes)])
