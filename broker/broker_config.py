"""The keys of BrokerConfig, as they stand in a user's ``broker.conf``.

A plain ``int`` has 64 bits, as the reference's ``long``; so has one without an effect here, of which nothing is asked.
"""

import os

import attrs

from understudy.broker.config_values import (
    BrokerId,
    NameServers,
    NotNegative,
    Permission,
    Positive,
    QueueCount,
    RequestMode,
)
from understudy.runtime.configuration import Int, Port, keyed

PROCESSORS = os.cpu_count() or 1
"""Processors of this machine; the reference derives some thread pool sizes from it, which only show in answers here."""


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class BrokerConfig:
    """Keys of one broker (BrokerConfig.java and BrokerIdentity.java of 5.4.0), with the reference's defaults."""

    account_stats_enable: bool = True
    account_stats_print_zero_values: bool = True
    ack_message_thread_pool_nums: int = 16
    ack_thread_pool_queue_capacity: int = 100_000
    acl_enable: bool = False
    admin_broker_thread_pool_nums: Int = 16
    admin_broker_thread_pool_queue_capacity: Int = 10000
    allow_recall_when_broker_not_writeable: bool = True
    append_ack_async: bool = False
    append_ck_async: bool = False
    async_send_enable: bool = True
    auto_create_subscription_group: bool = True
    auto_create_topic_enable: bool = True
    auto_delete_unused_stats: bool = True
    broadcast_offset_expire_max_second: int = 300
    broadcast_offset_expire_second: int = 120
    broker_cluster_name: str = "DefaultCluster"
    broker_config_path: str | None = None
    broker_election_priority: int = 2_147_483_647
    broker_fast_failure_enable: bool = True
    broker_heartbeat_interval: Positive = 1000
    broker_id: BrokerId = 0
    broker_ip1: str = keyed("brokerIP1", "")
    broker_ip2: str = keyed("brokerIP2", "")
    broker_name: str = ""
    broker_not_active_timeout_millis: int = 10000
    broker_permission: Permission = 6
    broker_topic_enable: bool = True
    cg_cold_read_threshold: int = 3_145_728
    channel_expired_timeout: int = 120_000
    check_sync_state_set_period: Positive = 5000
    clean_offline_broker_interval: int = 30000
    clear_retry_topic_when_delete_topic: bool = True
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    client_manage_thread_pool_nums: int = 32
    cluster_topic_enable: bool = True
    cold_ctr_strategy_enable: bool = False
    commercial_base_count: int = 1
    commercial_size_per_msg: int = 4096
    compatible_with_old_name_srv: bool = True
    compressed_register: bool = False
    config_black_list: str = "configBlackList;brokerConfigPath"
    config_manager_version: str = "v1"
    consumer_fallbehind_threshold: int = 17_179_869_184
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    consumer_manage_thread_pool_nums: int = 32
    consumer_offset_update_version_step: int = 500
    controller_addr: str = ""
    controller_heart_beat_timeout_mills: Positive = 10000
    default_message_request_mode: RequestMode = "PULL"
    default_pop_share_queue_num: int = -1
    default_topic_queue_nums: QueueCount = 8
    delay_offset_update_version_step: int = 200
    disable_consume_if_consumer_read_slowly: bool = False
    enable_broadcast_offset_store: bool = True
    enable_calc_filter_bit_map: bool = False
    enable_connection_metrics: bool = True
    enable_controller_mode: bool = False
    enable_create_sys_group: bool = True
    enable_detail_stat: bool = True
    enable_fast_channel_event_process: bool = False
    enable_lag_and_dlq_metrics: bool = True
    enable_lmq_stats: bool = False
    enable_message_store_metrics: bool = True
    enable_mixed_message_type: bool = False
    enable_net_work_flow_control: bool = False
    enable_notify_after_pop_order_lock_release: bool = True
    enable_notify_before_pop_calculate_lag: bool = True
    enable_pop_batch_ack: bool = False
    enable_pop_buffer_merge: bool = False
    enable_pop_log: bool = False
    enable_pop_message_threshold: bool = False
    enable_pop_metrics: bool = True
    enable_property_filter: bool = False
    enable_register_producer: bool = True
    enable_remote_escape: bool = False
    enable_remoting_metrics: bool = True
    enable_request_metrics: bool = True
    enable_retry_topic_v2: bool = False
    enable_single_topic_register: bool = False
    enable_skip_long_awaiting_ack: bool = False
    enable_slave_acting_master: bool = False
    enable_split_metadata: bool = True
    enable_split_registration: bool = False
    enable_stats_metrics: bool = True
    enable_transaction_metrics: bool = True
    end_transaction_pool_queue_capacity: Int = 100_000
    end_transaction_thread_pool_nums: Int = 8 + PROCESSORS * 2
    estimate_accumulation: bool = True
    expect_consumer_num_use_filter: int = 32
    fetch_controller_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_by_address_server: bool = False
    fetch_name_srv_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_interval: int = 10000
    filter_data_clean_time_span: int = 86_400_000
    filter_support_retry: bool = False
    flush_consumer_offset_history_interval: int = 60000
    flush_consumer_offset_interval: Positive = 5000
    force_register: bool = True
    forward_timeout: int = 3000
    global_cold_read_threshold: int = 104_857_600
    heartbeat_thread_pool_nums: int = min(32, PROCESSORS)
    heartbeat_thread_pool_queue_capacity: int = 50000
    high_speed_mode: bool = False
    init_pop_offset_by_check_msg_in_mem: bool = True
    is_broker_container: bool = False
    is_in_broker_container: bool = False
    isolate_log_enable: bool = False
    listen_port: Port = 6888
    lite_pull_message_enable: bool = True
    lite_pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    lite_pull_thread_pool_queue_capacity: int = 100_000
    load_balance_poll_name_server_interval: int = 30000
    load_balance_processor_thread_pool_nums: Int = 32
    load_balance_thread_pool_queue_capacity: Int = 100_000
    lock_in_strict_mode: bool = False
    long_polling_enable: bool = True
    max_error_rate_of_bloom_filter: int = 20
    max_pop_polling_size: int = 100_000
    max_stats_idle_time_in_minutes: int = -1
    message_store_plug_in: str = ""
    metric_grpc_exporter_interval_in_mills: int = 60000
    metric_grpc_exporter_time_out_in_mills: int = 3000
    metric_logging_exporter_interval_in_mills: int = 10000
    metrics_exporter_type: str = "DISABLE"
    metrics_grpc_exporter_header: str = ""
    metrics_grpc_exporter_target: str = ""
    metrics_in_delta: bool = False
    metrics_label: str = ""
    metrics_otel_cardinality_limit: int = 50000
    metrics_prom_exporter_host: str = ""
    metrics_prom_exporter_port: Port = 5557
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    namesrv_addr: NameServers = None
    notify_consumer_ids_changed_enable: bool = True
    pop_ck_max_buffer_size: int = 200_000
    pop_ck_offset_max_queue_size: int = 20000
    pop_ck_stay_buffer_time: int = 10000
    pop_ck_stay_buffer_time_out: int = 3000
    pop_consumer_fs_service_init: bool = keyed("popConsumerFSServiceInit", True)
    pop_consumer_kv_service_enable: bool = keyed("popConsumerKVServiceEnable", False)
    pop_consumer_kv_service_init: bool = keyed("popConsumerKVServiceInit", False)
    pop_consumer_kv_service_log: bool = keyed("popConsumerKVServiceLog", False)
    pop_from_retry_probability: int = 20
    pop_from_retry_probability_for_priority: int = 0
    pop_inflight_message_threshold: int = 10000
    pop_long_polling_force_notify_interval: int = 800
    pop_polling_map_expire_time_seconds: int = 600
    pop_polling_map_size: int = 100_000
    pop_polling_size: int = 1024
    pop_response_return_actual_retry_topic: bool = False
    pop_revive_concurrency: int = 32
    pop_revive_max_attempt_times: int = 16
    pop_revive_max_return_size_per_read: int = 16384
    pre_online_max_wait_millis: NotNegative = 60_000  # ours: longest wait for a slave that does not do its part
    print_channel_groups: bool = False
    print_channel_groups_min_num: int = 5
    priority_order_asc: bool = True
    process_reply_message_thread_pool_nums: Int = 16 + PROCESSORS * 2
    pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    pull_thread_pool_queue_capacity: Int = 100_000
    put_message_future_thread_pool_nums: int = min(PROCESSORS, 4)
    put_thread_pool_queue_capacity: int = 10000
    query_message_thread_pool_nums: int = 8 + PROCESSORS
    query_thread_pool_queue_capacity: int = 20000
    real_time_notify_consumer_change: bool = True
    recall_message_enable: bool = False
    recover_concurrently: bool = False
    recover_thread_pool_nums: int = 32
    region_id: str = "DefaultRegion"
    register_broker_timeout_mills: Int = 24000
    register_name_server_period: Positive = 30000
    reject_pull_consumer_enable: bool = False
    reject_transaction_message: bool = False
    reply_thread_pool_queue_capacity: Int = 10000
    retrieve_message_from_pop_retry_topic_v1: bool = True
    revive_ack_wait_ms: int = 180_000
    revive_interval: int = 1000
    revive_max_slow: int = 3
    revive_queue_num: QueueCount = 8
    revive_scan_time: int = 10000
    rocketmq_home: str | None = None
    send_heartbeat_timeout_millis: Int = 1000
    send_message_thread_pool_nums: int = min(PROCESSORS, 4)
    send_thread_pool_queue_capacity: Int = 10000
    server_load_balancer_enable: bool = True
    short_polling_time_mills: int = 1000
    skip_pre_online: bool = False
    skip_when_ck_re_put_reach_max_times: bool = keyed("skipWhenCKRePutReachMaxTimes", False)
    slave_read_enable: bool = False
    split_metadata_size: Int = 2000
    split_registration_size: int = 800
    start_accept_send_request_time_stamp: int = 0
    store_reply_message_enable: bool = True
    subscription_expired_timeout: int = 600_000
    sync_broker_member_group_period: NotNegative = 1000
    sync_broker_metadata_period: Positive = 5000
    sync_controller_metadata_period: Positive = 10000
    trace_on: bool = True
    trace_topic_enable: bool = False
    transaction_check_interval: Positive = 30000
    transaction_check_max: Positive = 15
    transaction_metric_flush_interval: NotNegative = 10000
    transaction_op_batch_interval: NotNegative = 3000
    transaction_op_msg_max_size: Positive = 4096
    transaction_time_out: NotNegative = 6000
    transfer_msg_by_heap: bool = True
    update_name_server_addr_period: Positive = 120_000
    use_pid_cold_ctr_strategy: bool = keyed("usePIDColdCtrStrategy", True)
    use_separate_retry_queue: bool = False
    use_server_side_reset_offset: bool = True
    use_single_rocks_db_for_all_configs: bool = keyed("useSingleRocksDBForAllConfigs", False)
    use_static_subscription: bool = False
    validate_system_topic_when_update_topic: bool = True
    wait_time_mills_in_ack_queue: int = 3000
    wait_time_mills_in_admin_broker_queue: Int = 5000
    wait_time_mills_in_heartbeat_queue: int = 31000
    wait_time_mills_in_lite_pull_queue: int = 5000
    wait_time_mills_in_pull_queue: int = 5000
    wait_time_mills_in_send_queue: Int = 200
    wait_time_mills_in_transaction_queue: Int = 3000
