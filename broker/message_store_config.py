"""The keys of MessageStoreConfig, as they stand in a user's ``broker.conf``; a plain ``int`` has 64 bits."""

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
from understudy.broker.inert_settings import InertMessageStoreConfig
from understudy.remoting.access import AdminAddresses
from understudy.runtime.configuration import Int, Port, keyed


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class MessageStoreConfig(InertMessageStoreConfig):
    """Keys of one message store (MessageStoreConfig.java of 5.4.0), with the reference's defaults.

    Attributes:
        access_message_in_memory_max_ratio: percent of the machine's memory; what lies so near the log's end is read in
            the larger pieces.
        all_ack_in_sync_state_set: where controllers lead: sends and readers wait for the whole sync-state set, or
            for the disk of a lone master.
        append_topic_for_timer_delete_key: recalls are stored with topic and unique key, else with the unique key alone;
            both work here.
        async_learner: where controllers lead: this slave copies and is never counted or elected.
        broker_role: ASYNC_MASTER; SYNC_MASTER, whose sends wait for ``inSyncReplicas`` copies; or SLAVE, which needs
            ``brokerId``.
        check_crc_on_recover: a start compares the checksums of bodies; what is not compared is scrubbed later.
        clean_file_forcibly_enable: above ``diskSpaceCleanForciblyRatio`` files of any age are deleted, else old ones
            only.
        clean_resource_interval: milliseconds between looks at the age of files and the space of the disk.
        compaction_cq_mapped_file_size: bytes of one index file of a compaction log, rounded to whole entries of 46
            bytes.
        compaction_mapped_file_size: bytes of one file of a compaction log, rounded to a multiple of its index file.
        compaction_schedule_internal: milliseconds between rounds of compaction.
        default_query_max_num: messages that a query by unique key returns, at most.
        delete_file_batch_max: files of the log deleted in one look, at most.
        delete_when: hours of the day, local time, in which files older than ``fileReservedTime`` are deleted.
        disk_max_used_space_ratio: percent of the disk (10 to 95) above which old files are deleted at any hour.
        disk_space_clean_forcibly_ratio: percent of the disk (30 to 85) above which files may go whatever their age.
        disk_space_warning_level_ratio: percent of the disk (35 to 90) above which sends are refused.
        enable_auto_in_sync_replicas: SYNC_MASTER with ``enableSlaveActingMaster``: fewer copies will do while fewer are
            in sync; nothing where controllers lead.
        enable_compaction: topics with ``cleanup.policy=COMPACTION`` are compacted; with false they are ordinary ones.
        enable_consume_queue_ext: entries of queues can hold more, which ``enableCalcFilterBitMap`` needs.
        enable_lmq: with ``enableMultiDispatch``: messages enter the light queues (LMQ) that they name.
        enable_multi_dispatch: a message stands in every queue that its property ``INNER_MULTI_DISPATCH`` names, too.
        enabled_append_prop_crc: each message gets a checksum over its whole record, not its body alone.
        file_reserved_time: hours after which a file of the log may go, and half messages that nobody decided are given
            up.
        flush_commit_log_least_pages: pages of 4 KiB that wait before an ASYNC_FLUSH broker flushes them.
        flush_commit_log_thorough_interval: milliseconds after which an ASYNC_FLUSH broker flushes whatever waits; a
            loss of power takes as much.
        flush_delay_offset_interval: milliseconds until the changed progress of delay levels is saved.
        flush_disk_type: SYNC_FLUSH: a send is answered, and read, once the disk has it; ASYNC_FLUSH: before.
        flush_interval_commit_log: milliseconds between looks of an ASYNC_FLUSH broker whether enough waits for a flush.
        ha_flow_control_enable: bounds what a slave gets in a second, by ``maxHaTransferByteInSecond``.
        ha_housekeeping_interval: milliseconds of silence after which master or slave ends the connection for
            replication.
        ha_listen_port: the port that slaves copy from; 0 is the one above ``listenPort``.
        ha_master_address: host:port that this slave copies from; without it name servers say where; unused where
            controllers lead.
        ha_max_gap_not_in_sync: bytes that a slave may be behind and be counted as in sync.
        ha_max_time_slave_not_catchup: where controllers lead: milliseconds behind after which a slave leaves the
            sync-state set.
        ha_registered_slaves_only: ours; where controllers lead: only hosts of registered replicas may copy.
        ha_send_heartbeat_interval: milliseconds without traffic after which master or slave says that it is there.
        ha_slave_addresses: ours; only these addresses may copy from this master.
        ha_transfer_batch_size: bytes of the log that a slave gets in one piece, at most.
        ha_transfer_whole_log: ours; an empty slave gets the whole log, else the last file only; unused where
            controllers lead.
        in_sync_replicas: copies, the master's included, that a send to a SYNC_MASTER waits for.
        mapped_file_size_commit_log: bytes of one file of the log.
        mapped_file_size_consume_queue: bytes of one file of a queue, 20 for each message.
        mapped_file_size_consume_queue_ext: bytes of one file of what ``enableConsumeQueueExt`` adds.
        mapped_file_size_timer_log: bytes of one file of the timer's log.
        mapper_file_size_batch_consume_queue: bytes of one file of a batch queue, 46 for each batch.
        max_filter_message_size: bytes of a queue's entries, 20 for each message, that one read with a filter looks at.
        max_ha_transfer_byte_in_second: with ``haFlowControlEnable``: bytes that each slave gets in a second.
        max_hash_slot_num: hash slots of one index file, 4 bytes each.
        max_index_num: keys in one index file, 20 bytes each.
        max_lmq_consume_queue_num: light queues, at most; a message that names a new one beyond them is refused.
        max_message_size: bytes of a body, at most; a longer one is refused.
        max_msgs_num_batch: messages that a query by key returns, at most.
        max_offset_map_size: bytes of memory for the keys of one round of compaction; more keys take more rounds.
        max_transfer_bytes_on_message_in_disk: bytes that one read far from the log's end
            (``accessMessageInMemoryMaxRatio``) returns, at most.
        max_transfer_bytes_on_message_in_memory: bytes that one read near the log's end
            (``accessMessageInMemoryMaxRatio``) returns, at most.
        max_transfer_count_on_message_in_disk: messages that one read far from the log's end returns, at most.
        max_transfer_count_on_message_in_memory: messages that one read near the log's end returns, at most.
        message_delay_level: the wait of each delay level, the first one first, in s, m, h or d.
        message_index_enable: messages can be found by key and unique key.
        min_in_sync_replicas: copies below which sends are refused, where controllers lead or
            ``enableAutoInSyncReplicas`` is true.
        offset_check_in_slave: a slave itself answers a consumer that reads where it has nothing; else the master is to
            be asked.
        read_only_commit_log_store_paths: folders, divided by commas, whose files of the log are read and never added
            to.
        scrub_bytes_per_second: ours; bytes per second of old messages compared with their checksums after a start; 0:
            none.
        slave_timeout: milliseconds that a send to a SYNC_MASTER waits for its copies; then it is answered 12.
        store_path_broker_identity: file of the id that controllers gave; without it ``brokerIdentity`` below
            ``storePathRootDir``.
        store_path_commit_log: folders of the log, divided by commas; new files go to each in turn.
        store_path_epoch_file: file of the masters' epochs, where controllers lead; without it below
            ``storePathRootDir``.
        store_path_root_dir: the folder of queues, index, tables and, without ``storePathCommitLog``, of the log.
        sync_flush_timeout: milliseconds that a send waits for the disk with SYNC_FLUSH; then it is answered 10.
        sync_from_last_file: where controllers lead: this slave, when empty, gets the last file of the log only.
        sync_master_flush_offset_when_startup: accepted, has no effect here: a slave notes how far its master's disk is,
            and nothing depends on it.
        timer_congest_num_each_slot: messages for one slot above which some more are refused; from twice as many on,
            all.
        timer_flush_interval_ms: milliseconds between flushes of the timer's files.
        timer_max_delay_sec: seconds ahead that a timer message may ask for, and for which popped messages may be
            hidden.
        timer_precision_ms: milliseconds of a slot: 100, 200, 500 or 1000; another one counts as the next shorter.
        timer_roll_window_slot: slots ahead that a message may wait at once; one for later is put in again on its way.
        timer_stop_dequeue: no timer message is delivered as long as this is true.
        timer_stop_enqueue: timer messages are stored and wait, but enter no slot as long as this is true.
        timer_wheel_enable: serves messages for any time and pops; without it both are refused.
        total_replicas: members of the group: strict locks need a majority, and above 1 a first start asks who else is
            there.
    """

    access_message_in_memory_max_ratio: Int = 40
    all_ack_in_sync_state_set: bool = False
    append_topic_for_timer_delete_key: bool = False
    async_learner: bool = False
    broker_role: Role = "ASYNC_MASTER"
    check_crc_on_recover: bool = keyed("checkCRCOnRecover", True)
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: NotNegative = 10000
    compaction_cq_mapped_file_size: CompactionFileBytes = 10_485_760
    compaction_mapped_file_size: CompactionFileBytes = 104_857_600
    compaction_schedule_internal: Positive = 900_000
    default_query_max_num: Int = 32
    delete_file_batch_max: Int = 10
    delete_when: Hours = "04"
    disk_max_used_space_ratio: Int = 75
    disk_space_clean_forcibly_ratio: Int = 85
    disk_space_warning_level_ratio: Int = 90
    enable_auto_in_sync_replicas: bool = False
    enable_compaction: bool = True
    enable_consume_queue_ext: bool = False
    enabled_append_prop_crc: bool = keyed("enabledAppendPropCRC", False)
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    file_reserved_time: NotNegative = 72
    flush_commit_log_least_pages: Int = 4
    flush_commit_log_thorough_interval: Int = 10000
    flush_delay_offset_interval: NotNegativeLong = 10000
    flush_disk_type: FlushType = "ASYNC_FLUSH"
    flush_interval_commit_log: NotNegative = 500
    ha_flow_control_enable: bool = False
    ha_housekeeping_interval: NotNegative = 20000
    ha_listen_port: Port = 10912
    ha_master_address: str | None = None
    ha_max_gap_not_in_sync: Int = 268_435_456
    ha_max_time_slave_not_catchup: int = 15000
    ha_registered_slaves_only: bool = False
    ha_send_heartbeat_interval: NotNegative = 5000
    ha_slave_addresses: AdminAddresses = None
    ha_transfer_batch_size: Int = 32768
    ha_transfer_whole_log: bool = False
    in_sync_replicas: Int = 1
    mapped_file_size_commit_log: LogFileBytes = 1_073_741_824
    mapped_file_size_consume_queue: QueueFileBytes = 6_000_000
    mapped_file_size_consume_queue_ext: ExtensionFileBytes = 50_331_648
    mapped_file_size_timer_log: int = 104_857_600
    mapper_file_size_batch_consume_queue: Int = 13_800_000
    max_filter_message_size: Int = 16000
    max_hash_slot_num: Positive = 5_000_000
    max_ha_transfer_byte_in_second: int = 104_857_600
    max_index_num: IndexEntries = 20_000_000
    max_lmq_consume_queue_num: NotNegative = 20000
    max_message_size: Positive = 4_194_304
    max_msgs_num_batch: Int = 64
    max_offset_map_size: NotNegative = 104_857_600
    max_transfer_bytes_on_message_in_disk: Int = 65536
    max_transfer_bytes_on_message_in_memory: Int = 262_144
    max_transfer_count_on_message_in_disk: Int = 8
    max_transfer_count_on_message_in_memory: Int = 32
    message_delay_level: DelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    message_index_enable: bool = True
    min_in_sync_replicas: Int = 1
    offset_check_in_slave: bool = False
    read_only_commit_log_store_paths: str | None = None
    scrub_bytes_per_second: NotNegative = 8_388_608
    slave_timeout: Int = 3000
    store_path_broker_identity: str | None = None
    store_path_commit_log: str | None = None
    store_path_epoch_file: str | None = None
    store_path_root_dir: Folder = "store"
    sync_flush_timeout: Positive = 5000
    sync_from_last_file: bool = False
    sync_master_flush_offset_when_startup: bool = False
    timer_congest_num_each_slot: int = 2_147_483_647
    timer_flush_interval_ms: int = 1000
    timer_max_delay_sec: Int = 259_200
    timer_precision_ms: int = 1000
    timer_roll_window_slot: int = 172_800
    timer_stop_dequeue: bool = False
    timer_stop_enqueue: bool = False
    timer_wheel_enable: bool = True
    total_replicas: Int = 1
