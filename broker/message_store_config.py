"""The keys of MessageStoreConfig, as they stand in a user's ``broker.conf``.

A plain ``int`` has 64 bits, as the reference's ``long``; so has one without an effect here, of which nothing is asked.
"""

import attrs

from understudy.broker.config_values import (
    CompactionFileBytes,
    DelayLevels,
    ExtensionFileBytes,
    FlushType,
    Folder,
    Hours,
    IndexEntries,
    LogFileBytes,
    NotNegative,
    NotNegativeLong,
    Positive,
    QueueFileBytes,
    Role,
)
from understudy.remoting.access import AdminAddresses
from understudy.runtime.configuration import Int, Port, keyed


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class MessageStoreConfig:
    """Keys of one message store (MessageStoreConfig.java of 5.4.0), with the reference's defaults."""

    access_message_in_memory_hot_ratio: int = 26
    access_message_in_memory_max_ratio: Int = 40
    all_ack_in_sync_state_set: bool = False
    append_topic_for_timer_delete_key: bool = False
    async_learner: bool = False
    auto_message_version_on_topic_len: bool = True
    batch_dispatch_request_thread_pool_nums: int = 16
    bit_map_length_consume_queue_ext: int = 64
    bottom_most_compression_type_for_consume_queue_store: str = "zstd"
    broker_role: Role = "ASYNC_MASTER"
    check_crc_on_recover: bool = keyed("checkCRCOnRecover", True)
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: NotNegative = 10000
    clean_rocks_db_dirty_cq_interval_min: int = keyed("cleanRocksDBDirtyCQIntervalMin", 60)
    clean_swaped_map_interval: int = 300_000
    cold_data_flow_control_enable: bool = False
    cold_data_scan_enable: bool = False
    combine_assign_offset_cq_type: str = keyed("combineAssignOffsetCQType", "default")
    combine_cq_enable_check_self: bool = keyed("combineCQEnableCheckSelf", False)
    combine_cq_loading_cq_types: str = keyed("combineCQLoadingCQTypes", "default;defaultRocksDB")
    combine_cq_max_extra_search_commit_log_files: int = keyed("combineCQMaxExtraSearchCommitLogFiles", 3)
    combine_cq_prefer_cq_type: str = keyed("combineCQPreferCQType", "default")
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    commit_interval_commit_log: int = 200
    commit_log_force_swap_map_interval: int = 43_200_000
    commit_log_recover_max_num: int = 10
    commit_log_swap_map_interval: int = 3_600_000
    commit_log_swap_map_reserve_file_num: int = 100
    compaction_cq_mapped_file_size: CompactionFileBytes = 10_485_760
    compaction_mapped_file_size: CompactionFileBytes = 104_857_600
    compaction_schedule_internal: Positive = 900_000
    compaction_thread_num: int = 6
    correct_logic_min_offset_force_interval: int = 300_000
    correct_logic_min_offset_sleep_interval: int = 1
    data_read_ahead_enable: bool = True
    debug_lock_enable: bool = False
    default_query_max_num: Int = 32
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    delete_file_batch_max: Int = 10
    delete_when: Hours = "04"
    destroy_maped_file_interval_forcibly: int = 120_000
    disappear_time_after_start: int = -1
    disk_fall_recorded: bool = True
    disk_max_used_space_ratio: Int = 75
    disk_space_clean_forcibly_ratio: Int = 85
    disk_space_warning_level_ratio: Int = 90
    dispatch_cq_cache_num: int = 4096
    dispatch_cq_threads: int = 10
    dispatch_from_sender_thread: bool = False
    d_leger_group: str | None = None
    d_leger_peers: str | None = None
    d_leger_self_id: str | None = None
    duplication_enable: bool = False
    enable_accelerated_recovery: bool = False
    enable_async_reput: bool = True
    enable_auto_in_sync_replicas: bool = False
    enable_batch_push: bool = False
    enable_build_consume_queue_concurrently: bool = False
    enable_clean_expired_offset: bool = False
    enable_compaction: bool = True
    enable_consume_queue_ext: bool = False
    enabled_append_prop_crc: bool = keyed("enabledAppendPropCRC", False)
    enable_d_leger_commit_log: bool = False
    enable_lmq: bool = False
    enable_log_consume_queue_repeatedly_build_when_recover: bool = False
    enable_multi_dispatch: bool = False
    enable_rocks_db_log: bool = keyed("enableRocksDBLog", False)
    enable_running_flags_in_flush: bool = False
    enable_schedule_async_deliver: bool = False
    enable_schedule_message_stats: bool = True
    fast_fail_if_no_buffer_in_store_pool: bool = False
    file_reserved_time: NotNegative = 72
    flush_commit_log_least_pages: Int = 4
    flush_commit_log_thorough_interval: Int = 10000
    flush_commit_log_timed: bool = True
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: Int = 60000
    flush_delay_offset_interval: NotNegativeLong = 10000
    flush_disk_type: FlushType = "ASYNC_FLUSH"
    flush_interval_commit_log: NotNegative = 500
    flush_interval_consume_queue: Int = 1000
    flush_least_pages_when_warm_maped_file: int = 4096
    force_verify_prop_crc: bool = keyed("forceVerifyPropCRC", False)
    ha_flow_control_enable: bool = False
    ha_housekeeping_interval: NotNegative = 20000
    ha_listen_port: Port = 10912
    ha_master_address: str | None = None
    ha_max_gap_not_in_sync: Int = 268_435_456
    ha_max_time_slave_not_catchup: int = 15000
    ha_registered_slaves_only: bool = False  # ours: of a led master, which asks its controllers where replicas are
    ha_send_heartbeat_interval: NotNegative = 5000
    ha_slave_addresses: AdminAddresses = None  # ours: from which the HA port takes connections
    ha_transfer_batch_size: Int = 32768
    ha_transfer_whole_log: bool = False  # ours: an empty slave gets the whole log, not only its last file
    index_file_read_enable: bool = True
    index_file_write_enable: bool = True
    index_rocks_db_enable: bool = keyed("indexRocksDBEnable", False)
    in_sync_replicas: Int = 1
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    logic_queue_force_swap_map_interval: int = 43_200_000
    logic_queue_swap_map_interval: int = 3_600_000
    logic_queue_swap_map_reserve_file_num: int = 20
    mapped_file_size_commit_log: LogFileBytes = 1_073_741_824
    mapped_file_size_consume_queue: QueueFileBytes = 6_000_000
    mapped_file_size_consume_queue_ext: ExtensionFileBytes = 50_331_648
    mapped_file_size_timer_log: int = 104_857_600
    mapped_file_swap_enable: bool = True
    mapper_file_size_batch_consume_queue: Int = 13_800_000
    max_async_put_message_requests: int = 5000
    max_batch_delete_files_num: int = 50
    max_checksum_range: int = 1_073_741_824
    max_consume_queue_scan: int = 20000
    max_filter_message_size: Int = 16000
    max_hash_slot_num: Positive = 5_000_000
    max_ha_transfer_byte_in_second: int = 104_857_600
    max_index_num: IndexEntries = 20_000_000
    max_lmq_consume_queue_num: NotNegative = 20000
    max_message_size: Positive = 4_194_304
    max_msgs_num_batch: Int = 64
    max_offset_map_size: NotNegative = 104_857_600
    max_recovery_commitlog_files: int = 30
    max_rocks_db_index_query_days: int = keyed("maxRocksDBIndexQueryDays", 7)
    max_slave_resend_length: int = 268_435_456
    max_topic_length: int = 127
    max_transfer_bytes_on_message_in_disk: Int = 65536
    max_transfer_bytes_on_message_in_memory: Int = 262_144
    max_transfer_count_on_message_in_disk: Int = 8
    max_transfer_count_on_message_in_memory: Int = 32
    mem_table_flush_interval_ms: int = 3_600_000
    message_delay_level: DelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    message_index_enable: bool = True
    message_index_safe: bool = False
    min_in_sync_replicas: Int = 1
    offset_check_in_slave: bool = False
    os_page_cache_busy_time_out_mills: int = 1000
    preferred_leader_id: str | None = None
    pull_batch_max_message_count: int = 160
    put_consume_queue_data_by_file_channel: bool = True
    put_message_timeout: int = 8000
    put_msg_index_hight_water: int = 600_000
    read_only_commit_log_store_paths: str | None = None
    read_un_committed: bool = False
    real_time_persist_rocks_db_config: bool = keyed("realTimePersistRocksDBConfig", True)
    recheck_reput_offset_from_cq: bool = False
    redelete_hanged_file_interval: int = 120_000
    replicas_per_disk_partition: int = 1
    rocksdb_compression_type: str = "lz4"
    rocksdb_cq_double_write_enable: bool = keyed("rocksdbCQDoubleWriteEnable", False)
    rocksdb_flush_wal_frequency: int = 1024
    rocksdb_wal_file_rolling_threshold: int = 1_073_741_824
    sample_count_threshold: int = 5000
    sample_steps: int = 32
    schedule_async_deliver_max_pending_limit: int = 2000
    schedule_async_deliver_max_resend_num2_blocked: int = 3
    scrub_bytes_per_second: NotNegative = 8_388_608  # ours: how fast old messages are compared after a start
    search_bcq_by_cache_enable: bool = True
    shared_byte_buffer_num: int = 16
    slave_timeout: Int = 3000
    spin_lock_collision_retreat_optimal_degree: int = 1000
    stat_rocks_db_cq_interval_sec: int = keyed("statRocksDBCQIntervalSec", 10)
    store_path_broker_identity: str | None = None
    store_path_commit_log: str | None = None
    store_path_d_ledger_commit_log: str | None = None
    store_path_epoch_file: str | None = None
    store_path_root_dir: Folder = "store"
    store_type: str = "default"
    sync_flush_timeout: Positive = 5000
    sync_from_last_file: bool = False
    sync_master_flush_offset_when_startup: bool = False
    timer_check_metrics_when: str = "05"
    timer_cold_data_check_interval_ms: int = 60000
    timer_congest_num_each_slot: int = 2_147_483_647
    timer_enable_check_metrics: bool = True
    timer_enable_disruptor: bool = False
    timer_enable_retry_until_success: bool = False
    timer_flush_interval_ms: int = 1000
    timer_get_message_thread_num: int = 3
    timer_intercept_delay_level: bool = False
    timer_max_delay_sec: Int = 259_200
    timer_metric_small_threshold: int = 1_000_000
    timer_precision_ms: int = 1000
    timer_progress_log_interval_ms: int = 10000
    timer_put_message_thread_num: int = 3
    timer_recall_to_timeline_enable: bool = True
    timer_recall_to_time_wheel_enable: bool = True
    timer_rocks_db_enable: bool = keyed("timerRocksDBEnable", False)
    timer_rocks_db_precision_ms: int = keyed("timerRocksDBPrecisionMs", 1000)
    timer_rocks_db_roll_interval_hours: int = keyed("timerRocksDBRollIntervalHours", 1)
    timer_rocks_db_roll_max_tps: float = keyed("timerRocksDBRollMaxTps", 8000.0)
    timer_rocks_db_roll_range_hours: int = keyed("timerRocksDBRollRangeHours", 2)
    timer_rocks_db_stop_scan: bool = keyed("timerRocksDBStopScan", False)
    timer_rocks_db_time_expired_max_tps: float = keyed("timerRocksDBTimeExpiredMaxTps", 200000.0)
    timer_roll_window_slot: int = 172_800
    timer_skip_unknown_error: bool = False
    timer_stop_dequeue: bool = False
    timer_stop_enqueue: bool = False
    timer_warm_enable: bool = False
    timer_wheel_enable: bool = True
    timer_wheel_snapshot_flush: bool = False
    timer_wheel_snapshot_interval_ms: int = 10000
    topic_queue_lock_num: int = 32
    total_replicas: Int = 1
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    trans_rocks_db_enable: bool = keyed("transRocksDBEnable", False)
    trans_write_origin_trans_half_enable: bool = True
    travel_cq_file_num_when_get_message: int = 1
    use_abs_lock: bool = keyed("useABSLock", False)
    use_reentrant_lock_when_put_message: bool = True
    wake_commit_when_put_message: bool = True
    wake_flush_when_put_message: bool = False
    warm_maped_file_enable: bool = False
    write_without_mmap: bool = False
