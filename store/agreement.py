"""Whether a record and its queue units say the same, and which of them is right where they do not.

A record has a checksum of its body only, but what it says of itself stands a second time elsewhere: place and size in
its queue units, a hash of its tags there and in the index. Rot in one of them shows in the other. A unit can be made
again from its record at any time; a record that has rotted costs itself, until another replica gives it again.
"""

from __future__ import annotations

from understudy.format.java_hash import index_hash, unsigned_hash
from understudy.format.properties import find_property
from understudy.format.remembered import LONGEST
from understudy.runtime.log import get_logger
from understudy.store.batch_repair import BatchRepair
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.extensions import LAST_ADDRESS
from understudy.store.properties_digest import TAGS
from understudy.store.walk import RecordHead

log = get_logger("store.agreement")

_TAG_PREFIX = b"T#"
_LONGEST_TAGS = 1_024
_TEXTS_MAX = 256
_MASK = 0xFFFFFFFF
#: Queue ids without a queue after which no more are looked for.
_IDS_MISSING = 64
_IDS_LOOKED_AT = 1_024


class Agreement:
    """Compares the records of one store with their units.

    Args:
        core, dispatcher: of the store.
        batches: compares those of batch queues.

    Attributes:
        units_mended: how many units were entered again because they had rotted.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, batches: BatchRepair) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._batches = batches
        self.units_mended = 0
        self._texts: dict[int, bytes] = {}

    def expected_code(self, queue: ConsumeQueue, code: int) -> int | None:
        """Return *code*, of a unit of *queue*, as far as it is a hash of tags; else ``None``."""
        return None if queue.is_schedule or (self._core.extensions.present and code <= LAST_ADDRESS) else code

    def code_of(self, properties: bytes) -> int:
        """Return the tags code of a message with these properties."""
        tags = find_property(properties, TAGS)
        return 0 if tags is None else self._dispatcher.tag_code(tags)

    def fits(self, queue: ConsumeQueue, code: int, properties: bytes) -> bool:
        """Whether *code*, of a unit of *queue*, is that of these properties, if it is one of tags at all."""
        # Asked of each message that is read for the first time: what a code stands for is looked for, not worked out.
        text = self._texts.get(code)
        if text is not None and (text in properties or properties.startswith(text[1:])):
            return True
        if self.expected_code(queue, code) not in (None, self.code_of(properties)):
            return False
        tags = find_property(properties, TAGS)
        if tags is not None and not queue.is_schedule and properties.count(TAGS) == 1:
            if len(self._texts) >= _TEXTS_MAX:
                self._texts.clear()
            if len(tags) <= LONGEST:
                self._texts[code] = b"\x02" + TAGS + tags + b"\x02"
        return True

    def settle(self, head: RecordHead) -> bool | None:
        """Compare a whole record with its units, and mend those that have rotted.

        Returns:
            Whether the record is as it was written, as far as units and index show; ``None`` when its queue has no
            place for it: it is of a former life of the queue, or says the wrong queue.
        """
        if self._dispatcher.is_batch(head):
            mended = self._batches.mended
            placed = self._batches.settle(head)
            self.units_mended += self._batches.mended - mended
            return placed
        usual = self._dispatcher.usual(head)
        if usual is not None:
            queue, code, _ = usual
            own, offset = UNIT.pack(head.physical_offset, head.size_bytes, code), head.queue_offset
            if 0 <= offset < queue.next_offset and self._core.consume_queues.units(queue, offset, 1) == own:
                return True
        found: bool | None = True
        physical, size = head.physical_offset, head.size_bytes
        for topic, queue_id, offset, code in self._dispatcher.units(head):
            named = self._core.consume_queues.by_key.get((topic.decode("utf-8", "replace"), queue_id))
            unit = self._unit(named, offset)
            if named is not None and unit is not None and unit[:2] == (physical, size):
                if unit[2] == code or self.expected_code(named, unit[2]) is None:
                    continue
                if self._had_other_tags(named, head, unit[2]):
                    return False
                self._mend(named, offset, physical, size, code)
            elif named is not None and unit is not None and self._is_free(named, offset, physical, unit):
                self._mend(named, offset, physical, size, code)
            elif unit is None or unit[1] != FILLER_SIZE:
                found = None
        return found

    def is_misplaced(self, head: RecordHead) -> bool:
        """Whether another queue of its topic has a unit for a record, or its own has it at another queue offset."""
        topic, missing = head.topic.decode("utf-8", "replace"), 0
        for queue_id in range(_IDS_LOOKED_AT):
            queue = self._core.consume_queues.by_key.get((topic, queue_id))
            missing = 0 if queue is not None else missing + 1
            if queue is not None and self.owns(queue, head):
                return True
            if missing > _IDS_MISSING:
                break
        return False

    def owns(self, queue: ConsumeQueue, head: RecordHead) -> bool:
        """Whether *queue* has a unit for a record that does not say so."""
        queues = self._core.consume_queues
        offset = queues.first_at_or_after(queue, head.physical_offset)
        unit = self._unit(queue, offset)
        if unit is None or unit[:2] != (head.physical_offset, head.size_bytes):
            return False
        following = self._unit(queue, offset + 1)
        if following is not None and following[0] == unit[0]:
            return False  # they stand in for others that were lost
        place = (queue.topic.encode(), queue.queue_id, offset)
        return place not in [each[:3] for each in self._dispatcher.units(head)]

    # Inside

    def _unit(self, queue: ConsumeQueue | None, offset: int) -> tuple[int, int, int] | None:
        if queue is None or not 0 <= offset < queue.next_offset:
            return None
        return self._core.consume_queues.unit(queue, offset)

    def _is_free(self, queue: ConsumeQueue, offset: int, physical: int, present: tuple[int, int, int]) -> bool:
        """Whether a record may stand at *offset*: it lies between its neighbours, and no other whole one says so."""
        if present[1] == FILLER_SIZE:
            return False
        before, following = self._unit(queue, offset - 1), self._unit(queue, offset + 1)
        if before is not None and before[1] != FILLER_SIZE and before[0] >= physical:
            return False
        if following is not None and following[1] != FILLER_SIZE and following[0] <= physical:
            return False
        if present[0] == physical:
            return True  # only the size has rotted
        other = self._core.log.parse_at(present[0], check_crc=False) if present[0] >= 0 else None
        place = (queue.topic.encode(), queue.queue_id, offset)
        return other is None or place not in [each[:3] for each in self._dispatcher.units(other)]

    def _had_other_tags(self, queue: ConsumeQueue, head: RecordHead, code: int) -> bool:
        """Whether the index holds a record under the tags that *code*, which does not fit its own, was made of.

        Java's hash is a polynomial, so the hash of the whole key follows from that of the tags and their length.
        """
        known = self._core.index.hashes_at(head.physical_offset)
        seed = unsigned_hash(_TAG_PREFIX, queue.hash_prefix)
        tags = find_property(head.properties, TAGS)
        if not known or (tags is not None and index_hash(unsigned_hash(tags, seed)) in known):
            return False
        for _ in range(_LONGEST_TAGS):
            seed = seed * 31 & _MASK
            if index_hash(seed + code & _MASK) in known:
                return True
        return False

    def _mend(self, queue: ConsumeQueue, offset: int, physical: int, size: int, code: int) -> None:
        queues = self._core.consume_queues
        queues.units(queue, offset, 1)[:UNIT_BYTES] = UNIT.pack(physical, size, code)
        queues.dirty_paths.add(queue.path(queue.start_of(offset)))
        queue.min_checked_for = -2
        self.units_mended += 1
        log.warning(
            "a unit of a queue had rotted and was entered again from the log",
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        )
