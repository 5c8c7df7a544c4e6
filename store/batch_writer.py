"""Append a client batch: its records are put together in memory and copied into the mapped log at once.

What the messages of a batch have in common is worked out for the first of them. The others mostly differ in the last
two digits of their unique key, so that two comparisons and one look-up do for all of their properties.
"""

from __future__ import annotations

import struct
from zlib import crc32

from understudy.format import light_queues
from understudy.format.batch import ITEM_OVERHEAD_BYTES, BatchError, iter_batch
from understudy.format.record import (
    CRC_MASK,
    FIXED,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    MAX_PROPERTIES_BYTES,
    WITHOUT_HOSTS_V6,
)
from understudy.format.record_layout import FIELD_NAMES, layout
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.properties_digest import NO_PROPERTIES, TAILS
from understudy.store.seals import NO_SEAL, SEAL_BEGINS, SEAL_BYTES, seal, unsealed
from understudy.store.status import AppendedBatch, PutRejected, PutStatus
from understudy.store.writer import BLANK_BYTES, Writer

_ITEM = struct.Struct(">i8xii")
#: The part of a record that differs from message to message: size, magic, checksum, queue id, flag, queue offset,
#: physical offset.
_OWN = layout(*FIELD_NAMES[: FIELD_NAMES.index("sys_flag")])
#: The part that a whole batch shares, up to the length of the body: system flags, born time and host, store time and
#: host, reconsume times, prepared transaction offset.
_SHARED = {
    (born, store): layout(*FIELD_NAMES[FIELD_NAMES.index("sys_flag") : -1], begin="sys_flag", born=born, store=store)
    for born, store in FIXED
}
_MASK = 0xFFFFFFFF
#: Bytes that a seal adds: itself, and an end that the sender left out.
_SEAL_MAX = SEAL_BYTES + 1


class BatchWriter:
    """Appends client batches to one store, beside its *writer*."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, writer: Writer) -> None:
        self._core = core
        self._log = core.log
        self._by_key = core.consume_queues.by_key
        self._dispatcher = dispatcher
        self._writer = writer
        self._wall_ms = core.clock.wall_ms
        self._store_host = core.store_host
        self._store_flag = FLAG_STORE_HOST_V6 if len(core.store_host) == 20 else 0
        self._indexing = core.config.message_index_enable
        self._light_queues = core.config.light_queues
        self.settings_changed()

    def settings_changed(self) -> None:
        """Take what may change while the store is open from its settings."""
        self._max_body = self._core.config.max_message_size
        self._seals = self._core.config.enabled_append_prop_crc

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
        """Write every message of a client batch; all of them or none.

        Args:
            body: messages in the batch encoding of the clients, see :func:`understudy.format.batch.iter_batch`; flag
                and properties of each message are in there.

        Other arguments, and what it raises, as in :meth:`understudy.store.writer.Writer.append`; a broken encoding is
        MESSAGE_ILLEGAL.
        """
        core = self._core
        queue = self._by_key.get((topic, queue_id))
        if queue is None or core.refusals:
            if topic in core.batch_queues.topics:
                return self._writer.to_batch_queues.append_batch(
                    topic, queue_id, body, born_ms, born_host, sys_flag, reconsume_times, now_ms
                )
            queue = self._writer.admit(topic, queue_id)
        if len(body) > self._max_body:
            raise self._writer.too_large(len(body), 0)
        if sys_flag & FLAG_TRANSACTION_MASK or queue.is_schedule:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "a batch can be neither transactional nor delayed")
        if not isinstance(body, bytes):
            body = bytes(body)
        if not body:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "the batch has no message")
        if self._light_queues and light_queues.NAMES in body:
            remark = "messages that name light queues are stored one by one; send no batch"
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, remark, special=True)
        shared_fields = _SHARED[len(born_host), len(self._store_host)]
        topic_bytes = queue.topic_field
        # An item has 22 bytes around body and properties, a record has its head, the topic and 2; the 2 bytes of the
        # length of the properties are copied with them.
        overhead = _OWN.size + shared_fields.size + 4 + len(topic_bytes)
        seals = self._seals
        most = overhead + _SEAL_MAX * seals
        log = self._log
        if (len(body) // ITEM_OVERHEAD_BYTES + 1) * most + len(body) + BLANK_BYTES > log.allocated - log.at:
            self._make_room(body, most)
        if not queue.view_from <= queue.next_offset < queue.view_to:
            self._writer.map_tail(queue, queue.next_offset)
        begin = log.at
        physical = log.base + begin
        now = self._wall_ms() if now_ms is None else now_ms
        sys_flag = sys_flag & WITHOUT_HOSTS_V6 | self._store_flag | (FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0)
        shared = shared_fields.pack(sys_flag, born_ms, born_host, now, self._store_host, reconsume_times, 0)
        pack, unpack_item, tails = _OWN.pack, _ITEM.unpack_from, TAILS
        magic, first = queue.magic, queue.next_offset
        offset = first
        parts: list[bytes] = []
        units: list[int] = []
        offsets: list[int] = []
        hashes: list[int] = []
        hashed: list[int] = []
        digest = NO_PROPERTIES
        code, more, tail_at, rest_length, before, after, hash_before = digest
        known_rest = b""
        known_length = -1
        head_end = b""
        at, end = 0, len(body)
        # One pass, kept flat: nothing is written before the last item was read.
        while at < end:
            if end - at < ITEM_OVERHEAD_BYTES:
                raise _broken(body)
            total, flag, length = unpack_item(body, at)
            body_at = at + 20
            rest_at = body_at + length
            at += total
            if length < 0 or at > end or rest_at + 2 > at:
                raise _broken(body)
            message = body[body_at:rest_at]
            rest = body[rest_at:at]
            if length != known_length:
                known_length = length
                head_end = shared + length.to_bytes(4, "big")
            if seals or (len(rest) > SEAL_BYTES and rest[-SEAL_BYTES] == SEAL_BEGINS):
                if rest[0] << 8 | rest[1] != len(rest) - 2 or rest[0] > 0x7F:
                    raise _broken(body)
                rest = _with_length(unsealed(rest[2:]) + NO_SEAL * seals)
            size = overhead + length + len(rest)
            if (
                tail_at >= 0
                and len(rest) == rest_length
                and rest[tail_at + 2 :] == after
                and rest[:tail_at] == before
                and (tail := tails.get(rest[tail_at : tail_at + 2])) is not None
            ):
                hashes.append(hash_before + tail & _MASK)
                hashed.append(physical)
                if more:
                    hashes += more
                    hashed += [physical] * len(more)
            else:
                if rest != known_rest:
                    if rest[0] << 8 | rest[1] != len(rest) - 2 or rest[0] > 0x7F:
                        raise _broken(body)
                    digest = self._dispatcher.look_into(queue, rest)
                    code, more, tail_at, rest_length, before, after, hash_before = digest
                    known_rest = rest
                    hashes += more
                    hashed += [physical] * len(more)
                    more = more[1:] if tail_at >= 0 else more
                else:
                    hashes += digest.hashes
                    hashed += [physical] * len(digest.hashes)
            own = pack(size, magic, crc32(message) & CRC_MASK, queue_id, flag, offset, physical)
            if seals:
                rest = rest[:-SEAL_BYTES]
                rest += seal(own, head_end, message, topic_bytes, rest)
            parts += (own, head_end, message, topic_bytes, rest)
            units += (physical, size, code)
            offsets.append(physical)
            physical += size
            offset += 1
        if offset > queue.view_to:
            self._writer.make_room(queue, offset - first)
        log.view[begin : physical - log.base] = b"".join(parts)
        log.at = physical - log.base
        core.consume_queues.append_units(queue, units)
        if hashes:
            core.index.put_each(hashes, hashed, now)
        core.show_run(queue, first, offsets, physical, units[2::3], now)
        core.last_store_ms = core.last_dispatched_ms = now
        core.dispatched = physical
        if core.asleep:
            core.wake()
        return AppendedBatch(first, offsets, physical)

    # Off the hot path

    def _make_room(self, body: bytes, overhead: int) -> None:
        """Go on to the next file when the batch does not fit in the rest of this one."""
        try:
            count = sum(1 for _ in iter_batch(body))
        except BatchError as error:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error)) from None
        total = len(body) + count * (overhead - 20)
        if total + BLANK_BYTES > self._log.allocated - self._log.at:
            self._writer.roll(total)


def _with_length(properties: bytes) -> bytes:
    """Return *properties* behind their length. Raises :class:`PutRejected` when they are too long for a record."""
    if len(properties) > MAX_PROPERTIES_BYTES:
        remark = f"the properties have {len(properties)} bytes, the longest allowed have {MAX_PROPERTIES_BYTES}"
        raise PutRejected(PutStatus.PROPERTIES_SIZE_EXCEEDED, remark)
    return len(properties).to_bytes(2, "big") + properties


def _broken(body: bytes) -> PutRejected:
    """Return the refusal of a batch with a wrong item, which says where and why."""
    try:
        count = sum(1 for _ in iter_batch(body))
    except BatchError as error:
        return PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error))
    return PutRejected(PutStatus.MESSAGE_ILLEGAL, f"the batch of {count} messages cannot be read")
