"""Copy what is stored in compaction topics into their compaction logs, and compact these now and then.

Both run off the hot path: what is to be copied is read as a consumer would read it, once it is durable in the log, and
written in threads, as everything else here. One thing is done at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

from understudy.format.record import PHYSICAL_OFFSET_AT
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_failure
from understudy.store.compaction.files import CompactedFile, CompactedQueue, RecordTooLargeError
from understudy.store.compaction.layout import Copy, copy_of
from understudy.store.compaction.opening import open_queue, remove_temporary
from understudy.store.compaction.rounds import Round, compact, is_due
from understudy.store.compaction.swaps import Swap, carry_out, note_swap
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.reader import Reader
from understudy.store.status import GetStatus
from understudy.store.walk import parse

log = get_logger("store.compaction")

T = TypeVar("T")

COPY_PAUSE_S = 1.0
"""Between two looks at what is to be copied, while there is something; readers do not wait for it."""
_BATCH_BYTES = 256 << 10
_BATCH_READS = 8
"""Most reads in one turn of the event loop."""
_SETTLE_S = 10
"""How long the end of a store may take for copying; another broker copies no more than what is stored after it."""
_READ_MESSAGES = 32
_LOOKS_ON = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


class Compaction:
    """Keeps the compaction logs of one store.

    Args:
        core: the store.
        reader: reads the ordinary queues.
    """

    def __init__(self, core: StoreCore, reader: Reader) -> None:
        self._core = core
        self._queues = core.compacted
        self._reader = reader
        self._lock = trio.Lock()
        self._unfinished: tuple[CompactedQueue, Swap, list[CompactedFile]] | None = None
        self._with_temporary: list[CompactedQueue] = []
        self._told: set[str] = set()

    async def run(self) -> None:
        """Copy and compact until cancelled; asleep while there is no compaction topic, or nothing new."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy_loop)
            nursery.start_soon(self._compact_loop)

    async def _copy_loop(self) -> None:
        core, queues, handled = self._core, self._queues, 0
        while True:
            if not queues.topics and not queues.doomed and self._unfinished is None:
                handled = await queues.changed.wait(handled)
                continue
            await self.copy()
            if not self._is_behind():
                core.asleep = True
                await core.growth.wait()
            await core.clock.sleep(COPY_PAUSE_S)

    async def _compact_loop(self) -> None:
        queues, handled = self._queues, 0
        while True:
            if not queues.topics:
                handled = await queues.changed.wait(handled)
                continue
            await self._core.clock.sleep(max(self._core.config.compaction_interval_ms, 1) / 1000)
            await self.compact()

    def _is_behind(self) -> bool:
        if self._queues.doomed or self._unfinished is not None:
            return True
        wanted = self._queues.wanted()
        return any(queue.must_be_cut or queue.copied_to < ordinary.next_offset for queue, ordinary in wanted)

    async def copy(self) -> None:
        """Do what has to be done in files, then copy all that is durable and not copied yet."""
        async with self._lock:
            try:
                await self._tidy()
                for queue, ordinary in self._queues.wanted():
                    await self._copy_queue(queue, ordinary)
            except OSError as error:
                self._say(f"compaction logs cannot be written: {os_failure(error)}")

    async def compact(self) -> None:
        """Run one round for each queue that has closed files which no round has seen."""
        async with self._lock:
            for queue, _ in self._queues.wanted():
                try:
                    await self._tidy()
                    await self._round(queue)
                except OSError as error:
                    self._say(f"a queue cannot be compacted: {os_failure(error)}")

    async def settle(self) -> None:
        """Leave the files as another broker expects them, at the end of the store: everything copied, nothing half."""
        if self._queues.topics or self._queues.doomed or self._unfinished is not None:
            with self._core.clock.move_on_after(_SETTLE_S):
                await self.copy()
        async with self._lock:
            for queue in self._with_temporary:
                await self._in_thread(partial(remove_temporary, self._core.disk, queue))

    async def _tidy(self) -> None:
        """Finish what is begun, remove what is deleted, cut what was cut."""
        if self._unfinished is not None:
            await self._finish(*self._unfinished)
        for topic in sorted(self._queues.doomed):
            await self._in_thread(partial(self._queues.remove_files, topic))
        for queue in list(self._queues.by_key.values()):
            if queue.must_be_cut:
                files = queue.files
                await self._in_thread(partial(self._queues.cut, queue))
                for file in files:
                    file.drop_mapped()

    async def _copy_queue(self, queue: CompactedQueue, ordinary: ConsumeQueue) -> None:
        core = self._core
        if not queue.is_open:
            await self._in_thread(partial(open_queue, core.disk, queue, unclean=True))
            low = core.consume_queues.correct_min(ordinary, core.segments.min_offset)
            if low > queue.copied_to:
                self._say(
                    f"the compaction log of {queue.topic} queue {queue.queue_id} begins at queue offset {low}: what "
                    "came before is not in the log of this broker any more"
                )
        while True:
            generation, before = queue.generation, queue.copied_to
            copies, end = self._to_copy(queue)
            if end <= before:
                return
            if copies:
                try:
                    await self._in_thread(partial(queue.add, core.disk, copies))
                except RecordTooLargeError as error:
                    self._say(f"{queue.topic} queue {queue.queue_id} is not compacted any further: {error}")
                    return
            if generation != queue.generation:
                return
            queue.copied_to = end

    def _to_copy(self, queue: CompactedQueue) -> tuple[list[Copy], int]:
        """Return the next records to copy, and the queue offset that is copied to then."""
        at, size, copies = queue.copied_to, 0, list[Copy]()
        for _ in range(_BATCH_READS):
            found = self._reader.get(queue.topic, queue.queue_id, at, _READ_MESSAGES, _BATCH_BYTES)
            if found.status is GetStatus.OFFSET_TOO_SMALL:
                at = found.min_offset
                continue
            for part in found.parts:
                place = 0
                while place < len(part):
                    physical = int.from_bytes(part[place + PHYSICAL_OFFSET_AT : place + PHYSICAL_OFFSET_AT + 8], "big")
                    head = parse(part, place, physical - place, check_crc=False)
                    if head is None or physical + head.size_bytes > self._core.flushed:
                        return copies, at
                    copy = copy_of(head, part[place : place + head.size_bytes])
                    if copy is not None and copy.offset > queue.last:
                        copies.append(copy)
                    at, place, size = head.queue_offset + 1, place + head.size_bytes, size + head.size_bytes
            if found.status not in _LOOKS_ON or found.next_begin_offset < at:
                break
            at = found.next_begin_offset
            if size >= _BATCH_BYTES:
                break
        return copies, at

    async def _round(self, queue: CompactedQueue) -> None:
        core, positions = self._core, self._queues.positions
        position = positions.of(queue.topic, queue.queue_id)
        if not is_due(queue, position):
            return
        if queue not in self._with_temporary:
            self._with_temporary.append(queue)
        generation = queue.generation
        most_bytes = core.config.compaction_map_bytes
        steps = compact(core.disk, queue, position, most_bytes, core.clock.wall_ms)
        try:
            result = None
            while result is None and generation == queue.generation:
                result = await self._in_thread(partial(_step, steps))
        finally:
            steps.close()
        if result is None or generation != queue.generation:
            return
        new, swap = result
        await self._in_thread(partial(note_swap, core.disk, positions, swap))
        self._unfinished = queue, swap, new
        for file in new:
            file.pin(core.disk)
        old = queue.files[: len(swap.old)]
        queue.files = (*new, *queue.files[len(swap.old) :])
        for file in old:
            file.drop_mapped()
        await self._finish(queue, swap, new)

    async def _finish(self, queue: CompactedQueue, swap: Swap, new: list[CompactedFile]) -> None:
        await self._in_thread(partial(carry_out, self._core.disk, self._queues.positions, queue, swap))
        self._unfinished = None
        self._with_temporary.remove(queue)
        for file in new:
            file.suffix = ""
            file.unpin()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await self._core.disk.in_thread(function)

    def _say(self, what: str) -> None:
        """Log something that will happen again and again once."""
        if what not in self._told:
            self._told.add(what)
            log.error(what)


def _step(steps: Round) -> tuple[list[CompactedFile], Swap] | None:
    """Take one step of a round; return what came out of it once it is at its end."""
    try:
        next(steps)
    except StopIteration as end:
        result: tuple[list[CompactedFile], Swap] = end.value
        return result
    return None
