"""Enter what replication brought into queues and index, in runs.

The records of one piece of log are walked with one unpack each. Their queue units are written for each queue at once,
their index entries for each moment at once. What is unusual (other hosts than IPv4, transactions, delayed messages,
batch queues, messages in further queues) takes the way of a single record, after the runs before it.
"""

from __future__ import annotations

from understudy.format.light_queues import NAMES
from understudy.format.record import FLAG_HOSTS_V6, FLAG_TRANSACTION_MASK, FLAG_TRANSACTION_PREPARED, MAGIC_V1
from understudy.format.record_layout import layout
from understudy.store.commit_log import CommitLog
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.properties_digest import TAILS
from understudy.store.walk import parse

#: Size, magic, queue id, queue offset, physical offset, system flags, store time and body length of a record whose
#: hosts are IPv4.
_HEAD = layout("size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_ms", "body_length")
_HEAD_BYTES = _HEAD.size
_UNUSUAL_FLAGS = FLAG_TRANSACTION_MASK | FLAG_HOSTS_V6
_SMALLEST_BYTES = _HEAD_BYTES + 3
_MASK = 0xFFFFFFFF


class _Run:
    """Records of one queue that follow each other there: physical offset, size and tags code of each in *values*."""

    __slots__ = ("end", "first", "next_offset", "store_ms", "values")

    def __init__(self, first: int) -> None:
        self.first = self.next_offset = first
        self.values: list[int] = []
        self.end = 0
        self.store_ms = 0


class RunDispatcher:
    """Dispatches the records of a log that grows by replication."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._runs: dict[ConsumeQueue, _Run] = {}
        self._hashes: list[int] = []
        self._hashed: list[int] = []
        self._hashed_ms = 0

    def dispatch(self, log: CommitLog) -> bool:
        """Dispatch the whole records of the current file; return whether all its bytes up to the end were records."""
        core = self._core
        # After a disk that refused, what was collected is collected again.
        self._runs.clear()
        self._hashes.clear()
        self._hashed.clear()
        while core.dispatched < log.end:
            end, store_ms = self._usual(log)
            if end > core.dispatched:
                self._finish()
                core.dispatched = end
                core.last_store_ms = core.last_dispatched_ms = store_ms
                continue
            head = parse(log.view[: log.at], core.dispatched - log.base, log.base, check_crc=False)
            if head is None:
                return False
            core.dispatched += head.size_bytes
            core.last_store_ms = head.store_ms
            if head.sys_flag & FLAG_TRANSACTION_PREPARED == 0:
                core.last_dispatched_ms = head.store_ms
            self._dispatcher.dispatch(head)
        return True

    def _usual(self, log: CommitLog) -> tuple[int, int]:
        """Collect runs up to what is unusual or not whole; return their end and the store time of the last record."""
        core, dispatcher = self._core, self._dispatcher
        may_be_deleted = core.dispatched < core.deletions.until
        if may_be_deleted:
            return core.dispatched, 0
        batch_topics = core.batch_queues.topics
        divides = core.config.enable_multi_dispatch
        view, base, limit = log.view, log.base, log.at
        at = core.dispatched - base
        unpack, indexing, runs = _HEAD.unpack_from, core.config.message_index_enable, self._runs
        hashes, hashed = self._hashes, self._hashed
        store_ms, head_bytes = 0, _HEAD_BYTES
        known: dict[tuple[bytes, int], ConsumeQueue] = {}
        while limit - at >= _SMALLEST_BYTES:
            size, magic, queue_id, offset, physical, flags, stored_ms, length = unpack(view, at)
            if magic != MAGIC_V1 or flags & _UNUSUAL_FLAGS or physical != base + at or size > limit - at:
                break
            tail_at = at + head_bytes + length
            if length < 0 or tail_at + 3 > at + size:
                break
            tail = bytes(view[tail_at : at + size])
            field_at = 1 + tail[0]
            field = tail[field_at:]
            if len(field) < 2 or field[0] << 8 | field[1] != len(field) - 2 or field[0] > 0x7F:
                break
            queue_key = (tail[:field_at], queue_id)
            queue = known.get(queue_key)
            if queue is None:
                if batch_topics and tail[1:field_at].decode("utf-8", "replace") in batch_topics:
                    break
                queue = known[queue_key] = dispatcher.queue(tail[1:field_at], queue_id)
            if queue.is_schedule:
                break
            digest = queue.digest
            tail_of_key = digest.tail_at
            if (
                tail_of_key >= 0
                and len(field) == digest.length
                and field[tail_of_key + 2 :] == digest.after
                and field[:tail_of_key] == digest.before
                and (key := TAILS.get(field[tail_of_key : tail_of_key + 2])) is not None
            ):
                found = [digest.hash_before + key & _MASK, *digest.hashes[1:]]
            else:
                if divides and NAMES in field:
                    break
                digest = queue.digest = dispatcher.look_into(queue, field)
                found = digest.hashes
            run = runs.get(queue)
            if run is None or run.next_offset != offset:
                if run is not None:
                    self._end_run(queue, run)
                run = runs[queue] = _Run(offset)
            run.values += (physical, size, digest.code)
            at += size
            run.next_offset = offset + 1
            run.end = base + at
            run.store_ms = store_ms = stored_ms
            if indexing and found:
                if store_ms != self._hashed_ms:
                    self._end_entries()
                    self._hashed_ms = store_ms
                hashes += found
                hashed += [physical] * len(found)
            if not core.show_at_once:
                # What is held back stands in the order of the log, which runs would not keep.
                self._end_run(queue, runs.pop(queue))
        return base + at, store_ms

    def _finish(self) -> None:
        for queue, run in self._runs.items():
            self._end_run(queue, run)
        self._runs.clear()
        self._end_entries()

    def _end_entries(self) -> None:
        if self._hashes:
            self._core.index.put_each(self._hashes, self._hashed, self._hashed_ms)
            self._hashes.clear()
            self._hashed.clear()

    def _end_run(self, queue: ConsumeQueue, run: _Run) -> None:
        queues = self._core.consume_queues
        if run.first == queue.next_offset:
            queues.append_units(queue, run.values)
        else:
            for number in range(0, len(run.values), 3):
                offset = run.first + number // 3
                if queues.put(queue, offset, *run.values[number : number + 3]):
                    self._core.forget_held(queue, offset)
        starts, codes = run.values[::3], run.values[2::3]
        count = queue.next_offset - run.first
        if count < len(codes):  # those after have no place: what stands before them is newer
            if count <= 0:
                return
            run.end, starts, codes = starts[count], starts[:count], codes[:count]
        self._core.show_run(queue, run.first, starts, run.end, codes, run.store_ms)
