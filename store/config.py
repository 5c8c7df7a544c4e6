"""Settings of one message store."""

from __future__ import annotations

import attrs

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
LIVE = (
    "flush_interval_commit_log_ms",
    "flush_commit_log_least_pages",
    "flush_commit_log_thorough_interval_ms",
    "file_reserved_time_hours",
    "delete_when",
    "disk_max_used_space_ratio",
    "disk_space_clean_forcibly_ratio",
    "disk_space_warning_level_ratio",
    "clean_file_forcibly_enable",
    "clean_resource_interval_ms",
    "delete_file_batch_max",
    "max_message_size",
    "max_filter_message_size",
    "max_transfer_bytes_in_memory",
    "max_transfer_count_in_memory",
    "max_transfer_bytes_on_disk",
    "max_transfer_count_on_disk",
    "access_message_in_memory_max_ratio",
    "max_msgs_num_batch",
    "scrub_bytes_per_second",
    "enabled_append_prop_crc",
    "max_lmq_consume_queue_num",
    "compaction_interval_ms",
    "compaction_map_bytes",
)
"""Settings that count at once when they change while the store is open; the others belong to its files."""
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@attrs.frozen
class StoreConfig:
    """Settings of one message store; defaults are those of MessageStoreConfig.java unless said otherwise.

    Args:
        folder: root of the store (``storePathRootDir``).
        commit_log_folders: where commit log files go, round robin; empty means ``folder/commitlog``.
        read_only_commit_log_folders: folders whose files are read but never added to.
        mapped_file_size_commit_log: bytes of one commit log file.
        mapped_file_size_consume_queue: bytes of one consume queue file; rounded up to a multiple of 20.
        mapped_file_size_batch_consume_queue: bytes of one batch consume queue file; rounded up to a multiple of 46.
        mapped_file_size_consume_queue_ext: bytes of one file of what extends units of consume queues.
        enable_consume_queue_ext: whether units are extended by the conditions that their messages meet.
        flush_disk_type: ``ASYNC_FLUSH`` or ``SYNC_FLUSH``. With the latter readers see only what is on the disk.
        flush_interval_commit_log_ms: pause between asynchronous flushes of the log while messages arrive.
        flush_commit_log_least_pages: pages of 4 KiB that must be dirty for an asynchronous flush.
        flush_commit_log_thorough_interval_ms: after so long anything dirty is flushed.
        file_reserved_time_hours: age after which a commit log file may go.
        delete_when: local hours of the day, separated by ``;``, at which old files go.
        disk_max_used_space_ratio: percent of the disk above which old files go at any hour.
        disk_space_clean_forcibly_ratio: percent above which files go whatever their age.
        disk_space_warning_level_ratio: percent above which writes are refused.
        clean_file_forcibly_enable: whether files younger than the reserved time may go for want of space.
        clean_resource_interval_ms: pause between looks at age and space while the store has files.
        delete_file_batch_max: most commit log files deleted in one look.
        max_message_size: most bytes of one body.
        max_filter_message_size: bytes of queue entries looked at by one filtered read.
        max_transfer_bytes_in_memory: most bytes of one read near the end of the log.
        max_transfer_count_in_memory: most messages of one read near the end of the log.
        max_transfer_bytes_on_disk: most bytes of one read far from the end.
        max_transfer_count_on_disk: most messages of one read far from the end.
        access_message_in_memory_max_ratio: percent of the machine's memory that counts as near the end.
        memory_bytes: the machine's memory; 0 asks the operating system.
        message_index_enable: whether messages can be found by key.
        max_hash_slot_num: hash slots of one index file.
        max_index_num: entries of one index file.
        max_msgs_num_batch: most messages of one query by key.
        enabled_append_prop_crc: whether a checksum of the whole record is put behind its properties.
        check_crc_on_recover: whether a start compares body checksums.
        message_delay_level: delays of the levels, as ``1s 5s 1m 1h``.
        enable_multi_dispatch: whether a record in the log may stand in several queues (``INNER_MULTI_DISPATCH``).
        enable_lmq: whether such queues are light ones, with one queue; new messages enter them when both are set.
        max_lmq_consume_queue_num: most light queues; no message makes one more.
        mapped_queue_files_max: most consume queue files mapped at the same time (each holds a file descriptor).
        mapped_log_files_max: most commit log files mapped at the same time.
        compaction_file_bytes: about the bytes of one file of a compaction log.
        compaction_queue_file_bytes: bytes of the file of units beside it; rounded down to a multiple of 46.
        compaction_interval_ms: pause between two rounds of compaction.
        compaction_map_bytes: most memory for the keys of one round.
        scrub_bytes_per_second: how fast a scrub goes that begins by itself ten minutes after a start; 0: none does. The
            reference compares nothing.
    """

    folder: str
    commit_log_folders: tuple[str, ...] = ()
    read_only_commit_log_folders: tuple[str, ...] = ()
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * 20
    mapped_file_size_batch_consume_queue: int = 300_000 * 46
    mapped_file_size_consume_queue_ext: int = 48 << 20
    enable_consume_queue_ext: bool = False
    flush_disk_type: str = ASYNC_FLUSH
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    file_reserved_time_hours: int = 72
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    clean_resource_interval_ms: int = 10_000
    delete_file_batch_max: int = 10
    max_message_size: int = 4 << 20
    max_filter_message_size: int = 16_000
    max_transfer_bytes_in_memory: int = 262_144
    max_transfer_count_in_memory: int = 32
    max_transfer_bytes_on_disk: int = 65_536
    max_transfer_count_on_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    memory_bytes: int = 0
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    enabled_append_prop_crc: bool = False
    check_crc_on_recover: bool = True
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    max_lmq_consume_queue_num: int = 20_000
    mapped_queue_files_max: int = 256
    mapped_log_files_max: int = 32
    compaction_file_bytes: int = 100 << 20
    compaction_queue_file_bytes: int = 10 << 20
    compaction_interval_ms: int = 900_000
    compaction_map_bytes: int = 100 << 20
    scrub_bytes_per_second: int = 8 << 20

    @property
    def light_queues(self) -> bool:
        """Whether messages enter light queues here."""
        return self.enable_lmq and self.enable_multi_dispatch

    def with_live(self, other: StoreConfig) -> StoreConfig:
        """Return these settings with what *other* says for those in :data:`LIVE`."""
        return attrs.evolve(self, **{name: getattr(other, name) for name in LIVE})

    def delay_levels_ms(self) -> list[int]:
        """Return the delay of level 1, 2, ... in milliseconds. Raises ``ValueError`` naming the bad part."""
        units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
        levels = []
        for part in self.message_delay_level.split():
            if part[-1] not in units or not part[:-1].isdigit():
                raise ValueError(f"messageDelayLevel: {part!r} is not a number followed by s, m, h or d")
            levels.append(int(part[:-1]) * units[part[-1]])
        return levels
