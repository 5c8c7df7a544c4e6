"""Append to batch queues: single messages, and client batches that become one record, an *inner batch*.

Messages of such topics are few and large, so this is written to be short. The queue offset of the first message of an
inner batch goes into its properties here, for a queue that is made anew from the log.

Source: BatchConsumeQueue.java (assignQueueOffset), HookUtils.java (checkInnerBatch).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

from understudy.format.batch import BatchError, count_messages, iter_batch
from understudy.format.properties import find_property, format_properties, parse_properties
from understudy.format.record import (
    CRC_MASK,
    FIXED,
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_INNER_BATCH,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    MAX_PROPERTIES_BYTES,
    RecordError,
)
from understudy.store.batch_queue import MOST_MESSAGES, BatchQueue, BatchUnit
from understudy.store.core import StoreCore
from understudy.store.dispatch import INNER_BASE, INNER_NUM, Dispatcher
from understudy.store.properties_digest import KEYS, TAGS, UNIQ_KEY
from understudy.store.seals import NO_SEAL, SEAL_BYTES, seal, unsealed
from understudy.store.status import Appended, AppendedBatch, PutRejected, PutStatus

if TYPE_CHECKING:
    from understudy.store.writer import Writer

_HOST_FLAGS = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6


class BatchQueueWriter:
    """Appends to the batch queues of one store, beside its *writer*, which checks names and takes space."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, writer: Writer) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._writer = writer

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: bytes,
        born_ms: int,
        born_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
        now_ms: int | None,
    ) -> Appended:
        """Write one message, or one inner batch if *sys_flag* says so.

        Args:
            topic, queue_id, body, properties, born_ms, born_host: as of the plain writer.
            flag, sys_flag, reconsume_times, prepared_transaction_offset, now_ms: as of it.

        Raises:
            PutRejected: nothing was written. A message that is no inner batch but says how many it holds, or an inner
                batch that does not hold as many as it says, is MESSAGE_ILLEGAL.
        """
        queue = self._admit(topic, queue_id)
        count = _count_of(body, properties, sys_flag)
        if sys_flag & FLAG_INNER_BATCH:
            properties = _with_base(properties, queue.next_offset)
        stored = self._write(
            queue,
            [(flag, bytes(body), properties)],
            count,
            (sys_flag, born_ms, born_host, reconsume_times, prepared_transaction_offset, now_ms),
        )
        physical = stored.physical_offsets[0]
        return Appended(physical, stored.end_offset - physical, stored.first_queue_offset)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        born_ms: int,
        born_host: bytes,
        sys_flag: int,
        reconsume_times: int,
        now_ms: int | None,
    ) -> AppendedBatch:
        """Write every message of a client batch as a record of its own, all or none.

        Args:
            topic, queue_id, body, born_ms, born_host: as of the batch writer.
            sys_flag, reconsume_times, now_ms: as of it.

        Raises:
            PutRejected: nothing was written.
        """
        queue = self._admit(topic, queue_id)
        if sys_flag & (FLAG_TRANSACTION_MASK | FLAG_INNER_BATCH):
            raise _illegal("a batch can be neither transactional nor delayed")
        raw = bytes(body)
        try:
            messages = [
                (flag, raw[at : at + length], raw[at + length + 2 : end]) for flag, at, length, end in iter_batch(raw)
            ]
        except BatchError as error:
            raise _illegal(str(error)) from None
        if not messages:
            raise _illegal("the batch has no message")
        for _, _, properties in messages:
            _count_of(b"", properties, 0)
        return self._write(queue, messages, 1, (sys_flag, born_ms, born_host, reconsume_times, 0, now_ms))

    def _admit(self, topic: str, queue_id: int) -> BatchQueue:
        self._writer.check(topic, queue_id)
        try:
            return self._core.batch_queues.create(topic, queue_id)
        except RecordError as error:
            raise _illegal(str(error)) from None

    def _write(
        self,
        queue: BatchQueue,
        messages: list[tuple[int, bytes, bytes]],
        count: int,
        shared: tuple[int, int, bytes, int, int, int | None],
    ) -> AppendedBatch:
        """Write records behind each other in log and queue.

        Args:
            queue: where they go.
            messages: flag, body and properties of each.
            count: how many messages each of them is.
            shared: system flags, born time and host, reconsume times, prepared transaction offset, wall time.
        """
        core, log = self._core, self._core.log
        sys_flag, born_ms, born_host, reconsume_times, prepared_offset, now_ms = shared
        seals = core.config.enabled_append_prop_crc
        messages = [(flag, body, unsealed(properties) + NO_SEAL * seals) for flag, body, properties in messages]
        self._check_sizes(messages)
        now = core.clock.wall_ms() if now_ms is None else now_ms
        fixed = FIXED[len(born_host), len(core.store_host)]
        sys_flag = sys_flag & ~_HOST_FLAGS | (FLAG_STORE_HOST_V6 if len(core.store_host) == 20 else 0)
        sys_flag |= FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0
        has_unit = not sys_flag & FLAG_TRANSACTION_PREPARED
        topic = queue.named.topic_field
        tails = [body + topic + len(text).to_bytes(2, "big") + text for _, body, text in messages]
        sizes = [fixed.size + len(tail) for tail in tails]
        if has_unit:
            self._make_room(queue, len(messages))
        self._writer.take_space(sum(sizes))
        first, begin = queue.next_offset if has_unit else 0, log.base + log.at
        starts = list(accumulate(sizes[:-1], initial=begin))
        end = begin + sum(sizes)
        heads = [
            fixed.pack(
                size,
                queue.named.magic,
                crc32(body) & CRC_MASK,
                queue.queue_id,
                flag,
                first + number if has_unit else 0,
                physical,
                sys_flag,
                born_ms,
                born_host,
                now,
                core.store_host,
                reconsume_times,
                prepared_offset,
                len(body),
            )
            for number, ((flag, body, _), size, physical) in enumerate(zip(messages, sizes, starts, strict=True))
        ]
        if seals:
            tails = [
                tail[:-SEAL_BYTES] + seal(head, tail[:-SEAL_BYTES]) for head, tail in zip(heads, tails, strict=True)
            ]
        # The head of the first record last: a process killed in between leaves nothing that looks whole.
        view = log.view
        for head, tail, physical in reversed(list(zip(heads, tails, starts, strict=True))):
            at = physical - log.base
            view[at + fixed.size : at + fixed.size + len(tail)] = tail
            view[at : at + fixed.size] = head
        log.at = end - log.base
        core.last_store_ms = now
        core.dispatched = end
        for number, ((_, _, properties), size, physical) in enumerate(zip(messages, sizes, starts, strict=True)):
            code = self._note_keys(queue, properties, physical, sys_flag, now)
            if has_unit:
                unit = BatchUnit(physical, size, code, now, first + number, count)
                self._dispatcher.enter_unit(queue, unit, sys_flag, properties)
                core.last_dispatched_ms = now
        if core.asleep:
            core.wake()
        return AppendedBatch(first, starts, end)

    def _check_sizes(self, messages: Iterable[tuple[int, bytes, bytes]]) -> None:
        limit = self._core.config.max_message_size
        total = 0
        for _, body, properties in messages:
            total += len(body)
            if total > limit or len(properties) > MAX_PROPERTIES_BYTES:
                raise self._writer.too_large(total, len(properties))

    def _make_room(self, queue: BatchQueue, count: int) -> None:
        # Before anything is written: a message without an entry in its queue would be lost to readers.
        try:
            queue.make_room(count)
        except OSError as error:
            raise self._writer.no_space("no new consume queue file", error) from error

    def _note_keys(self, queue: BatchQueue, properties: bytes, physical: int, sys_flag: int, now: int) -> int:
        """Have the index learn of a record; return its tags code."""
        core = self._core
        tags = find_property(properties, TAGS)
        if core.config.message_index_enable and sys_flag & FLAG_TRANSACTION_MASK != FLAG_TRANSACTION_ROLLBACK:
            unique, keys = find_property(properties, UNIQ_KEY), find_property(properties, KEYS)
            core.unindexed.append((queue.named, unique, keys, tags, physical, now))
        return 0 if tags is None else self._dispatcher.tag_code(tags)


def _count_of(body: bytes | memoryview, properties: bytes, sys_flag: int) -> int:
    """Return how many messages a record is; refuse one whose properties or flags say something else."""
    number = find_property(properties, INNER_NUM)
    if not sys_flag & FLAG_INNER_BATCH:
        if number is not None:
            raise _illegal("INNER_NUM is a property of batches that the broker stores as one message")
        return 1
    if sys_flag & (FLAG_COMPRESSED | FLAG_TRANSACTION_MASK):
        raise _illegal("an inner batch can be neither transactional nor compressed")
    count = count_messages(body, MOST_MESSAGES)
    if not 0 < count <= MOST_MESSAGES:
        raise _illegal(f"an inner batch has between 1 and {MOST_MESSAGES} messages")
    if number != b"%d" % count:
        raise _illegal(f"INNER_NUM of the batch is not {count}, which is what it holds")
    return count


def _with_base(properties: bytes, base: int) -> bytes:
    """Return *properties* with the queue offset of the first message."""
    if INNER_BASE in properties:
        pairs = parse_properties(properties)
        pairs.pop("INNER_BASE", None)
        properties = format_properties(pairs).encode()
    end = b"" if properties.endswith(b"\x02") else b"\x02"
    return properties + end + INNER_BASE + b"%d\x02" % base


def _illegal(remark: str) -> PutRejected:
    return PutRejected(PutStatus.MESSAGE_ILLEGAL, remark, special=True)
