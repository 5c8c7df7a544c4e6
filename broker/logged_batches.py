"""Which topics have batch queues, as far as a log says it: for rows that are made anew.

A topic whose row is lost and whose messages have just come, in queues of the ordinary kind, shows what it is by a batch
that was stored as one message: no other topic takes one. One that holds single messages only shows nothing.
"""

from __future__ import annotations

import attrs

from understudy.store.heads import is_inner_batch
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

_MESSAGES_MAX = 1_000
"""Of each queue that are looked at, its oldest ones."""


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
        begin = store.min_queue_offset(topic, queue_id)
        found = store.get(topic, queue_id, begin, 1, 1, None, is_inner_batch, _MESSAGES_MAX)
        return found.status is GetStatus.FOUND
