"""From a broker's keys to the settings of its store, and the files beside the store."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.config import MessageStoreConfig
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, TableFile, load_table
from understudy.store.config import StoreConfig

log = get_logger("broker.storage")


class BrokerStartError(Exception):
    """A broker that cannot start with what is on its disk; the message is one line for the operator."""


def store_settings(keys: MessageStoreConfig) -> StoreConfig:
    """Return the store's settings from a broker's keys (MessageStoreConfig.java)."""
    separator = ","
    folders = tuple(part.strip() for part in (keys.storePathCommitLog or "").split(separator) if part.strip())
    read_only = tuple(
        part.strip() for part in (keys.readOnlyCommitLogStorePaths or "").split(separator) if part.strip()
    )
    return StoreConfig(
        folder=keys.storePathRootDir,
        commit_log_folders=folders,
        read_only_commit_log_folders=read_only,
        mapped_file_size_commit_log=keys.mappedFileSizeCommitLog,
        mapped_file_size_consume_queue=keys.mappedFileSizeConsumeQueue,
        mapped_file_size_batch_consume_queue=keys.mapperFileSizeBatchConsumeQueue,
        flush_disk_type=keys.flushDiskType,
        flush_interval_commit_log_ms=keys.flushIntervalCommitLog,
        flush_commit_log_least_pages=keys.flushCommitLogLeastPages,
        flush_commit_log_thorough_interval_ms=keys.flushCommitLogThoroughInterval,
        flush_interval_consume_queue_ms=keys.flushIntervalConsumeQueue,
        flush_consume_queue_thorough_interval_ms=keys.flushConsumeQueueThoroughInterval,
        sync_flush_timeout_ms=keys.syncFlushTimeout,
        file_reserved_time_hours=keys.fileReservedTime,
        delete_when=keys.deleteWhen,
        disk_max_used_space_ratio=keys.diskMaxUsedSpaceRatio,
        disk_space_clean_forcibly_ratio=keys.diskSpaceCleanForciblyRatio,
        disk_space_warning_level_ratio=keys.diskSpaceWarningLevelRatio,
        clean_file_forcibly_enable=keys.cleanFileForciblyEnable,
        clean_resource_interval_ms=keys.cleanResourceInterval,
        delete_file_batch_max=keys.deleteFileBatchMax,
        max_message_size=keys.maxMessageSize,
        max_filter_message_size=keys.maxFilterMessageSize,
        max_transfer_bytes_in_memory=keys.maxTransferBytesOnMessageInMemory,
        max_transfer_count_in_memory=keys.maxTransferCountOnMessageInMemory,
        max_transfer_bytes_on_disk=keys.maxTransferBytesOnMessageInDisk,
        max_transfer_count_on_disk=keys.maxTransferCountOnMessageInDisk,
        access_message_in_memory_max_ratio=keys.accessMessageInMemoryMaxRatio,
        message_index_enable=keys.messageIndexEnable,
        max_hash_slot_num=keys.maxHashSlotNum,
        max_index_num=keys.maxIndexNum,
        max_msgs_num_batch=keys.maxMsgsNumBatch,
        check_crc_on_recover=keys.checkCRCOnRecover,
        message_delay_level=keys.messageDelayLevel,
        offset_check_in_slave=keys.offsetCheckInSlave,
        enable_lmq=keys.enableLmq,
        enable_multi_dispatch=keys.enableMultiDispatch,
    )


def config_path(keys: MessageStoreConfig, name: str) -> str:
    """Return the path of a table beside the store, for example of ``topics.json``."""
    return os.path.join(keys.storePathRootDir, "config", name)


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
