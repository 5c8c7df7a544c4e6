"""Which topics a broker reads from their compaction logs: those whose attributes say so, unless that is off."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.topics import TopicConfig, is_compacted
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore

log = get_logger("broker.compacted_topics")


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


def tell_of_unread_logs(store: MessageStore, keys: MessageStoreConfig) -> None:
    """Say which topics have compaction logs that nobody reads: the table of topics has lost what they were.

    Nothing of the logs is deleted, and the topics are read from their ordinary queues, so that no message comes twice.

    Args:
        store: the messages.
        keys: whether topics are compacted (``enableCompaction``).
    """
    unread = sorted(store.compaction_logs().difference(store.compacted_topics))
    if unread and keys.enable_compaction:
        log.warning(
            "these topics have compaction logs but are none of cleanup.policy=COMPACTION any more, as after a loss of "
            "topics.json: what was compacted is kept and not read until they are made again with that attribute",
            topics=unread,
        )
