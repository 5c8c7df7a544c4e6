"""The broker's tables and their files: what is loaded at the start, and when each is saved.

Source: BrokerController.java (initializeMetadata), BrokerPathConfigHelper.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from understudy.broker.persistence import SavedTable
from understudy.broker.storage import BrokerStartError, config_path, load
from understudy.broker.topics import SystemTopicPlan
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.tables")

PROGRESS_DELAY_MS = 500
"""Longest time from a commit to its write: within a second it survives a power loss, whatever the keys allow."""

_PROGRESS = {
    "offsets": "no progress of consumers beside a log with messages, every group begins anew",
    "delay": "no progress of delayed messages beside a log with messages, all that are still there are delivered again",
}
"""What a missing file means; such files are no more than missing, for a store may come from elsewhere without them."""


async def load_tables(broker: Broker) -> None:
    """Fill *broker*'s tables from its files, and have them saved when they change.

    Errors: ``BrokerStartError``: the topics are missing beside a log that is not empty; ``TableDamagedError``,
    ``OSError``.
    """
    config, keys, disk = broker.options.broker, broker.options.store, broker.world.disk
    broker.topics.install(
        SystemTopicPlan(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            default_queue_nums=config.default_topic_queue_nums,
            revive_queue_nums=config.revive_queue_num,
            auto_create=config.auto_create_topic_enable,
            cluster_topic=config.cluster_topic_enable,
            broker_topic=config.broker_topic_enable,
            trace=config.trace_topic_enable,
            trace_topic=config.msg_trace_topic_name,
            timer_wheel=keys.timer_wheel_enable,
        )
    )
    broker.groups.install()
    tables = (
        ("topics", "topics.json", broker.topics, lambda: 0),
        ("groups", "subscriptionGroup.json", broker.groups, lambda: 0),
        ("offsets", "consumerOffset.json", broker.offsets, _soon(lambda: config.flush_consumer_offset_interval)),
        ("delay", "delayOffset.json", broker.schedule_progress, _soon(lambda: keys.flush_delay_offset_interval)),
        ("queue mappings", "topicQueueMapping.json", broker.queue_mappings, lambda: 0),
    )
    absent = []
    for name, file_name, table, delay_ms in tables:
        path = config_path(keys, file_name)
        if not await load(disk, path, table.merge_json):
            absent.append(name)
        if name == "topics" and absent and broker.store.max_physical_offset > 0:
            raise BrokerStartError(
                f"{path} is missing, but the log beside it holds {broker.store.max_physical_offset} bytes: restore "
                "it from a backup or another replica, or write {} into it to start without topics"
            )
        if name in _PROGRESS and name in absent and broker.store.max_physical_offset > 0:
            log.warning(f"{_PROGRESS[name]}; if the file was lost, stop now and restore it", missing=path)
        broker.persistence.add(SavedTable(name, path, table.to_json, delay_ms, _barrier_of(broker, name)))
    if broker.is_slave:
        path = config_path(keys, "replica.json")
        await load(disk, path, partial(_load_replica_state, broker))
        broker.persistence.add(SavedTable("replica", path, partial(_replica_state, broker), lambda: 0))
    if absent:
        await disk.in_thread(lambda: make_folder_durably(disk, config_path(keys, "").rstrip("/")))
        await broker.persistence.save_all()
    broker.topics.on_change.append(lambda rows: broker.persistence.changed("topics"))
    broker.groups.on_change.append(lambda: broker.persistence.changed("groups"))
    broker.offsets.on_change.append(lambda: broker.persistence.changed("offsets"))
    broker.schedule_progress.on_change.append(lambda: broker.persistence.changed("delay"))
    broker.queue_mappings.on_change.append(lambda: broker.persistence.changed("queue mappings"))


def _load_replica_state(broker: Broker, content: Mapping[str, Any]) -> None:
    broker.was_synced = content.get("synced") is True


def _replica_state(broker: Broker) -> dict[str, Any]:
    """Return what says after a restart that the tables of this slave are those of its group."""
    sync = broker.slave_sync
    return {
        "master": broker.replication.master_address,
        "synced": broker.was_synced if sync is None else sync.synced,
        "syncedAt": 0 if sync is None else sync.synced_ms,
    }


def _barrier_of(broker: Broker, name: str) -> Callable[[], Awaitable[None]] | None:
    """Progress of delayed messages must not be durable before their copies are."""
    if name != "delay" or not broker.sync_flush:
        return None

    async def copies_durable() -> None:
        # Flushes by itself: at the end of a clean stop the store's own flushing is over already.
        reached = broker.store.max_physical_offset
        if broker.store.flushed_offset < reached and not await broker.store.flush():
            raise OSError(f"the log could not be flushed up to {reached}")

    return copies_durable


def _soon(interval_ms: Callable[[], int]) -> Callable[[], int]:
    """Return a configured interval, but never more than :data:`PROGRESS_DELAY_MS`."""
    return lambda: min(interval_ms(), PROGRESS_DELAY_MS)
