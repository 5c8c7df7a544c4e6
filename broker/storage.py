"""From a broker's keys to the settings of its store, and the files beside the store."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.config import MessageStoreConfig
from understudy.broker.role import Role
from understudy.broker.topics import has_batch_queues
from understudy.format.data_version import DataVersion
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, TableFile, load_table
from understudy.store.config import StoreConfig
from understudy.store.deletions import LivingTopics

log = get_logger("broker.storage")

SLAVE_REMEMBERS_LESS = 10
"""Percent of the memory by which less of a slave's log counts as near its end than of a master's."""


class BrokerStartError(Exception):
    """A broker that cannot start with what is on its disk; the message is one line for the operator."""


def store_settings(keys: MessageStoreConfig, role: Role) -> StoreConfig:
    """Return the settings of the store of a broker in *role* from its *keys*.

    Source: MessageStoreConfig.java, BrokerStartup.java.
    """
    separator = ","
    folders = tuple(part.strip() for part in (keys.store_path_commit_log or "").split(separator) if part.strip())
    read_only = tuple(
        part.strip() for part in (keys.read_only_commit_log_store_paths or "").split(separator) if part.strip()
    )
    return StoreConfig(
        folder=keys.store_path_root_dir,
        commit_log_folders=folders,
        read_only_commit_log_folders=read_only,
        mapped_file_size_commit_log=keys.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=keys.mapped_file_size_consume_queue,
        mapped_file_size_batch_consume_queue=keys.mapper_file_size_batch_consume_queue,
        flush_disk_type=keys.flush_disk_type,
        flush_interval_commit_log_ms=keys.flush_interval_commit_log,
        flush_commit_log_least_pages=keys.flush_commit_log_least_pages,
        flush_commit_log_thorough_interval_ms=keys.flush_commit_log_thorough_interval,
        file_reserved_time_hours=keys.file_reserved_time,
        delete_when=keys.delete_when,
        disk_max_used_space_ratio=keys.disk_max_used_space_ratio,
        disk_space_clean_forcibly_ratio=keys.disk_space_clean_forcibly_ratio,
        disk_space_warning_level_ratio=keys.disk_space_warning_level_ratio,
        clean_file_forcibly_enable=keys.clean_file_forcibly_enable,
        clean_resource_interval_ms=keys.clean_resource_interval,
        delete_file_batch_max=keys.delete_file_batch_max,
        max_message_size=keys.max_message_size,
        max_filter_message_size=keys.max_filter_message_size,
        max_transfer_bytes_in_memory=keys.max_transfer_bytes_on_message_in_memory,
        max_transfer_count_in_memory=keys.max_transfer_count_on_message_in_memory,
        max_transfer_bytes_on_disk=keys.max_transfer_bytes_on_message_in_disk,
        max_transfer_count_on_disk=keys.max_transfer_count_on_message_in_disk,
        access_message_in_memory_max_ratio=max(
            keys.access_message_in_memory_max_ratio - (SLAVE_REMEMBERS_LESS if role.is_slave else 0), 0
        ),
        message_index_enable=keys.message_index_enable,
        max_hash_slot_num=keys.max_hash_slot_num,
        max_index_num=keys.max_index_num,
        max_msgs_num_batch=keys.max_msgs_num_batch,
        enabled_append_prop_crc=keys.enabled_append_prop_crc,
        check_crc_on_recover=keys.check_crc_on_recover,
        message_delay_level=keys.message_delay_level,
        enable_consume_queue_ext=keys.enable_consume_queue_ext,
        mapped_file_size_consume_queue_ext=keys.mapped_file_size_consume_queue_ext,
        enable_multi_dispatch=keys.enable_multi_dispatch,
        enable_lmq=keys.enable_lmq,
        max_lmq_consume_queue_num=keys.max_lmq_consume_queue_num,
        compaction_file_bytes=keys.compaction_mapped_file_size,
        compaction_queue_file_bytes=keys.compaction_cq_mapped_file_size,
        compaction_interval_ms=keys.compaction_schedule_internal,
        compaction_map_bytes=keys.max_offset_map_size,
        scrub_bytes_per_second=keys.scrub_bytes_per_second,
    )


def config_path(keys: MessageStoreConfig, name: str) -> str:
    """Return the path of a table beside the store, for example of ``topics.json``."""
    return os.path.join(keys.store_path_root_dir, "config", name)


async def living_topics(disk: Disk, keys: MessageStoreConfig) -> LivingTopics | None:
    """Return what ``topics.json`` says of the topics in the log beside it; ``None`` when it says nothing.

    What is wrong with the file is told when the table is loaded.
    """
    path = config_path(keys, "topics.json")
    try:
        file = await disk.in_thread(lambda: load_table(disk, path))
    except TableDamagedError:
        return None
    content = file.data or {}
    table = content.get("topicConfigTable")
    if not isinstance(table, Mapping):
        return None
    batch = [
        str(name) for name, row in table.items() if isinstance(row, Mapping) and has_batch_queues(row.get("attributes"))
    ]
    changed_ms = DataVersion.from_json(content.get("dataVersion")).timestamp
    return LivingTopics(frozenset(map(str, table)), changed_ms, frozenset(batch))


async def load(disk: Disk, path: str, merge: Callable[[Mapping[str, Any]], None]) -> bool:
    """Read the table at *path* into memory by *merge*.

    Returns:
        Whether a file was there.

    Raises:
        BrokerStartError: copies exist and none can be used.
    """

    def read() -> TableFile:
        return load_table(disk, path)

    try:
        file = await disk.in_thread(read)
    except TableDamagedError as error:
        raise BrokerStartError(str(error)) from None
    for damage in file.damage:
        log.warning("damaged table, its other copy is used", damage=damage, used=file.source)
    if file.data is None:
        return False
    try:
        merge(file.data)
    except ValueError as error:
        raise BrokerStartError(f"{path}: {error}; correct the entry, or restore the file from {path}.bak") from None
    return True
