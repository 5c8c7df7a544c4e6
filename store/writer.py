"""Append: one pack and a few copies into the mapped log and the queue unit at once, index entries soon after.

This is the hot path: no object per message but the small tuple that is returned, no parsing back of what was written.
The head of a record is written after its body, so that a process killed in between leaves nothing that looks whole.
"""

from __future__ import annotations

from errno import ENOSPC
from zlib import crc32

from understudy.format.names import RETRY_PREFIX
from understudy.format.properties import find_property
from understudy.format.record import (
    CRC_MASK,
    FIXED,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    MAX_PROPERTIES_BYTES,
    WITHOUT_HOSTS_V6,
    RecordError,
)
from understudy.runtime.log import get_logger
from understudy.store.batch_queue_writer import BatchQueueWriter
from understudy.store.consume_queue import UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.properties_digest import KEYS, TAGS, UNIQ_KEY
from understudy.store.seals import NO_SEAL, SEAL_BEGINS, SEAL_BYTES, seal, unsealed
from understudy.store.status import Appended, PutRejected, PutStatus

logger = get_logger("store.writer")

_MAX_TOPIC_BYTES = 127
_MAX_RETRY_TOPIC_BYTES = 255
#: Of a record before its body, if both hosts are IPv4.
_PLAIN_BYTES = FIXED[8, 8].size
#: Room left in a file for the blank marker.
BLANK_BYTES = 8
#: Messages whose keys may wait for the index.
_UNINDEXED_MAX = 256
_pack_unit = UNIT.pack_into
_new_tuple = tuple.__new__


class Writer:
    """Appends messages to one store.

    Attributes:
        to_batch_queues: the way of messages whose topics have batch queues.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._log = core.log
        self._by_key = core.consume_queues.by_key
        self._dispatcher = dispatcher
        self._wall_ms = core.clock.wall_ms
        self._store_host = core.store_host
        self._fixed = {length: FIXED[length, len(core.store_host)] for length in (8, 20)}
        self._store_flag = FLAG_STORE_HOST_V6 if len(core.store_host) == 20 else 0
        self._indexing = core.config.message_index_enable
        self._disk_full = False
        self.to_batch_queues = BatchQueueWriter(core, dispatcher, self)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Take what may change while the store is open from its settings."""
        self._max_body = self._core.config.max_message_size
        self._seals = self._core.config.enabled_append_prop_crc

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
        tags: bytes | None = None,
        keys: bytes | None = None,
        uniq_key: bytes | None = None,
        now_ms: int | None = None,
    ) -> Appended:
        """Write one message and its queue entry; its index entries follow, see :attr:`StoreCore.unindexed`.

        Args:
            topic: at most 127 bytes in UTF-8 (255 for a retry topic).
            queue_id: queue of the topic.
            body: stored as it is.
            properties: the properties string in UTF-8, see :func:`understudy.format.properties.format_properties`.
            born_ms: the producer's time.
            born_host: producer's address and port, 8 or 20 bytes, see :func:`understudy.format.record.encode_host`.
            flag, sys_flag, reconsume_times, prepared_transaction_offset: go into the record; IPv6 bits are set here.
            tags_code: hash of the tags. None: tags, keys and unique key are all taken from *properties*. Given: they
                are taken from the next three arguments, which saves a search. Ignored for delay-level messages, whose
                queue entry holds the time of delivery.
            tags: the TAGS property in UTF-8.
            keys: the KEYS property, separated by spaces, in UTF-8.
            uniq_key: the UNIQ_KEY property in UTF-8.
            now_ms: wall time, when the caller already asked the clock.

        Raises :class:`PutRejected`; nothing is written then.
        """
        core = self._core
        queue = self._by_key.get((topic, queue_id))
        if queue is None or core.refusals:
            if topic in core.batch_queues.topics:
                return self.to_batch_queues.append(
                    topic,
                    queue_id,
                    body,
                    properties,
                    born_ms,
                    born_host,
                    flag,
                    sys_flag,
                    reconsume_times,
                    prepared_transaction_offset,
                    now_ms,
                )
            queue = self.admit(topic, queue_id)
        body_length = len(body)
        properties_length = len(properties)
        seals = self._seals
        if seals or (properties_length >= SEAL_BYTES and properties[-SEAL_BYTES] == SEAL_BEGINS):
            properties = unsealed(properties) + NO_SEAL if seals else unsealed(properties)
            properties_length = len(properties)
        fixed = self._fixed[len(born_host)]
        head_length = fixed.size
        topic_bytes = queue.topic_field
        size = head_length + body_length + len(topic_bytes) + 2 + properties_length
        if body_length > self._max_body or properties_length > MAX_PROPERTIES_BYTES:
            raise self.too_large(body_length, properties_length)
        log = self._log
        at = log.at
        if size + BLANK_BYTES > log.allocated - at:
            self.roll(size)
            at = log.at
        view = log.view
        physical = log.base + at
        now = self._wall_ms() if now_ms is None else now_ms
        offset = queue.next_offset
        has_unit = not sys_flag & FLAG_TRANSACTION_PREPARED
        if has_unit and not queue.view_from <= offset < queue.view_to:
            self.map_tail(queue, offset)
        body_at = at + head_length
        end = body_at + body_length
        view[body_at:end] = body
        view[end : at + size] = topic_bytes + properties_length.to_bytes(2, "big") + properties
        sys_flag = sys_flag & WITHOUT_HOSTS_V6
        if head_length != _PLAIN_BYTES:
            sys_flag |= self._store_flag | (FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0)
        fixed.pack_into(
            view,
            at,
            size,
            queue.magic,
            crc32(body) & CRC_MASK,
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
        if seals:
            view[at + size - SEAL_BYTES : at + size] = seal(view[at : at + size - SEAL_BYTES])
        log.at = at + size
        core.last_store_ms = now

        if tags_code is None:
            tags = find_property(properties, TAGS)
            tags_code = 0 if tags is None else self._dispatcher.tag_code(tags)
            uniq_key = find_property(properties, UNIQ_KEY)
            keys = find_property(properties, KEYS)

        if has_unit:
            if queue.is_schedule:
                deliver_ms = self._dispatcher.deliver_ms(properties, now)
                tags_code = tags_code if deliver_ms is None else deliver_ms
            if queue.clean:
                core.consume_queues.mark_dirty(queue)
            _pack_unit(queue.view, (offset - queue.view_from) * UNIT_BYTES, physical, size, tags_code)
            queue.next_offset = offset + 1
            core.last_dispatched_ms = now
        if self._indexing and sys_flag & FLAG_TRANSACTION_MASK != FLAG_TRANSACTION_ROLLBACK:
            core.unindexed.append((queue, uniq_key, keys, tags, physical, now))
            if len(core.unindexed) >= _UNINDEXED_MAX:
                core.enter_keys()
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

    # Off the hot path

    def admit(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue of a message that may be stored, added if it is new. Raises :class:`PutRejected`."""
        self.check(topic, queue_id)
        try:
            return self._core.consume_queues.create(topic, queue_id)
        except RecordError as error:
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error)) from None

    def check(self, topic: str, queue_id: int) -> None:
        """Raise :class:`PutRejected` when no message may be stored, or none under this name."""
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

    def map_tail(self, queue: ConsumeQueue, offset: int) -> None:
        """Make *queue* ready for a unit at queue offset *offset*. Raises :class:`PutRejected`."""
        # Before anything is written: a message without an entry in its queue would be lost to readers.
        try:
            self._core.consume_queues.map_tail(queue, offset)
        except OSError as error:
            raise self.no_space("no new consume queue file", error) from error

    def make_room(self, queue: ConsumeQueue, count: int) -> None:
        """Make *queue* ready for *count* more units. Raises :class:`PutRejected`."""
        try:
            self._core.consume_queues.make_room(queue, count)
        except OSError as error:
            raise self.no_space("no new consume queue file", error) from error

    def no_space(self, what: str, error: OSError) -> PutRejected:
        """Return the refusal of a message for which the disk has no space; log the first."""
        if error.errno != ENOSPC or error.filename is None:
            return PutRejected(PutStatus.CREATE_MAPPED_FILE_FAILED, f"{what}: {error}")
        folder = self._core.config.folder
        if not self._disk_full:
            self._disk_full = True
            logger.error("the disk is full, messages are refused; free some space", folder=folder, path=error.filename)
        return PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, f"the disk of {folder} is full; free some space")

    def _space_found(self) -> None:
        if self._disk_full:
            self._disk_full = False
            logger.info("the disk has space again, messages are accepted", folder=self._core.config.folder)

    def too_large(self, body_length: int, properties_length: int) -> PutRejected:
        """Return the refusal of a message with so many bytes."""
        if body_length > self._max_body:
            return PutRejected(
                PutStatus.MESSAGE_ILLEGAL,
                f"the body has {body_length} bytes, the longest allowed (maxMessageSize) has {self._max_body}",
            )
        return PutRejected(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            f"the properties have {properties_length} bytes, the longest allowed have {MAX_PROPERTIES_BYTES}",
        )

    def take_space(self, size: int) -> None:
        """Have space for *size* bytes at the end of the log; see :meth:`roll`."""
        if size + BLANK_BYTES > self._log.allocated - self._log.at:
            self.roll(size)

    def roll(self, size: int) -> None:
        """Take the space for *size* bytes, in the next file of the log when this one is at its end.

        Raises :class:`PutRejected`.
        """
        log = self._log
        if size + BLANK_BYTES > self._core.segments.file_size:
            raise PutRejected(
                PutStatus.MESSAGE_ILLEGAL,
                f"{size} bytes do not fit in one commit log file (mappedFileSizeCommitLog)",
            )
        try:
            if not log.reserve(size + BLANK_BYTES):
                log.roll()
                log.reserve(size + BLANK_BYTES)
        except OSError as error:
            raise self.no_space("no new commit log file", error) from error
        self._space_found()
