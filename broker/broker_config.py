"""The keys of BrokerConfig, as they stand in a user's ``broker.conf``; a plain ``int`` has 64 bits, as a ``long``."""

import attrs

from understudy.broker.config_values import (
    BrokerId,
    Controllers,
    Missed,
    NameServers,
    NotNegative,
    Permission,
    Positive,
    QueueCount,
    RequestMode,
    ReviveQueueCount,
)
from understudy.broker.inert_settings import PROCESSORS, InertBrokerConfig
from understudy.runtime.configuration import Int, Port, keyed


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class BrokerConfig(InertBrokerConfig):
    """Keys of one broker (BrokerConfig.java and BrokerIdentity.java of 5.4.0), with the reference's defaults.

    Attributes:
        admin_broker_thread_pool_nums: administration requests at work at the same time, at most.
        admin_broker_thread_pool_queue_capacity: administration requests that wait for their turn, at most; more are
            refused as busy.
        allow_recall_when_broker_not_writeable: timer messages can be recalled even while ``brokerPermission`` lets
            nobody write.
        auto_create_subscription_group: a consumer group is made when it is first used; with false an administrator
            makes it.
        auto_create_topic_enable: a send to an unknown topic makes it, after the template ``TBW102``, which is there if
            this was true at the start.
        auto_delete_unused_stats: the statistics of a group go when the group is deleted.
        broadcast_offset_expire_max_second: seconds of silence after which a connected broadcasting member's place is
            forgotten.
        broadcast_offset_expire_second: seconds of silence after which the place of one that is not connected is
            forgotten.
        broker_cluster_name: the cluster that it registers in; its system topics for replies and pops are named after
            it.
        broker_config_path: the file that changes over the network are written to; empty: the one that the broker was
            started with.
        broker_election_priority: where controllers lead: of replicas whose logs are equally long, the smallest number
            becomes master.
        broker_fast_failure_enable: sends that waited too long for their turn are refused as busy, see
            ``waitTimeMillsInSendQueue``.
        broker_heartbeat_interval: milliseconds between heartbeats, to name servers (``enableSlaveActingMaster``) or
            controllers.
        broker_id: above 0 and unlike its fellows' for a slave; a master has 0 whatever stands here; unused where
            controllers lead.
        broker_ip1: the address, or a host name, that clients are told; it is part of message ids.
        broker_ip2: the address of the port for replication that slaves are told; it does not follow ``brokerIP1``.
        broker_name: the name that a master and its slaves share, in routes, message queues and metrics.
        broker_not_active_timeout_millis: with ``enableSlaveActingMaster``: milliseconds of silence until name servers
            drop it, and a slave may act.
        broker_permission: what routes let clients do: 4 read, 2 write, 6 both; reads without 4 are refused, too.
        broker_topic_enable: the topic that is named like the broker can be read and written.
        channel_expired_timeout: milliseconds without a heartbeat after which the connection of a consumer is closed.
        check_sync_state_set_period: where controllers lead: milliseconds between two looks of a master at who is in
            sync.
        clear_retry_topic_when_delete_topic: who deletes a topic deletes the retry topics of its pops, too.
        cluster_topic_enable: the topic that is named like the cluster can be read and written.
        compatible_with_old_name_srv: asks name servers in the ways of before 5.0 who is in the group; with false by
            requests of 5.0.
        compressed_register: registrations travel compressed, which pays with thousands of topics.
        config_black_list: keys, divided by ``;``, that nobody may change over the network, besides those that nobody
            ever may.
        consumer_offset_update_version_step: commits after which the table of offsets has another version, as other
            brokers see it.
        controller_addr: host:port of the controllers, divided by ``;``; needed with ``enableControllerMode``.
        controller_heart_beat_timeout_mills: milliseconds of silence after which controllers take this broker for dead,
            ten minutes at most; a master trusts their word for less.
        default_message_request_mode: PULL or POP, for groups that have no mode of their own and ask the broker for
            their queues.
        default_pop_share_queue_num: with ``defaultMessageRequestMode=POP``: of how many fellows a member pops the
            queues, too; 0 or less: of all.
        default_topic_queue_nums: queues of ``TBW102``, the most that a topic gets which a send makes.
        delay_offset_update_version_step: updates after which the progress of delay levels has another version.
        enable_broadcast_offset_store: remembers where broadcasting members read, for those that come by a proxy or
            leave it.
        enable_calc_filter_bit_map: notes of each message which SQL92 conditions it meets; needs
            ``enableConsumeQueueExt``.
        enable_connection_metrics: shows the metrics of connections, and of what waits for peers.
        enable_controller_mode: controllers say who is master; ``controllerAddr`` is needed, ``brokerRole`` does not
            count.
        enable_create_sys_group: groups of the system are made on first use even without
            ``autoCreateSubscriptionGroup``.
        enable_lag_and_dlq_metrics: shows the metrics of lag, messages in flight and dead letters.
        enable_lmq_stats: with ``enableLmq``: what is read of each light queue is counted by itself, not for all
            together.
        enable_message_store_metrics: shows the metrics of the store, its disk, and timer messages.
        enable_mixed_message_type: topics may be given the type MIXED, and take messages of every type then.
        enable_notify_after_pop_order_lock_release: a pop in order that waits looks again as soon as its queue is free,
            not only at its end.
        enable_pop_batch_ack: with ``enablePopBufferMerge``: what was acknowledged of a check point is one entry, not
            one each.
        enable_pop_buffer_merge: check points of pops wait in memory; one that is acknowledged in time is never written.
        enable_pop_message_threshold: no more is popped of a queue of which ``popInflightMessageThreshold`` messages are
            out.
        enable_pop_metrics: shows the metrics of pops and the revive topic.
        enable_property_filter: consumers may filter by SQL92 conditions; with false such subscriptions are refused.
        enable_register_producer: producers are known by their heartbeats, without which nobody is asked about half
            messages.
        enable_remote_escape: a slave that acts may give due messages to masters of other machines, too.
        enable_remoting_metrics: shows how long requests take, which costs some 4 % of a busy broker's time.
        enable_request_metrics: shows the metrics of messages that come in and go out, and of topics and groups that are
            made.
        enable_retry_topic_v2: retry topics of pops join group and topic by ``+``, which no name has, instead of ``_``.
        enable_single_topic_register: changed topics are told to name servers one by one, else in one registration.
        enable_slave_acting_master: a slave acts for a master that is away; the same at every member of the group.
        enable_split_metadata: who can read lists of topics and groups page by page gets them so, else whole.
        enable_stats_metrics: shows the metrics of the broker's state: topics, groups, permission, services.
        enable_transaction_metrics: shows the metrics of transactions.
        end_transaction_pool_queue_capacity: decisions on half messages that wait, at most; more are refused as busy.
        end_transaction_thread_pool_nums: decisions on half messages at work at the same time, at most.
        estimate_accumulation: metrics of lag count messages whose tags the group wants; with false all of them.
        expect_consumer_num_use_filter: how many groups with conditions the bits of a message are made for.
        fetch_controller_addr_by_dns_lookup: host names in ``controllerAddr`` stand for all their machines, asked every
            2 minutes.
        fetch_name_srv_addr_by_dns_lookup: host names in ``namesrvAddr`` stand for all their machines.
        filter_data_clean_time_span: milliseconds for which the condition of a group that left is kept, with its bits.
        flush_consumer_offset_interval: milliseconds until committed offsets are saved; a crash loses what is younger.
        force_register: tells name servers everything each time; with false only those that have another version.
        forward_timeout: milliseconds that another broker has for its answer about older messages of a static topic.
        init_pop_offset_by_check_msg_in_mem: pops from the end give a new group a whole queue, whose first message is
            still there and near the end of the log, else its last message.
        lite_pull_message_enable: lite pull consumers may pull.
        load_balance_poll_name_server_interval: milliseconds for which the route of a topic counts when queues are
            assigned.
        load_balance_processor_thread_pool_nums: assignments of queues at work at the same time, at most.
        load_balance_thread_pool_queue_capacity: assignments of queues that wait, at most; more are refused as busy.
        lock_in_strict_mode: a queue lock needs a majority of ``totalReplicas``, so that it survives the death of its
            broker.
        long_polling_enable: a pull that finds nothing waits as long as its client says; else ``shortPollingTimeMills``.
        max_error_rate_of_bloom_filter: percent of unwanted messages that the bits may let pass; less makes the bits
            longer.
        max_pop_polling_size: pops that wait for messages, at most; more are answered at once.
        msg_trace_topic_name: the topic that ``traceTopicEnable`` makes.
        namesrv_addr: name servers to register with, host:port, divided by ``;``; without one nobody finds the broker.
        notify_consumer_ids_changed_enable: members of a group are told at once that one came or left.
        pop_ck_max_buffer_size: with ``enablePopBufferMerge``: check points that wait, at most; more are written at
            once.
        pop_ck_offset_max_queue_size: with ``enablePopBufferMerge``: pops of one queue that wait, at most.
        pop_ck_stay_buffer_time: with ``enablePopBufferMerge``: milliseconds that a check point waits, at most.
        pop_ck_stay_buffer_time_out: with ``enablePopBufferMerge``: milliseconds before its time at which it is written
            anyway.
        pop_from_retry_probability: percent of pops that read the retry topic first; the others read it last.
        pop_inflight_message_threshold: with ``enablePopMessageThreshold``: popped messages of a queue that may be out.
        pop_polling_size: pops of one group that wait at one queue, at most; more are answered at once.
        pop_response_return_actual_retry_topic: popped retries show their retry topic, not the topic that was asked for.
        pre_online_max_wait_millis: ours; milliseconds that a master which comes back waits for a slave that does not do
            its part.
        process_reply_message_thread_pool_nums: replies at work at the same time, at most.
        pull_thread_pool_queue_capacity: pulls that wait for messages, at most; more are answered at once.
        recall_message_enable: senders may take back timer messages.
        region_id: told to senders and with each message, for traces.
        register_broker_timeout_mills: milliseconds that a name server has for its answer to a registration.
        register_name_server_period: milliseconds between registrations, 10000 to 60000; what is outside counts as the
            nearer one.
        reject_pull_consumer_enable: heartbeats of consumers that pull by themselves enter nobody into a group.
        reject_transaction_message: half messages are refused.
        reply_thread_pool_queue_capacity: replies that wait, at most; more are refused as busy.
        retrieve_message_from_pop_retry_topic_v1: with ``enableRetryTopicV2``: half of the pops read retry topics of the
            old form.
        revive_interval: milliseconds between looks for popped messages that nobody acknowledged in time.
        revive_queue_num: queues of the revive topic, among which check points of pops are divided.
        send_heartbeat_timeout_millis: milliseconds that a name server or a controller has for its answer to a
            heartbeat.
        send_thread_pool_queue_capacity: sends that wait for disk or copies, at most; more are refused as busy.
        server_load_balancer_enable: queues are divided among members that ask the broker; with false each gets all of
            them.
        short_polling_time_mills: milliseconds that a pull waits with ``longPollingEnable=false``.
        skip_pre_online: a broker that was away comes back at once; what its slave committed is lost, and some comes
            twice.
        slave_read_enable: a slave serves reads, and a master sends consumers that are far behind to one.
        split_metadata_size: topics or groups in one page, see ``enableSplitMetadata``.
        start_accept_send_request_time_stamp: wall time in milliseconds since 1970, before which sends are refused.
        store_reply_message_enable: replies are stored, too, besides being pushed to who asked.
        sync_broker_member_group_period: with ``enableSlaveActingMaster``: milliseconds between questions who is in the
            group.
        sync_broker_metadata_period: where controllers lead: milliseconds between questions who is master.
        sync_controller_metadata_period: where controllers lead: milliseconds between questions who leads the
            controllers.
        trace_on: tells clients that what becomes of their messages is to be traced.
        trace_topic_enable: makes the topic ``msgTraceTopicName`` for traces.
        transaction_check_interval: milliseconds between rounds in which producers are asked about undecided half
            messages.
        transaction_check_max: how often a producer is asked about a half message; then that goes to
            ``TRANS_CHECK_MAX_TIME_TOPIC``.
        transaction_metric_flush_interval: milliseconds until changed counts of half messages are saved.
        transaction_op_batch_interval: milliseconds for which decisions are gathered into one op message; progress of
            transactions moves as often.
        transaction_op_msg_max_size: bytes of decisions after which an op message is written at once.
        transaction_time_out: milliseconds before a half message is first asked about, unless it says otherwise.
        update_name_server_addr_period: with ``fetchNameSrvAddrByDnsLookup``: milliseconds between look-ups.
        use_server_side_reset_offset: a reset moves the group at this broker, whether its members run or not; else its
            members are told.
        validate_system_topic_when_update_topic: topics of the system can be neither changed nor deleted.
        wait_time_mills_in_admin_broker_queue: milliseconds that an administration request may wait; an older one is
            refused as busy.
        wait_time_mills_in_send_queue: milliseconds that sends may wait behind others; while that lasts, those that wait
            longer are refused as busy.
        wait_time_mills_in_transaction_queue: milliseconds that a decision may wait; an older one is refused as busy.
    """

    admin_broker_thread_pool_nums: Int = 16
    admin_broker_thread_pool_queue_capacity: Int = 10000
    allow_recall_when_broker_not_writeable: bool = True
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
    channel_expired_timeout: int = 120_000
    check_sync_state_set_period: Positive = 5000
    clear_retry_topic_when_delete_topic: bool = True
    cluster_topic_enable: bool = True
    compatible_with_old_name_srv: bool = True
    compressed_register: bool = False
    config_black_list: str = "configBlackList;brokerConfigPath"
    consumer_offset_update_version_step: int = 500
    controller_addr: Controllers = ""
    controller_heart_beat_timeout_mills: Missed = 10000
    default_message_request_mode: RequestMode = "PULL"
    default_pop_share_queue_num: int = -1
    default_topic_queue_nums: QueueCount = 8
    delay_offset_update_version_step: int = 200
    enable_broadcast_offset_store: bool = True
    enable_calc_filter_bit_map: bool = False
    enable_connection_metrics: bool = True
    enable_controller_mode: bool = False
    enable_create_sys_group: bool = True
    enable_lag_and_dlq_metrics: bool = True
    enable_lmq_stats: bool = False
    enable_message_store_metrics: bool = True
    enable_mixed_message_type: bool = False
    enable_notify_after_pop_order_lock_release: bool = True
    enable_pop_batch_ack: bool = False
    enable_pop_buffer_merge: bool = False
    enable_pop_message_threshold: bool = False
    enable_pop_metrics: bool = True
    enable_property_filter: bool = False
    enable_register_producer: bool = True
    enable_remote_escape: bool = False
    enable_remoting_metrics: bool = True
    enable_request_metrics: bool = True
    enable_retry_topic_v2: bool = False
    enable_single_topic_register: bool = False
    enable_slave_acting_master: bool = False
    enable_split_metadata: bool = True
    enable_stats_metrics: bool = True
    enable_transaction_metrics: bool = True
    end_transaction_pool_queue_capacity: Int = 100_000
    end_transaction_thread_pool_nums: Int = 8 + PROCESSORS * 2
    estimate_accumulation: bool = True
    expect_consumer_num_use_filter: int = 32
    fetch_controller_addr_by_dns_lookup: bool = False
    fetch_name_srv_addr_by_dns_lookup: bool = False
    filter_data_clean_time_span: int = 86_400_000
    flush_consumer_offset_interval: Positive = 5000
    force_register: bool = True
    forward_timeout: int = 3000
    init_pop_offset_by_check_msg_in_mem: bool = True
    listen_port: Port = 6888
    lite_pull_message_enable: bool = True
    load_balance_poll_name_server_interval: int = 30000
    load_balance_processor_thread_pool_nums: Int = 32
    load_balance_thread_pool_queue_capacity: Int = 100_000
    lock_in_strict_mode: bool = False
    long_polling_enable: bool = True
    max_error_rate_of_bloom_filter: int = 20
    max_pop_polling_size: int = 100_000
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
    pop_from_retry_probability: int = 20
    pop_inflight_message_threshold: int = 10000
    pop_polling_size: int = 1024
    pop_response_return_actual_retry_topic: bool = False
    pre_online_max_wait_millis: NotNegative = 60_000
    process_reply_message_thread_pool_nums: Int = 16 + PROCESSORS * 2
    pull_thread_pool_queue_capacity: Int = 100_000
    recall_message_enable: bool = False
    region_id: str = "DefaultRegion"
    register_broker_timeout_mills: Int = 24000
    register_name_server_period: Positive = 30000
    reject_pull_consumer_enable: bool = False
    reject_transaction_message: bool = False
    reply_thread_pool_queue_capacity: Int = 10000
    retrieve_message_from_pop_retry_topic_v1: bool = True
    revive_interval: int = 1000
    revive_queue_num: ReviveQueueCount = 8
    send_heartbeat_timeout_millis: Int = 1000
    send_thread_pool_queue_capacity: Int = 10000
    server_load_balancer_enable: bool = True
    short_polling_time_mills: int = 1000
    skip_pre_online: bool = False
    slave_read_enable: bool = False
    split_metadata_size: Int = 2000
    start_accept_send_request_time_stamp: int = 0
    store_reply_message_enable: bool = True
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
    update_name_server_addr_period: Positive = 120_000
    use_server_side_reset_offset: bool = True
    validate_system_topic_when_update_topic: bool = True
    wait_time_mills_in_admin_broker_queue: Int = 5000
    wait_time_mills_in_send_queue: Int = 200
    wait_time_mills_in_transaction_queue: Int = 3000
