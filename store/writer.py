"""Append: one pack and a few copies into the mapped log, queue unit and index entries at once.

This is the hot path: no object per message but the small tuple that is returned, no parsing back of what was written.
The head of a record is written after its body, so that a process killed in between leaves nothing that looks whole.
"""

from __future__ import annotations

from operator import mul
from zlib import crc32

from understudy.store.batch import BatchError, iter_batch
from understudy.store.consume_queue import UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import KEYS, TAGS, UNIQ_KEY, Dispatcher
from understudy.store.properties import POWERS_OF_LENGTH, find_property, unsigned_hash
from understudy.store.record import (
    FIXED,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAX_PROPERTIES_BYTES,
    RecordError,
)
from understudy.store.status import Appended, AppendedBatch, PutRejected, PutStatus

RETRY_PREFIX = "%RETRY%"
_MAX_TOPIC_BYTES = 127
_MAX_RETRY_TOPIC_BYTES = 255
#: Room left in a file for the blank marker.
_BLANK_BYTES = 8
#: A record may be this much longer than the longest body.
_RECORD_EXTRA_BYTES = 65_536
_PREFIX_CACHE_MAX = 64
#: A unique key ends with the low half of its time and a counter; what is before changes about once a minute.
_UNIQ_TAIL = 8
_TAIL_POWERS = POWERS_OF_LENGTH[_UNIQ_TAIL]
_pack_unit = UNIT.pack_into
_new_tuple = tuple.__new__


class Writer:
    """Appends messages to one store."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._log = core.log
        self._by_key = core.consume_queues.by_key
        self._dispatcher = dispatcher
        self._wall_ms = core.clock.wall_ms
        self._store_host = core.store_host
        self._fixed = {length: FIXED[length, len(core.store_host)] for length in (8, 20)}
        self._store_flag = FLAG_STORE_HOST_V6 if len(core.store_host) == 20 else 0
        self._max_body = core.config.max_message_size
        self._indexing = core.config.message_index_enable

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: bytes,
        born_ms: int,
        born_host: bytes,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        tags_code: int | None = None,
        tags: str | None = None,
        keys: str | None = None,
        uniq_key: str | None = None,
        now_ms: int | None = None,
    ) -> Appended:
        """See :meth:`understudy.store.message_store.MessageStore.append`."""
        core = self._core
        queue = self._by_key.get((topic, queue_id))
        if queue is None or core.refusals:
            queue = self._admit(topic, queue_id)
        body_length = len(body)
        properties_length = len(properties)
        fixed = self._fixed[len(born_host)]
        head_length = fixed.size
        topic_bytes = queue.topic_field
        size = head_length + body_length + len(topic_bytes) + 2 + properties_length
        if body_length > self._max_body or properties_length > MAX_PROPERTIES_BYTES:
            raise self._too_large(body_length, properties_length)
        log = self._log
        at = log.at
        if size + _BLANK_BYTES > log.limit - at:
            self._roll(size)
            at = log.at
        view = log.view
        physical = log.base + at
        now = self._wall_ms() if now_ms is None else now_ms
        offset = queue.next_offset
        has_unit = not sys_flag & 0x4
        place = at + head_length
        end = place + body_length
        view[place:end] = body
        view[end : at + size] = topic_bytes + properties_length.to_bytes(2, "big") + properties
        if head_length == 88:
            sys_flag = sys_flag & ~0x30
        else:
            sys_flag = sys_flag & ~0x30 | self._store_flag | (FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0)
        fixed.pack_into(
            view,
            at,
            size,
            queue.magic,
            crc32(body) & 0x7FFFFFFF,
            queue_id,
            flag,
            offset if has_unit else 0,
            physical,
            sys_flag,
            born_ms,
            born_host,
            now,
            self._store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        )
        log.at = at + size
        core.last_store_ms = now

        uniq_bytes: bytes | None
        if tags_code is None:
            tags_bytes = find_property(properties, TAGS)
            tags_code = 0 if tags_bytes is None else self._dispatcher.tag_code(tags_bytes)
            uniq_bytes = find_property(properties, UNIQ_KEY)
            keys_bytes = find_property(properties, KEYS)
        else:
            tags_bytes = tags.encode() if tags else None
            uniq_bytes = uniq_key.encode() if uniq_key else None
            keys_bytes = keys.encode() if keys else None

        if has_unit:
            if queue.is_schedule:
                deliver_ms = self._dispatcher.deliver_ms(properties, now)
                tags_code = tags_code if deliver_ms is None else deliver_ms
            if not queue.view_from <= offset < queue.view_to:
                core.consume_queues.map_tail(queue, offset)
            elif queue.clean:
                core.consume_queues.mark_dirty(queue)
            _pack_unit(queue.view, (offset - queue.view_from) * UNIT_BYTES, physical, size, tags_code)
            queue.next_offset = offset + 1
            core.last_dispatched_ms = now
        if self._indexing and (uniq_bytes or keys_bytes or tags_bytes) and sys_flag & 0xC != 0xC:
            self._index(queue, uniq_bytes, keys_bytes, tags_bytes, physical, now)
        core.dispatched = physical + size
        if core.asleep:
            core.wake()
        if has_unit:
            if core.show_at_once:
                queue.max_offset = offset + 1
                for callback in core.arrived:
                    callback(topic, queue_id, offset + 1, tags_code, now, properties)
            else:
                core.hold_or_show(physical + size, queue, offset + 1, tags_code, now, properties)
            return _new_tuple(Appended, (physical, size, offset))
        return _new_tuple(Appended, (physical, size, 0))

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        born_ms: int,
        born_host: bytes,
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        now_ms: int | None = None,
    ) -> AppendedBatch:
        """See :meth:`understudy.store.message_store.MessageStore.append_batch`."""
        core = self._core
        queue = self._by_key.get((topic, queue_id))
        if queue is None or core.refusals:
            queue = self._admit(topic, queue_id)
        if len(body) > self._max_body:
            raise self._too_large(len(body), 0)
        if sys_flag & 0xC or queue.is_schedule:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "a batch can be neither transactional nor delayed")
        if not isinstance(body, bytes):
            body = bytes(body)
        try:
            items = list(iter_batch(body))
        except BatchError as error:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error)) from None
        if not items:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "the batch has no message")
        fixed = self._fixed[len(born_host)]
        head_length = fixed.size
        topic_bytes = queue.topic_field
        topic_length = len(topic_bytes)
        # An item has 22 bytes around body and properties, a record has the head, the topic and 2.
        overhead = head_length + topic_length
        total = len(body) + len(items) * (overhead - 20)
        log = self._log
        if total + _BLANK_BYTES > log.limit - log.at:
            self._roll(total)
        view, base, at = log.view, log.base, log.at
        now = self._wall_ms() if now_ms is None else now_ms
        sys_flag = sys_flag & ~0x30 | self._store_flag | (FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0)
        magic, store_host = queue.magic, self._store_host
        first = offset = queue.next_offset
        consume_queues, arrived = core.consume_queues, core.arrived
        offsets = []
        data = memoryview(body)
        for flag, place, length, item_end in items:
            size = overhead + item_end - place
            message = data[place : place + length]
            start = at + head_length
            end = start + length
            view[start:end] = message
            view[end : end + topic_length] = topic_bytes
            view[end + topic_length : at + size] = data[place + length : item_end]
            physical = base + at
            fixed.pack_into(
                view,
                at,
                size,
                magic,
                crc32(message) & 0x7FFFFFFF,
                queue_id,
                flag,
                offset,
                physical,
                sys_flag,
                born_ms,
                born_host,
                now,
                store_host,
                reconsume_times,
                0,
                length,
            )
            at += size
            log.at = at
            properties = body[place + length + 2 : item_end]
            tags_bytes = find_property(properties, TAGS)
            code = 0 if tags_bytes is None else self._dispatcher.tag_code(tags_bytes)
            if not queue.view_from <= offset < queue.view_to:
                consume_queues.map_tail(queue, offset)
            elif queue.clean:
                consume_queues.mark_dirty(queue)
            _pack_unit(queue.view, (offset - queue.view_from) * UNIT_BYTES, physical, size, code)
            offset += 1
            queue.next_offset = offset
            if self._indexing:
                uniq_bytes = find_property(properties, UNIQ_KEY)
                keys_bytes = find_property(properties, KEYS)
                if uniq_bytes or keys_bytes or tags_bytes:
                    self._index(queue, uniq_bytes, keys_bytes, tags_bytes, physical, now)
            offsets.append(physical)
            if core.show_at_once:
                queue.max_offset = offset
                for callback in arrived:
                    callback(topic, queue_id, offset, code, now, properties)
            else:
                core.hold_or_show(base + at, queue, offset, code, now, properties)
        core.last_store_ms = core.last_dispatched_ms = now
        core.dispatched = base + at
        if core.asleep:
            core.wake()
        return AppendedBatch(first, offsets, base + at)

    # Off the hot path

    def _index(
        self,
        queue: ConsumeQueue,
        uniq_key: bytes | None,
        keys: bytes | None,
        tags: bytes | None,
        physical: int,
        now: int,
    ) -> None:
        index = self._core.index
        if uniq_key is not None:
            prefix = uniq_key[:-_UNIQ_TAIL]
            known = queue.prefix_hashes.get(prefix)
            if known is None:
                known = self._prefix_hash(queue, prefix)
            tail = uniq_key[-_UNIQ_TAIL:]
            if prefix and tail.isascii():
                index.put_one((known + sum(map(mul, tail, _TAIL_POWERS))) & 0xFFFFFFFF, physical, now)
            else:
                index.put_one(unsigned_hash(uniq_key, queue.hash_prefix), physical, now)
        if keys is not None or tags is not None:
            index.put(self._dispatcher.hashes(queue, None, keys, tags), physical, now)

    def _prefix_hash(self, queue: ConsumeQueue, prefix: bytes) -> int:
        """Return the hash of ``topic#`` and *prefix*, moved on by the length of a tail."""
        if len(queue.prefix_hashes) >= _PREFIX_CACHE_MAX:
            queue.prefix_hashes.clear()
        known = unsigned_hash(prefix, queue.hash_prefix) * pow(31, _UNIQ_TAIL, 1 << 32)
        queue.prefix_hashes[prefix] = known
        return known

    def _admit(self, topic: str, queue_id: int) -> ConsumeQueue:
        core = self._core
        if core.refusals:
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "; ".join(sorted(core.refusals)))
        length = len(topic.encode())
        if length > _MAX_RETRY_TOPIC_BYTES or (length > _MAX_TOPIC_BYTES and not topic.startswith(RETRY_PREFIX)):
            limit = _MAX_RETRY_TOPIC_BYTES if topic.startswith(RETRY_PREFIX) else _MAX_TOPIC_BYTES
            raise PutRejected(
                PutStatus.MESSAGE_ILLEGAL, f"the topic has {length} bytes, the longest allowed has {limit}"
            )
        if not topic or "/" in topic or "\0" in topic or topic in (".", "..") or queue_id < 0:
            raise PutRejected(
                PutStatus.MESSAGE_ILLEGAL, f"topic {topic!r} with queue {queue_id} cannot name a queue; use another"
            )
        try:
            return core.consume_queues.create(topic, queue_id)
        except RecordError as error:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error)) from None

    def _too_large(self, body_length: int, properties_length: int) -> PutRejected:
        if body_length > self._max_body:
            return PutRejected(
                PutStatus.MESSAGE_ILLEGAL,
                f"the body has {body_length} bytes, the longest allowed (maxMessageSize) has {self._max_body}",
            )
        return PutRejected(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            f"the properties have {properties_length} bytes, the longest allowed have {MAX_PROPERTIES_BYTES}",
        )

    def _roll(self, size: int) -> None:
        log = self._log
        if size + _BLANK_BYTES > self._core.segments.file_size:
            raise PutRejected(
                PutStatus.MESSAGE_ILLEGAL,
                f"{size} bytes do not fit in one commit log file (mappedFileSizeCommitLog)",
            )
        try:
            log.roll()
        except OSError as error:
            raise PutRejected(PutStatus.CREATE_MAPPED_FILE_FAILED, f"no new commit log file: {error}") from error
