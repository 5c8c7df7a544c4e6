"""Whom of a broker a message that became readable concerns: two look-ups for each message, whatever there is.

Parked pulls are found by topic and queue, everybody else by topic: services that keep messages in a topic of their own,
and pops that wait. A message that is none of theirs costs no call.
"""

from __future__ import annotations

from collections.abc import Container

from understudy.store.message_store import Arrival


class Arrivals:
    """Who is told of messages.

    Args:
        parked: topics and queue ids at which pulls wait; this object as it changes.
        tell_pulls: told of the messages that arrive there.

    Attributes:
        arrived: what the store tells of every message that became readable.
    """

    def __init__(self, parked: Container[tuple[str, int]], tell_pulls: Arrival) -> None:
        self._listeners: dict[str, tuple[Arrival, ...]] = {}
        listeners = self._listeners

        def arrived(
            topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
        ) -> None:
            if topic in listeners:
                for listener in listeners[topic]:
                    listener(topic, queue_id, next_offset, tags_code, store_ms, properties)
            if (topic, queue_id) in parked:
                tell_pulls(topic, queue_id, next_offset, tags_code, store_ms, properties)

        self.arrived: Arrival = arrived

    def listen(self, topic: str, listener: Arrival) -> None:
        """Have *listener* told of messages in *topic*, before the pulls that wait for them."""
        self._listeners[topic] = (*self._listeners.get(topic, ()), listener)

    def leave(self, topic: str, listener: Arrival) -> None:
        """Take a *listener* of *topic* back."""
        left = tuple(each for each in self._listeners[topic] if each != listener)
        if left:
            self._listeners[topic] = left
        else:
            del self._listeners[topic]
