"""Which topics have batch queues, as far as a log says it: for rows that are made anew.

A topic whose row is lost and whose messages have just come, in queues of the ordinary kind, shows what it is by a batch
that was stored as one message: no other topic takes one. One that holds single messages only shows nothing.
"""

from __future__ import annotations

import attrs

from understudy.store.heads import is_inner_batch, size_of
from understudy.store.message_store import MessageStore

_MESSAGES_MAX = 1_000
"""Of each queue that are looked at, its oldest ones."""
_READ, _READ_BYTES = 32, 1 << 20


@attrs.frozen
class LoggedBatches:
    """Contains the names of topics with batch queues.

    Args:
        store: the log and its queues.
    """

    store: MessageStore

    def __contains__(self, topic: object) -> bool:
        """Whether *topic* has batch queues, or a message that only such a topic has."""
        store = self.store
        return topic in store.batch_topics or any(
            self._has_batch(*queue) for queue in store.queues() if queue[0] == topic
        )

    def _has_batch(self, topic: str, queue_id: int) -> bool:
        store = self.store
        at = store.min_queue_offset(topic, queue_id)
        end = at + _MESSAGES_MAX
        while at < end:
            found = store.get(topic, queue_id, at, _READ, _READ_BYTES)
            for part in found.parts:
                while part:
                    if is_inner_batch(part):
                        return True
                    part = part[size_of(part) :]
            if found.next_begin_offset <= at:
                break
            at = found.next_begin_offset
        return False
