"""Tells services of messages in the topics that they keep messages in: one look-up for each message, whatever there is.

Each service says the topic it keeps; a message of any other one costs no more than that it is none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.store.message_store import Arrival


def tell_keepers(keepers: Mapping[str, Arrival]) -> Arrival:
    """Return what is to be told of every message, and tells the keeper of its topic.

    Args:
        keepers: by topic; may grow.
    """
    keeper_of = keepers.get

    def arrived(
        topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        keeper = keeper_of(topic)
        if keeper is not None:
            keeper(topic, queue_id, next_offset, tags_code, store_ms, properties)

    return arrived
