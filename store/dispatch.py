"""From a record to its queue units and index entries.

The writer has what it needs at hand when it appends; recovery and replication come here with what the record says.
"""

from __future__ import annotations

from understudy.format import light_queues
from understudy.format.java_hash import java_hash_of_bytes
from understudy.format.names import LIGHT_PREFIX, SCHEDULE_TOPIC
from understudy.format.properties import find_property
from understudy.format.record import (
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_NONE,
    FLAG_TRANSACTION_ROLLBACK,
)
from understudy.format.remembered import remember
from understudy.store.batch_queue import MOST_MESSAGES, BatchQueue, BatchUnit
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.former_lives import FormerLives
from understudy.store.index_keys import index_hashes
from understudy.store.properties_digest import KEYS, TAGS, TAILS, UNIQ_KEY, PropertiesDigest, shareable
from understudy.store.status import UNKNOWN_TAGS
from understudy.store.walk import RecordHead, is_void

DELAY = b"DELAY\x01"
INNER_NUM, INNER_BASE = b"INNER_NUM\x01", b"INNER_BASE\x01"
"""How many messages an inner batch holds, and the queue offset of the first."""
#: Messages that readers see: no half messages, no decisions against them.
_READABLE = (FLAG_TRANSACTION_NONE, FLAG_TRANSACTION_COMMIT)
_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_LIGHT = LIGHT_PREFIX.encode()
_CACHE_MAX = 4096
_DIGITS_MAX = 18
_MASK = 0xFFFFFFFF


class Dispatcher:
    """Dispatches records that are in the log already."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._tag_codes: dict[bytes, int] = {}
        self._delays_ms = core.config.delay_levels_ms()
        #: What the records say of lives that ended; see there.
        self.former_lives = FormerLives(core)
        core.consume_queues.on_former = self.former_lives.note
        self._last: tuple[RecordHead | None, tuple[ConsumeQueue, int, list[int]] | None] = (None, None)

    def tag_code(self, tags: bytes) -> int:
        """Return the tags code of a TAGS property."""
        code = self._tag_codes.get(tags)
        if code is None:
            code = remember(self._tag_codes, tags, java_hash_of_bytes(tags), _CACHE_MAX)
        return code

    def deliver_ms(self, properties: bytes, store_ms: int) -> int | None:
        """Return the delivery time of a delay-level message; None when it has no level (computeDeliverTimestamp)."""
        value = find_property(properties, DELAY)
        if value is None or not value.isdigit() or int(value) <= 0:
            return None
        level = min(int(value), len(self._delays_ms))
        return store_ms + (self._delays_ms[level - 1] if level > 0 else 1000)

    def look_into(self, queue: ConsumeQueue, field: bytes) -> PropertiesDigest:
        """Return what is needed of the properties of a message, for itself and for its like.

        Args:
            field: length of the properties and the properties.
        """
        tags = find_property(field, TAGS, 2)
        code = 0 if tags is None else self.tag_code(tags)
        if not self._core.config.message_index_enable:
            return PropertiesDigest(code, [])
        unique, keys = find_property(field, UNIQ_KEY, 2), find_property(field, KEYS, 2)
        return shareable(field, code, index_hashes(queue, unique, keys, tags), queue.hash_prefix)

    def queue(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """Return the queue of a record, added if it is new."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None or self._core.consume_queues.by_key.get((queue.topic, queue_id)) is not queue:
            if len(self._queues) >= _CACHE_MAX:
                self._queues.clear()
            queue = self._queues[key] = self._core.consume_queues.create(topic.decode("utf-8", "replace"), queue_id)
        return queue

    def dispatch(self, head: RecordHead, *, to_queues: bool = True, to_index: bool = True, once: bool = False) -> None:
        """Enter one record into its queues and the index.

        Args:
            to_queues, to_index: which of the two.
            once: the index may hold the record already under some of its keys; leave those out.
        """
        core = self._core
        kind = head.sys_flag & FLAG_TRANSACTION_MASK
        if kind == FLAG_TRANSACTION_ROLLBACK:
            if is_void(head):
                core.holes.copy(head.physical_offset)
            return
        tags = find_property(head.properties, TAGS)
        to_queues = to_queues and kind in _READABLE and not self._was_deleted(head.topic, head)
        if to_queues:
            self._to_queues(head, tags)
        if to_index and core.config.message_index_enable:
            hashes = self.hashes(head, has_queue=to_queues and not self.is_batch(head))
            if once:
                hashes = [each for each in hashes if not core.index.holds(each, head.physical_offset)]
            if hashes:
                core.index.put(hashes, head.physical_offset, head.store_ms)

    def usual(self, head: RecordHead) -> tuple[ConsumeQueue, int, list[int]] | None:
        """Return queue, tags code and index hashes of a record that stands in one simple queue, which is there.

        Returns:
            ``None`` for any other record; :meth:`units` and :meth:`hashes` say what is to be known of it.
        """
        if self._last[0] is not head:
            self._last = (head, self._found_usual(head))
        return self._last[1]

    def _found_usual(self, head: RecordHead) -> tuple[ConsumeQueue, int, list[int]] | None:
        core = self._core
        queue = core.consume_queues.by_key.get((head.topic.decode("utf-8", "replace"), head.queue_id))
        if queue is None or queue.is_schedule or head.sys_flag & FLAG_TRANSACTION_MASK not in _READABLE:
            return None
        if head.physical_offset < core.deletions.until or light_queues.NAMES in head.properties or self.is_batch(head):
            return None
        field = len(head.properties).to_bytes(2, "big") + head.properties
        digest = queue.digest
        at = digest.tail_at
        if (
            at >= 0
            and len(field) == digest.length
            and field[at + 2 :] == digest.after
            and field[:at] == digest.before
            and (tail := TAILS.get(field[at : at + 2])) is not None
        ):
            return queue, digest.code, [digest.hash_before + tail & _MASK, *digest.hashes[1:]]
        digest = queue.digest = self.look_into(queue, field)
        return queue, digest.code, digest.hashes

    def hashes(self, head: RecordHead, *, has_queue: bool = False) -> list[int]:
        """Return the hashes under which a record stands in the index, as far as it is indexed.

        Args:
            has_queue: it is in its queue, which remembers what hashes of its topic begin with.
        """
        queue = self.queue(head.topic, head.queue_id) if has_queue else self._nameless(head)
        names = UNIQ_KEY, KEYS, TAGS
        return index_hashes(queue, *[find_property(head.properties, name) for name in names])

    def _to_queues(self, head: RecordHead, tags: bytes | None) -> None:
        code = 0 if tags is None else self.tag_code(tags)
        if self.is_batch(head):
            self._to_batch_queue(head, code)
            return
        for topic, queue_id, offset, unit_code in self._units(head, code):
            self._put(self.queue(topic, queue_id), offset, head, unit_code)

    def _to_batch_queue(self, head: RecordHead, code: int) -> None:
        """Enter a record into its batch queue, unless it is there already or of a former life of the queue."""
        core = self._core
        queue = core.batch_queues.create(head.topic.decode("utf-8", "replace"), head.queue_id)
        newest = queue.last_unit()
        if newest is not None and newest.physical >= head.physical_offset:
            self.former_lives.note(queue, head.physical_offset, head.size_bytes)
            return
        unit = self.batch_unit(head, code)
        made_again = unit.first < queue.next_offset  # it was deleted where the record comes from
        if made_again:
            queue.forget_from(unit.first)
            core.forget_held(queue, unit.first)
        self.enter_unit(queue, unit, head.sys_flag, head.properties)
        if made_again and newest is not None:
            self.former_lives.note(queue, newest.physical, newest.size)

    def batch_unit(self, head: RecordHead, code: int | None = None) -> BatchUnit:
        """Return the unit of a record in its batch queue.

        Args:
            head: the record.
            code: its tags code, if that is known.
        """
        if code is None:
            tags = find_property(head.properties, TAGS)
            code = 0 if tags is None else self.tag_code(tags)
        first, count = head.queue_offset, 1
        base, number = find_property(head.properties, INNER_BASE), find_property(head.properties, INNER_NUM)
        if not head.sys_flag & FLAG_INNER_BATCH:
            base = number = None
        if base is not None and number is not None and _is_count(base) and _is_count(number):
            first, count = int(base), min(max(int(number), 1), MOST_MESSAGES)
        return BatchUnit(head.physical_offset, head.size_bytes, code, head.store_ms, first, count)

    def has_batch_unit(self, head: RecordHead) -> bool:
        """Whether a record of a topic with batch queues stands in one."""
        readable = head.sys_flag & FLAG_TRANSACTION_MASK in _READABLE
        return readable and not self._was_deleted(head.topic, head)

    def enter_unit(self, queue: BatchQueue, unit: BatchUnit, sys_flag: int, properties: bytes) -> None:
        """Write a unit behind the last one of *queue*, and show its messages when they may be seen.

        Args:
            queue: its queue.
            unit: says where the record is and what it holds.
            sys_flag: of the record.
            properties: of the record, raw.
        """
        queue.append(unit)
        code = UNKNOWN_TAGS if sys_flag & FLAG_INNER_BATCH else unit.code
        self._core.hold_or_show(unit.end, queue, unit.next_offset, code, unit.store_ms, properties)

    def units(self, head: RecordHead) -> list[tuple[bytes, int, int, int]]:
        """Return (topic, queue id, queue offset, tags code) of each unit that a record has in simple queues."""
        return [] if self.is_batch(head) else self.simple_units(head)

    def simple_units(self, head: RecordHead) -> list[tuple[bytes, int, int, int]]:
        """Return what :meth:`units` returns, as if the topic of the record had no batch queues."""
        if head.sys_flag & FLAG_TRANSACTION_MASK not in _READABLE or self._was_deleted(head.topic, head):
            return []
        tags = find_property(head.properties, TAGS)
        return self._units(head, 0 if tags is None else self.tag_code(tags))

    def _units(self, head: RecordHead, code: int) -> list[tuple[bytes, int, int, int]]:
        if head.topic == _SCHEDULE_TOPIC:
            deliver_ms = self.deliver_ms(head.properties, head.store_ms)
            code = code if deliver_ms is None else deliver_ms
        units = [(head.topic, head.queue_id, head.queue_offset, code)]
        if self._core.config.enable_multi_dispatch and light_queues.NAMES in head.properties:
            units += self._further_units(head, code)
        return units

    def _further_units(self, head: RecordHead, code: int) -> list[tuple[bytes, int, int, int]]:
        """Return those of the queues that the properties of a record name."""
        names = find_property(head.properties, light_queues.NAMES)
        offsets = find_property(head.properties, light_queues.OFFSETS)
        if names is None or offsets is None or not light_queues.divides(head.topic.decode("utf-8", "replace")):
            return []
        light = self._core.config.enable_lmq
        return [
            (name, light_queues.QUEUE_ID if light and name.startswith(_LIGHT) else head.queue_id, offset, code)
            for name, offset in light_queues.entries(names, offsets)
            if not self._was_deleted(name, head)
        ]

    def _put(self, queue: ConsumeQueue, offset: int, head: RecordHead, code: int) -> None:
        core = self._core
        if core.consume_queues.put(queue, offset, head.physical_offset, head.size_bytes, code):
            core.forget_held(queue, offset)
        if offset < queue.next_offset:  # else it has no place
            end = head.physical_offset + head.size_bytes
            core.hold_or_show(end, queue, offset + 1, code, head.store_ms, head.properties)

    def _was_deleted(self, topic: bytes, head: RecordHead) -> bool:
        """Whether a record was deleted with *topic*."""
        deletions = self._core.deletions
        if head.physical_offset >= deletions.until:
            return False
        return deletions.covers(topic.decode("utf-8", "replace"), head.physical_offset, head.store_ms)

    def is_batch(self, head: RecordHead) -> bool:
        """Whether the topic of a record has batch queues."""
        topics = self._core.batch_queues.topics
        return bool(topics) and head.topic.decode("utf-8", "replace") in topics

    def _nameless(self, head: RecordHead) -> ConsumeQueue:
        # Only the hash prefix of the topic is needed; the queue is not entered anywhere.
        return ConsumeQueue(head.topic.decode("utf-8", "replace"), head.queue_id, "", 20)


def _is_count(text: bytes) -> bool:
    """Whether a property is a number that a queue offset can be."""
    return text.isdigit() and len(text) <= _DIGITS_MAX
