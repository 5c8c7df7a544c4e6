"""The messages of a read of the broker's own queues, without those that have rotted; these are holes from then on."""

from __future__ import annotations

from understudy.format.record import Record, RecordError, decode_records
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetResult

log = get_logger("broker.whole_records")

_MOST_BYTES = 1 << 20


def whole_records(store: MessageStore, topic: str, queue_id: int, at: int, found: GetResult) -> list[Record]:
    """Return the whole messages that a read has *found*; of damaged ones it is noted where they are.

    Args:
        store: that was read.
        topic, queue_id: of the queue.
        at: queue offset that was read from.
        found: what the store said.
    """
    try:
        return _records(found)
    except RecordError:
        pass  # one by one, to see which it is: the others are good
    records = list[Record]()
    while at < found.next_begin_offset:
        one = store.get(topic, queue_id, at, 1, _MOST_BYTES)
        try:
            # Where a message is missing, a read of one finds the next one, which may be that of a later read.
            records += [each for each in _records(one) if each.queue_offset < found.next_begin_offset]
        except RecordError as error:
            log.error("damaged message of the broker's own left out", topic=topic, queue=queue_id, offset=at, why=error)
            store.note_rotten(topic, queue_id, at)
        at = max(one.next_begin_offset, at + 1)
    return records


def _records(found: GetResult) -> list[Record]:
    return [record for part in found.parts for record in decode_records(part)]
