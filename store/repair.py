"""Put a master's bytes back into the holes of our log, in place: nothing that can be read is given up meanwhile.

Only *void spans* are written to: void records, unused ends of files, whatever no whole record covers, and records of
which it is known that they have rotted, the one at the noted hole among them. Every other byte must be as the master
has it. A span gets its first bytes last, when all others are durable, so that at any moment it reads as what it was, as
damage that recovery makes void again, or as the master's records. The note of the hole goes when everything is back, in
the queues and the index too; a start before that repairs again.

Index and batch queues are in the order of the log: they end at the hole, and are entered again from there on, before
anything is appended. Who waits for that may be cancelled, and it goes on; a process that ends in the middle leaves a
note for the next start, which enters everything itself.

The reference has nothing of the kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

import trio

from understudy.format.record import BLANK, BLANK_MAGIC, HEAD
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_failure
from understudy.runtime.signal import Signal
from understudy.store.core import BEING_ENTERED, StoreCore
from understudy.store.damage import MENDED_AT_ONCE_BYTES, SMALLEST_VOID_BYTES, write_void_record
from understudy.store.dispatch import Dispatcher
from understudy.store.flush import Flusher, sync_files
from understudy.store.integrity import Integrity
from understudy.store.walk import RecordHead, Walk, is_blank, is_void

#: Written last of a span: at least what a record needs to be taken for one.
_HEAD_BYTES = 128
#: So much of the log is dispatched before others get their turn.
_DISPATCH_BYTES = 64 << 10
#: A disk that refused is asked again after so long, later less often.
_RETRY_SECONDS = 5.0
_LONGEST_RETRY_SECONDS = 60.0

log = get_logger("store.repair")


class Repairs:
    """The repairs of one store."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, flusher: Flusher, integrity: Integrity) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._integrity = integrity
        self._turn = trio.Lock()
        self._wanted = Signal()
        self._left: Repair | None = None
        self._entered: Repair | None = None

    def begin(self, start: int, *, keep_note: bool = False, copy: bool = False) -> Repair:
        """See :meth:`understudy.store.message_store.MessageStore.repair`."""
        return Repair(self, self._core, self._dispatcher, self._integrity, start, keep_note=keep_note, copy=copy)

    async def enter(self, repair: Repair) -> None:
        """Enter what came back in *repair*, and note what is still missing; no message is taken meanwhile.

        Raises:
            OSError: the disk refused; it is tried again beside.
        """
        core = self._core
        core.refusals.add(BEING_ENTERED)
        if self._left is None or repair.start < self._left.start:
            self._left = repair  # all from its start on, what another one has left, too
        try:
            with trio.CancelScope(shield=core.dispatched - self._left.start <= MENDED_AT_ONCE_BYTES):
                await self._go_on()
        except BaseException:
            self._wanted.set()
            raise

    async def run(self) -> None:
        """Go on with what was cancelled, or refused by the disk, until cancelled; asleep while there is nothing."""
        core, handled, pause_s = self._core, 0, _RETRY_SECONDS
        if core.holes.again is not None:
            self._wanted.set()  # the start has entered it, but not durably
        while True:
            handled = await self._wanted.wait(handled)
            try:
                await self._go_on()
                pause_s = _RETRY_SECONDS
            except OSError as error:
                log.error("what came back could not be entered, trying again", why=os_failure(error))
                await core.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_SECONDS)
                self._wanted.set()

    async def _go_on(self) -> None:
        core = self._core
        async with self._turn:
            while (repair := self._left) is not None:
                await repair._enter_again()
                self._entered = repair
                if self._left is repair:
                    self._left = None
            for batch in core.batch_queues.by_key.values():
                batch.end_again()
            core.refusals.discard(BEING_ENTERED)
            if core.holes.again is None:
                return
            self._flusher.note_deletion()
            if not await self._flusher.make_durable():
                raise OSError("the repaired log, its queues and its index could not be made durable")
            entered = self._entered
            await core.holes.end_again(lambda noted: noted if entered is None else entered.missing_of(noted))
            self._entered = None


class Repair:
    """One try to repair the log from *start* on; the bytes must come in order.

    Args:
        start: physical offset of the first hole, where a record or a hole begins.
        keep_note: keep in mind, over starts, what came back, until whoever asked for that has looked after its places.
        copy: the bytes are those of our master, with what stands in for messages that it lacks itself: that is no hole
            of ours then, but a copy of it.

    Attributes:
        start: as above.
        compared_bytes: so many were found to be the same outside of void spans.
    """

    def __init__(
        self,
        all_of: Repairs,
        core: StoreCore,
        dispatcher: Dispatcher,
        integrity: Integrity,
        start: int,
        *,
        keep_note: bool,
        copy: bool = False,
    ) -> None:
        self._all = all_of
        self._core = core
        self._integrity = integrity
        self._dispatcher = dispatcher
        self.start = start
        self._keeps_note = keep_note
        self._is_copy = copy
        self._walked = start
        self._spans: deque[tuple[int, int]] = deque()
        self._head = bytearray()
        self._changed = False
        self._wrote = False
        self._missing: list[int] = []
        self.compared_bytes = 0

    def differs_at(self, physical_offset: int, data: bytes | memoryview) -> int | None:
        """Return the first byte of ours outside of void spans that is not as in *data*; ``None`` when all are."""
        end = physical_offset + len(data)
        self._walk_to(end)
        while self._spans and self._spans[0][1] <= physical_offset:
            self._spans.popleft()
        view, at = memoryview(data), physical_offset
        for first, after in [*self._spans, (end, end)]:
            first = min(first, end)
            if first > at:
                found = self._difference(at, view[at - physical_offset : first - physical_offset])
                if found is not None:
                    return found
                self.compared_bytes += first - at
            at = max(at, min(after, end))
        return None

    async def write(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Write what belongs into void spans; a span that is complete is durable.

        Raises:
            ValueError: bytes outside of void spans differ; nothing of *data* was written.
            OSError: the disk refused.
        """
        found = self.differs_at(physical_offset, data)
        if found is not None:
            raise ValueError(f"our log has other bytes at {found}")
        end, view, holes = physical_offset + len(data), memoryview(data), self._core.holes
        parts = []
        for first, after in self._spans:
            begin, stop = max(first, physical_offset), min(after, end)
            if begin < stop:
                parts.append((first, after, begin, view[begin - physical_offset : stop - physical_offset]))
        if self._keeps_note:
            news = {part[:2] for part in parts if self._difference(*part[2:]) is not None}
            if not news <= set(holes.back):
                await holes.note_back(sorted(news))
        for part in parts:
            await self._fill(*part)

    async def finish(self, end: int) -> None:
        """Enter what came back into queues and index, make all of it durable, and note what is still missing.

        Without effect when nothing came back. No message is taken meanwhile: it would be entered twice, or in a batch
        queue that is as far back as the hole.

        Args:
            end: bytes came up to here (physical offset).

        Raises:
            OSError: the disk refused; the hole is still noted.
        """
        await self._end_span(end)
        if self._wrote or self._core.holes.back or not self._is_lost(self.start):
            await self._all.enter(self)

    def missing_of(self, noted: Iterable[int]) -> list[int]:
        """Return the holes of the log, after all was entered, when those that were *noted* are known.

        What was noted meanwhile, or is about to be, and lies before all that was compared stays.
        """
        return [*(hole for hole in noted if hole < self.start), *self._missing]

    async def _enter_again(self) -> None:
        core = self._core
        await core.holes.begin_again(self.start)
        for remove in core.index.cut_in_steps(self.start, core.last_store_ms):
            await trio.lowlevel.checkpoint()
            if remove is not None:
                with trio.CancelScope(shield=True):  # nobody would come back to it
                    await core.disk.in_thread(remove)
        for batch in list(core.batch_queues.by_key.values()):
            batch.begin_again(self.start)
            await trio.lowlevel.checkpoint()
        core.holes.forget_copied(self.start)
        position, holes = self.start, list[int]()
        while position < core.dispatched:
            position = self._dispatch(position, min(position + _DISPATCH_BYTES, core.dispatched), holes)
            await trio.lowlevel.checkpoint()
        self._dispatcher.former_lives.settle()
        self._integrity.forget_from(self.start)
        if self._is_lost(self.start):  # damage at the end of a file is an unused end, which no walk takes for a hole
            holes.append(self.start)
        if self._is_copy:
            for each in holes:
                core.holes.copy(each)  # damage as well: the master was perhaps writing there
        self._missing = [] if self._is_copy else holes

    @property
    def wrote(self) -> bool:
        """Whether other bytes stand in the log than before."""
        return self._wrote

    # Inside

    def _is_lost(self, physical: int) -> bool:
        """Whether what stands at *physical* stands in for something that is lost."""
        segment = self._core.segments.find(physical)
        if segment is None:
            return False
        head = next(iter(self._records(physical)), None)
        if head is None or head.physical_offset != physical or is_void(head):
            return True
        return is_blank(self._core.segments.view(segment), physical - segment.start)

    def _walk_to(self, limit: int) -> None:
        """Find the void spans that begin before *limit*; an incomplete record at the end of the log is none."""
        end = self._core.dispatched
        limit = min(limit, end)
        if self._walked >= limit:
            return
        for head in self._records(self._walked):
            first, after = head.physical_offset, head.physical_offset + head.size_bytes
            if first > self._walked:
                self._spans.append((self._walked, first))
            if is_void(head) or first == self.start or self._integrity.is_damaged(first):
                self._spans.append((first, after))
            self._walked = after
            if after >= limit:
                return
        if self._walked < end:
            if self._core.segments.find(self._walked) is None:
                raise ValueError(f"the file of {self._walked} was deleted meanwhile")
            self._spans.append((self._walked, end))
            self._walked = end

    def _records(self, start: int) -> Iterator[RecordHead]:
        return iter(Walk(self._core.segments, start))

    def _difference(self, physical: int, data: memoryview) -> int | None:
        """Return the first byte of ours from *physical* on that is not as in *data*."""
        while data:
            ours = self._core.log.tail_at(physical, len(data))
            if not ours:
                return physical
            if bytes(ours) != bytes(data[: len(ours)]):
                return physical + next(at for at in range(len(ours)) if ours[at] != data[at])
            physical += len(ours)
            data = data[len(ours) :]
        return None

    async def _fill(self, first: int, after: int, begin: int, part: memoryview) -> None:
        """Write *part* at *begin* into the span [first, after), all but the span's first bytes; those when it ends."""
        if begin == first:
            self._head.clear()
            self._changed = False
        to_head = max(min(first + _HEAD_BYTES, after) - begin, 0)
        self._head += part[:to_head]
        if len(self._head) == min(_HEAD_BYTES, after - first) and not self._begins(first):
            return  # who gives it lacks it as well, from further before on: it stays void
        self._put(begin + to_head, part[to_head:])
        if begin + len(part) < after:
            return
        if self._changed:
            await self._sync(first, after)
        self._changed = False
        self._put(first, memoryview(bytes(self._head)))
        if self._changed:
            await self._sync(first, after)

    async def _end_span(self, end: int) -> None:
        """Close a span that bytes came for up to *end* only: behind the last whole record of them it stays void."""
        for first, after in self._spans:
            if not first < end < after or not self._begins(first):
                continue
            whole = first
            while (size := self._record_bytes(first, whole)) and whole + size <= end:
                whole += size
            segment = self._core.segments.find(first)
            if whole == first or after - whole < SMALLEST_VOID_BYTES or segment is None or after > segment.end:
                return  # damage, as it was
            del self._head[whole - first :]
            write_void_record(
                self._core, self._core.segments.view(segment), whole - segment.start, whole, after - whole
            )
            await self._sync(first, after)
            self._put(first, memoryview(bytes(self._head)))
            await self._sync(first, after)

    def _begins(self, first: int) -> bool:
        """Whether what came for the span from *first* on begins as a record that stands there, or an unused end."""
        head = bytes(self._head)
        unused = len(head) < BLANK.size or BLANK.unpack_from(head)[1] == BLANK_MAGIC
        return unused or (len(head) >= HEAD.size and HEAD.unpack_from(head)[6] == first)

    def _record_bytes(self, first: int, record: int) -> int:
        """Return the length that stands at *record* in the span from *first* on, whose head is not written yet."""
        size = bytes(self._head[record - first : record - first + 4])
        size += bytes(self._core.log.tail_at(record + len(size), 4 - len(size)))
        return max(int.from_bytes(size, "big", signed=True), 0)

    def _put(self, physical: int, data: memoryview) -> None:
        core = self._core
        while data:
            segment = core.segments.find(physical)
            if segment is None:
                raise ValueError(f"the file of {physical} was deleted meanwhile")
            size = min(len(data), segment.end - physical)
            at = physical - segment.start
            view = core.segments.view(segment)
            if bytes(view[at : at + size]) != bytes(data[:size]):
                # Bytes that never reached the disk may have no space there; a write through the mapping needs it.
                core.disk.allocate(segment.path, at, size)
                view[at : at + size] = data[:size]
                self._changed = self._wrote = True
            physical += size
            data = data[size:]

    async def _sync(self, first: int, after: int) -> None:
        core = self._core
        paths = [each.path for each in core.segments.items if each.start < after and first < each.end]
        await core.disk.in_thread(partial(sync_files, core.disk, paths, []))

    def _dispatch(self, start: int, limit: int, holes: list[int]) -> int:
        """Dispatch the records that begin between *start* and *limit*, and add what is missing there to *holes*.

        Returns:
            Where the next one begins.
        """
        start = max(start, self._core.segments.min_offset)  # files grow too old meanwhile
        walk = Walk(self._core.segments, start)
        for head in walk:
            self._dispatcher.dispatch(head)
            if is_void(head):
                holes.append(head.physical_offset)
            start = head.physical_offset + head.size_bytes
            if start >= limit:
                break
        else:
            start = self._core.dispatched
        holes += [first for first, _ in walk.holes]
        return start


def intact_from(core: StoreCore, start: int) -> int:
    """Return where the last void record behind *start*, the physical offset of a record, ends; *start* without one."""
    intact = start
    for head in Walk(core.segments, start):
        if is_void(head):
            intact = head.physical_offset + head.size_bytes
    return intact
