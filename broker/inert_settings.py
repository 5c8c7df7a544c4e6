"""Keys of the reference's brokers that are accepted, kept and answered here, and change nothing.

``inert_keys.py`` has the reason of each. A plain ``int`` has 64 bits, as the reference's ``long``, and nothing else is
asked of it.
"""

import os

import attrs

from understudy.runtime.configuration import Int, keyed

PROCESSORS = os.cpu_count() or 1
"""Processors of this machine; the reference derives some thread pool sizes from it."""


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class InertBrokerConfig:
    """Those of BrokerConfig.java."""

    account_stats_enable: bool = True
    account_stats_print_zero_values: bool = True
    ack_message_thread_pool_nums: int = 16
    ack_thread_pool_queue_capacity: int = 100_000
    acl_enable: bool = False
    append_ack_async: bool = False
    append_ck_async: bool = False
    async_send_enable: bool = True
    cg_cold_read_threshold: int = 3_145_728
    clean_offline_broker_interval: int = 30000
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    client_manage_thread_pool_nums: int = 32
    cold_ctr_strategy_enable: bool = False
    commercial_base_count: int = 1
    commercial_size_per_msg: int = 4096
    config_manager_version: str = "v1"
    consumer_fallbehind_threshold: int = 17_179_869_184
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    consumer_manage_thread_pool_nums: int = 32
    disable_consume_if_consumer_read_slowly: bool = False
    enable_detail_stat: bool = True
    enable_fast_channel_event_process: bool = False
    enable_net_work_flow_control: bool = False
    enable_notify_before_pop_calculate_lag: bool = True
    enable_pop_log: bool = False
    enable_skip_long_awaiting_ack: bool = False
    enable_split_registration: bool = False
    fetch_namesrv_addr_by_address_server: bool = False
    fetch_namesrv_addr_interval: int = 10000
    filter_support_retry: bool = False
    flush_consumer_offset_history_interval: int = 60000
    global_cold_read_threshold: int = 104_857_600
    heartbeat_thread_pool_nums: int = min(32, PROCESSORS)
    heartbeat_thread_pool_queue_capacity: int = 50000
    high_speed_mode: bool = False
    is_broker_container: bool = False
    is_in_broker_container: bool = False
    isolate_log_enable: bool = False
    lite_pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    lite_pull_thread_pool_queue_capacity: int = 100_000
    max_stats_idle_time_in_minutes: int = -1
    message_store_plug_in: str = ""
    pop_consumer_fs_service_init: bool = keyed("popConsumerFSServiceInit", True)
    pop_consumer_kv_service_enable: bool = keyed("popConsumerKVServiceEnable", False)
    pop_consumer_kv_service_init: bool = keyed("popConsumerKVServiceInit", False)
    pop_consumer_kv_service_log: bool = keyed("popConsumerKVServiceLog", False)
    pop_from_retry_probability_for_priority: int = 0
    pop_long_polling_force_notify_interval: int = 800
    pop_polling_map_expire_time_seconds: int = 600
    pop_polling_map_size: int = 100_000
    pop_revive_concurrency: int = 32
    pop_revive_max_attempt_times: int = 16
    pop_revive_max_return_size_per_read: int = 16384
    print_channel_groups: bool = False
    print_channel_groups_min_num: int = 5
    priority_order_asc: bool = True
    pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    put_message_future_thread_pool_nums: int = min(PROCESSORS, 4)
    put_thread_pool_queue_capacity: int = 10000
    query_message_thread_pool_nums: int = 8 + PROCESSORS
    query_thread_pool_queue_capacity: int = 20000
    real_time_notify_consumer_change: bool = True
    recover_concurrently: bool = False
    recover_thread_pool_nums: int = 32
    revive_ack_wait_ms: int = 180_000
    revive_max_slow: int = 3
    revive_scan_time: int = 10000
    rocketmq_home: str | None = None
    send_message_thread_pool_nums: int = min(PROCESSORS, 4)
    skip_when_ck_re_put_reach_max_times: bool = keyed("skipWhenCKRePutReachMaxTimes", False)
    split_registration_size: int = 800
    subscription_expired_timeout: int = 600_000
    transfer_msg_by_heap: bool = True
    use_pid_cold_ctr_strategy: bool = keyed("usePIDColdCtrStrategy", True)
    use_separate_retry_queue: bool = False
    use_single_rocks_db_for_all_configs: bool = keyed("useSingleRocksDBForAllConfigs", False)
    use_static_subscription: bool = False
    wait_time_mills_in_ack_queue: int = 3000
    wait_time_mills_in_heartbeat_queue: int = 31000
    wait_time_mills_in_lite_pull_queue: int = 5000
    wait_time_mills_in_pull_queue: int = 5000


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class InertMessageStoreConfig:
    """Those of MessageStoreConfig.java."""

    access_message_in_memory_hot_ratio: int = 26
    auto_message_version_on_topic_len: bool = True
    batch_dispatch_request_thread_pool_nums: int = 16
    bit_map_length_consume_queue_ext: int = 64
    bottom_most_compression_type_for_consume_queue_store: str = "zstd"
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
    compaction_thread_num: int = 6
    correct_logic_min_offset_force_interval: int = 300_000
    correct_logic_min_offset_sleep_interval: int = 1
    data_read_ahead_enable: bool = True
    debug_lock_enable: bool = False
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    disappear_time_after_start: int = -1
    disk_fall_recorded: bool = True
    dispatch_cq_cache_num: int = 4096
    dispatch_cq_threads: int = 10
    dispatch_from_sender_thread: bool = False
    d_leger_group: str | None = None
    d_leger_peers: str | None = None
    d_leger_self_id: str | None = None
    duplication_enable: bool = False
    enable_accelerated_recovery: bool = False
    enable_async_reput: bool = True
    enable_batch_push: bool = False
    enable_build_consume_queue_concurrently: bool = False
    enable_clean_expired_offset: bool = False
    enable_d_leger_commit_log: bool = False
    enable_log_consume_queue_repeatedly_build_when_recover: bool = False
    enable_rocks_db_log: bool = keyed("enableRocksDBLog", False)
    enable_running_flags_in_flush: bool = False
    enable_schedule_async_deliver: bool = False
    enable_schedule_message_stats: bool = True
    fast_fail_if_no_buffer_in_store_pool: bool = False
    flush_commit_log_timed: bool = True
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: Int = 60000
    flush_interval_consume_queue: Int = 1000
    flush_least_pages_when_warm_maped_file: int = 4096
    force_verify_prop_crc: bool = keyed("forceVerifyPropCRC", False)
    index_file_read_enable: bool = True
    index_file_write_enable: bool = True
    index_rocks_db_enable: bool = keyed("indexRocksDBEnable", False)
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    logic_queue_force_swap_map_interval: int = 43_200_000
    logic_queue_swap_map_interval: int = 3_600_000
    logic_queue_swap_map_reserve_file_num: int = 20
    mapped_file_swap_enable: bool = True
    max_async_put_message_requests: int = 5000
    max_batch_delete_files_num: int = 50
    max_checksum_range: int = 1_073_741_824
    max_consume_queue_scan: int = 20000
    max_recovery_commitlog_files: int = 30
    max_rocks_db_index_query_days: int = keyed("maxRocksDBIndexQueryDays", 7)
    max_slave_resend_length: int = 268_435_456
    max_topic_length: int = 127
    mem_table_flush_interval_ms: int = 3_600_000
    message_index_safe: bool = False
    os_page_cache_busy_time_out_mills: int = 1000
    preferred_leader_id: str | None = None
    pull_batch_max_message_count: int = 160
    put_consume_queue_data_by_file_channel: bool = True
    put_message_timeout: int = 8000
    put_msg_index_hight_water: int = 600_000
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
    search_bcq_by_cache_enable: bool = True
    shared_byte_buffer_num: int = 16
    spin_lock_collision_retreat_optimal_degree: int = 1000
    stat_rocks_db_cq_interval_sec: int = keyed("statRocksDBCQIntervalSec", 10)
    store_path_d_ledger_commit_log: str | None = None
    store_type: str = "default"
    timer_check_metrics_when: str = "05"
    timer_cold_data_check_interval_ms: int = 60000
    timer_enable_check_metrics: bool = True
    timer_enable_disruptor: bool = False
    timer_enable_retry_until_success: bool = False
    timer_get_message_thread_num: int = 3
    timer_intercept_delay_level: bool = False
    timer_metric_small_threshold: int = 1_000_000
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
    timer_skip_unknown_error: bool = False
    timer_warm_enable: bool = False
    timer_wheel_snapshot_flush: bool = False
    timer_wheel_snapshot_interval_ms: int = 10000
    topic_queue_lock_num: int = 32
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
