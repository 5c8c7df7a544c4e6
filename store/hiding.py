"""A log that was opened with more than its replicas were known to have: readers do not see the rest.

Recovery enters every whole record of the log into its queue, for it cannot know better. Where a master shows only what
all of its sync-state set has, a message beyond the noted confirm offset may be cut once another master is followed;
whoever has read it meanwhile would have read what never was.
"""

from __future__ import annotations

from understudy.store.batch_queue import BatchQueue
from understudy.store.consume_queue import FILLER_SIZE, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.lookup import Lookup
from understudy.store.status import UNKNOWN_TAGS


def hide_after(core: StoreCore, lookup: Lookup, offset: int) -> int:
    """Hold back every message that ends behind physical *offset*, until :meth:`StoreCore.set_confirmed` shows it.

    For a store that nobody reads yet.

    Returns:
        How many records are hidden.
    """
    core.set_confirmed(offset)
    found: list[tuple[int, ConsumeQueue | BatchQueue, int, int, int, bytes | None]] = []
    for queue in core.consume_queues:
        first = lookup.queue_offset_at(queue.topic, queue.queue_id, offset)
        before = lookup.record_extent(queue.topic, queue.queue_id, first - 1)
        if before is not None and sum(before) > offset:
            first -= 1
        for number in range(first, queue.max_offset):
            unit = core.consume_queues.unit(queue, number)
            if unit is None or unit[1] == FILLER_SIZE:
                continue
            physical, size, code = unit
            head = core.log.parse_at(physical, check_crc=False)
            store_ms = head.store_ms if head is not None else core.last_store_ms
            found.append((physical + size, queue, number + 1, code, store_ms, None))
        queue.max_offset = min(queue.max_offset, first)
    for batch in core.batch_queues.by_key.values():
        first = lookup.queue_offset_at(batch.topic, batch.queue_id, offset)
        units = [unit for unit in batch.units_from(max(first - 1, 0)) if unit.end > offset]
        found += [(unit.end, batch, unit.next_offset, UNKNOWN_TAGS, unit.store_ms, None) for unit in units]
        batch.max_offset = min([batch.max_offset, *(unit.first for unit in units[:1])])
    core.held.extend(sorted(found, key=lambda held: held[0]))
    core.hidden_to = max((held[0] for held in found), default=core.hidden_to)
    return len(found)
