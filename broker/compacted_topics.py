"""Which topics a broker reads from their compaction logs: those whose attributes say so, unless that is off."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.topics import TopicConfig, is_compacted
from understudy.store.message_store import MessageStore


def declare_compacted(store: MessageStore, keys: MessageStoreConfig, rows: Iterable[TopicConfig]) -> None:
    """Tell *store* what *rows* of the table of topics say, which are new, changed, or read from the disk.

    Args:
        store: the messages.
        keys: whether topics are compacted (``enableCompaction``).
        rows: the rows.
    """
    if not keys.enable_compaction:
        return
    rows, served = list(rows), store.compacted_topics
    compacted = [row.name for row in rows if row.attributes and is_compacted(row.attributes)]
    if compacted or served:
        store.declare_compacted(compacted, {row.name for row in rows if row.name in served}.difference(compacted))
