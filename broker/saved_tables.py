"""The broker's tables and their files: what is loaded at the start, and when each is saved.

Source: BrokerController.java (initializeMetadata), BrokerPathConfigHelper.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from understudy.broker import consumer_filters, group_memory, history_keeper
from understudy.broker.compacted_topics import declare_compacted, tell_of_unread_logs
from understudy.broker.consumer_filters import ConsumerFilters
from understudy.broker.filters import is_tag_type
from understudy.broker.logged_batches import LoggedBatches
from understudy.broker.lost_topics import lost_rows
from understudy.broker.persistence import SavedTable
from understudy.broker.pop.acting import ActingPops
from understudy.broker.replicated.acting_pops import Home, ReplicatedActingPops
from understudy.broker.replicated.rows import ReplicatedTables, replicated_tables
from understudy.broker.replicated.table import KeptTable
from understudy.broker.sql_filter.bloom import positions
from understudy.broker.storage import BrokerStartError, config_path, load
from understudy.broker.topics import SystemTopicPlan
from understudy.broker.transactions import counts as transaction_counts
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.security.settings import INIT_USER, ON

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.broker.replicated.users import ReplicatedUsers

log = get_logger("broker.tables")

REPLICA_FILE = "replica.json"


def tables_of(broker: Broker) -> ReplicatedTables:
    """Return the list of *broker*'s tables that travel; its store need not be open yet."""
    config, keys = broker.options.broker, broker.options.store
    return replicated_tables(
        offsets=broker.offsets,
        progress=broker.schedule_progress,
        timer=broker.timer,
        topics=broker.topics,
        groups=broker.groups,
        queue_mappings=broker.queue_mappings,
        request_modes=broker.request_modes,
        orders=broker.orders,
        acting_pops=ReplicatedActingPops(
            broker.acting_pops,
            partial(acting_pops_of, broker),
            Home(
                lambda: not (broker.session.rules.acting or broker.presence.isolated or broker.presence.absent),
                lambda entry, queue, deliver_ms: broker.pops.log.message(entry, queue, deliver_ms),
            ),
            lambda: _durable_up_to(broker, broker.pops.log.end),
        ),
        now_ms=broker.world.clock.wall_ms,
        log_end=lambda: broker.store.max_physical_offset,
        offsets_delay_ms=lambda: config.flush_consumer_offset_interval,
        delay_delay_ms=lambda: keys.flush_delay_offset_interval,
        copies_durable=_copies_durable(broker) if broker.sync_flush else None,
        popped_durable=_popped_durable(broker),
        users=_users_of(broker),
    )


def _users_of(broker: Broker) -> ReplicatedUsers | None:
    if broker.gate is None:
        return None
    from understudy.broker.replicated.users import ReplicatedUsers  # others start without it

    return ReplicatedUsers(broker.gate.authority, broker.options.security)


def acting_pops_of(broker: Broker) -> ActingPops:
    """Return an empty table of what *broker* hands out for its master."""
    identity = broker.identity
    return ActingPops(identity.name, lambda: identity.broker_id, broker.world.clock.wall_ms, broker.pop_clock.steps)


def consumer_filters_of(broker: Broker) -> ConsumerFilters:
    """Return the record of *broker*'s conditions."""
    config, keys = broker.options.broker, broker.options.store

    def is_live(group: str, topic: str) -> bool:
        wanted = broker.consumers.find_subscription(group, topic)
        return wanted is not None and not is_tag_type(wanted.expression_type)

    def bits(group: str, topic: str) -> tuple[list[int], int] | None:
        length = keys.bit_map_length_consume_queue_ext
        return (positions(group, topic, config.max_error_rate_of_bloom_filter, length), length) if length else None

    return ConsumerFilters(
        broker.world.clock.wall_ms,
        is_live,
        broker.conditions.compiles,
        lambda: config.filter_data_clean_time_span,
        bits,
    )


async def load_tables(broker: Broker) -> None:
    """Fill *broker*'s tables from its files, and have them saved when they change.

    Raises:
        BrokerStartError: a table that must be there is missing beside a log that is not empty.
        TableDamagedError, OSError: a file cannot be read.
    """
    _install(broker)
    keys, disk = broker.options.store, broker.world.disk
    absent = False
    for table in broker.tables.kept:
        absent |= not await _load(broker, table)
    declare_compacted(broker.store, keys, broker.topics.rows.values())
    if broker.gate is not None and not broker.role.is_slave and not broker.gate.authority.has_super_user():
        raise BrokerStartError(
            f"{ON}=true, but there is no super user who may sign in: name one by {INIT_USER} in the broker's file"
        )
    path = config_path(keys, history_keeper.FILE_NAME)
    await load(disk, path, broker.history.load)
    broker.persistence.add(SavedTable(history_keeper.NAME, path, broker.history.snapshot, lambda: 0))
    if broker.role.is_slave:
        await load(disk, config_path(keys, REPLICA_FILE), partial(_load_replica_state, broker))
        save_replica_state(broker)
    path = config_path(keys, group_memory.FILE_NAME)  # in every broker: its settings may ask for it at any time
    await load(disk, path, partial(_load_memory, broker))
    broker.persistence.add(SavedTable("members", path, lambda: broker.member_group.memory.to_json(), lambda: 0))
    path = config_path(keys, consumer_filters.FILE_NAME)
    try:
        await load(disk, path, partial(broker.consumer_filters.load, doubtful=broker.store.extensions.doubtful))
    except BrokerStartError as error:  # live members say anew what they want
        log.error("the record of conditions is begun anew", error=error)
    broker.persistence.add(
        SavedTable(consumer_filters.NAME, path, broker.consumer_filters.snapshot, lambda: consumer_filters.DELAY_MS)
    )
    broker.consumer_filters.on_change.append(partial(broker.persistence.changed, consumer_filters.NAME))
    counts = broker.transactions.counts
    path = config_path(keys, transaction_counts.FILE_NAME)
    await load(disk, path, counts.load)
    config = broker.options.broker
    broker.persistence.add(
        SavedTable(transaction_counts.NAME, path, counts.to_json, lambda: config.transaction_metric_flush_interval)
    )
    counts.on_change.append(partial(broker.persistence.changed, transaction_counts.NAME))
    if absent:
        await disk.in_thread(lambda: make_folder_durably(disk, config_path(keys, "").rstrip("/")))
        await broker.persistence.save_all()
    for table in broker.tables.kept:
        table.watch(partial(broker.persistence.changed, table.name))
    if keys.timer_wheel_enable:
        broker.timing.keep = partial(broker.persistence.save, broker.tables.timer.name)
        await broker.timing.open()
    if not broker.role.is_slave:
        _find_lost_topics(broker)
        await broker.pops.recover()
        await broker.history.begin(asks=broker.led is None and broker.presence.state.guarded)
        if broker.history.open:
            broker.store.set_writable(False)  # what its slaves have follows here, if anything does
        else:
            await broker.pops.bring_home()


def _find_lost_topics(broker: Broker) -> None:
    store, topics = broker.store, broker.topics

    def first_stored_ms(topic: str, queue_id: int) -> int:
        return store.store_time_of(topic, queue_id, store.min_queue_offset(topic, queue_id))

    lost = lost_rows(store.queues(), topics.rows, topics.version.timestamp, first_stored_ms, LoggedBatches(store))
    topics.update(lost)
    for row in lost:
        log.warning("the log has a topic that was not saved any more, made anew", row=row.describe())
    tell_of_unread_logs(store, broker.options.store)


def _install(broker: Broker) -> None:
    """Put what exists from the start into the tables."""
    config, keys = broker.options.broker, broker.options.store
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


async def _load(broker: Broker, table: KeptTable) -> bool:
    """Load one table and have it saved; return whether its file was there."""
    file = table.file
    path = config_path(broker.options.store, file.file_name)
    there = await load(broker.world.disk, path, table.load)
    known = there or (file.other_name != "" and await _load_other(broker, table))
    end = broker.store.max_physical_offset
    if not known and end > 0:
        if file.required:
            raise BrokerStartError(
                f"{path} is missing, but the log beside it holds {end} bytes: restore it from a backup or another "
                f"replica, or write {{}} into it to start without {table.name}"
            )
        if file.missing:
            log.warning(f"{file.missing}; if the file was lost, stop now and restore it", missing=path)
    broker.persistence.add(SavedTable(table.name, path, table.snapshot, file.delay_ms, file.barrier, file.private))
    return there


async def _load_other(broker: Broker, table: KeptTable) -> bool:
    """Load a table that was saved under another setting; return whether it was."""
    path = config_path(broker.options.store, table.file.other_name)
    found = await load(broker.world.disk, path, table.load)
    if found:
        log.warning(f"{table.name} are taken over from {path}, which is not written any more", now=table.file.file_name)
    return found


def _load_memory(broker: Broker, content: Mapping[str, Any]) -> None:
    broker.member_group.recall(group_memory.read(content))


def save_replica_state(broker: Broker) -> None:
    """Have it saved from now on whether the tables of this slave are those of its group."""
    path = config_path(broker.options.store, REPLICA_FILE)
    broker.persistence.add(SavedTable("replica", path, partial(_replica_state, broker), lambda: 0))


def _load_replica_state(broker: Broker, content: Mapping[str, Any]) -> None:
    broker.slave_sync.synced = content.get("synced") is True


def _replica_state(broker: Broker) -> dict[str, Any]:
    """Return what says after a restart that the tables of this slave are those of its group."""
    sync = broker.slave_sync
    return {"master": broker.replication.master_address, "synced": sync.synced, "syncedAt": sync.synced_ms}


async def _durable_up_to(broker: Broker, end: int) -> None:
    """Wait for the log of *broker* up to byte *end*. Raises ``OSError``."""
    store = broker.store
    if store.flushed_offset < end and not await store.flush():
        raise OSError(f"the log could not be flushed up to {end}")


def _popped_durable(broker: Broker) -> Callable[[], Awaitable[None]]:
    """Offsets must not be durable before what makes popped messages come back is; without pops, nothing waits."""

    async def popped_durable() -> None:
        await broker.pops.keep_acting()
        reached = max(broker.pops.log.end, min(broker.offsets.log_ends.newest, broker.store.max_physical_offset))
        await _durable_up_to(broker, reached)

    return popped_durable


def _copies_durable(broker: Broker) -> Callable[[], Awaitable[None]]:
    """Progress of delayed messages must not be durable before their copies are."""

    async def copies_durable() -> None:
        # Flushes by itself: at the end of a clean stop the store's own flushing is over already.
        reached = broker.store.max_physical_offset
        if broker.store.flushed_offset < reached and not await broker.store.flush():
            raise OSError(f"the log could not be flushed up to {reached}")

    return copies_durable
