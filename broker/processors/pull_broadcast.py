"""What is special about pulls of broadcasting groups: the broker knows where each member reads.

Source: PullMessageProcessor.java.
"""

from __future__ import annotations

from understudy.broker.broadcast import BroadcastOffsets
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.clients import CONSUME_PASSIVELY, ConsumerTable
from understudy.remoting.connection import Connection
from understudy.store.message_store import MessageStore

PROXY_FOR_BROADCAST = "1"
"""The ``requestSource`` of pulls that a proxy sends for a member of a broadcasting group."""


class BroadcastPulls:
    """Follows the broadcasting members that pull from one broker.

    Args:
        config: read at each pull.
        store: the messages.
        consumers: the members.
        offsets: where they are.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        consumers: ConsumerTable[Connection],
        offsets: BroadcastOffsets,
    ) -> None:
        self._config = config
        self._store = store
        self._consumers = consumers
        self._offsets = offsets

    def follow(
        self, connection: Connection, ext: dict[str, str], group: str, topic: str, queue_id: int, offset: int
    ) -> int:
        """Note where a member reads; return where it must go on, or -1 when it may read where it asked.

        Args:
            connection: that the pull came over.
            ext: fields of its header.
            group: that broadcasts.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset that it asks for.
        """
        if not self._config.enable_broadcast_offset_store:
            return -1
        proxied = ext.get("requestSource") == PROXY_FOR_BROADCAST
        client_id = ext.get("proxyFrowardClientId") if proxied else self._client_of(connection, group)
        if client_id is None:
            return -1
        member, table = (topic, group, client_id), self._offsets
        moved = table.start(member, queue_id, offset, proxied, lambda: self._first_or_end(topic, queue_id))
        table.note(member, queue_id, moved if moved >= 0 else offset, proxied)
        return moved

    def _client_of(self, connection: Connection, group: str) -> str | None:
        info = self._consumers.get(group)
        if info is None or not info.broadcasting or info.consume_type != CONSUME_PASSIVELY:
            return None
        channel = info.channels.get(connection)
        return None if channel is None else channel.client_id

    def _first_or_end(self, topic: str, queue_id: int) -> int:
        """Return 0 on a queue that has lost nothing yet, else the end of the queue."""
        high = self._store.max_queue_offset(topic, queue_id)
        return 0 if self._store.min_queue_offset(topic, queue_id) <= 0 < high else high
