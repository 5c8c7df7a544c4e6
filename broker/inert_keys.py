"""Keys of the reference that are accepted and answered here but change nothing, each with the reason a user is told."""

from __future__ import annotations

from understudy.remoting.netty_config import NO_EFFECT

_THREADS = "requests are served by one event loop, there are no thread pools to size"
_ROCKSDB = "there is no RocksDB store"
_MAPPING = "files are mapped and unmapped without this tuning"
_COLD = "there is no cold data control"
_TIMER = "the wheel has one reader and one writer, and is never warmed or skipped"
_POP = "pops are served without it"
_POP_KV = "check points of pops are in the revive topic, there is no service over RocksDB"
_NETTY = "there is no Netty, the kernel's defaults apply"
_DLEDGER = "there is no DLedger commit log"
_COMPACTION = "queues are compacted one after the other"
_AUTH = "every request is judged by the users and rules of that moment; docs/security.md says how they are set"
_COMMERCIAL = "there are no commercial statistics"
_DISPATCH = "queue and index entries are made by the append itself"
_BLOOM = "it follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter"
_LOCK = "there is one writer, no append lock to choose"
_ADDRESS_SERVER = "name server addresses come from namesrvAddr only"
_JVM = "it belongs to the Java process"
_CONTROLLER = "nothing depends on it, with a controller or without"
_ACTING = "members leave with the view of the name server"
_FLUSH = "asynchronous flushes are always timed"
_QUEUES = "queues and index are made durable together with the log, see flushCommitLogThoroughInterval"
_SQL = "retried messages are not filtered again"
_SLOW = "slow groups are not switched off"
_REGISTRATION = "name servers are told of every topic at once, in the form that all of them read"
_MEMBERS = "members are told of changes at once, and a group's subscriptions leave with its last member"
_KEPT = "statistics items and offsets are kept as long as their topic or group"
_RECORD = "a checksum is compared wherever a record has one, and its version follows the length of the topic"
_RETENTION = "files that may go are deleted in one step, queue files together with the log they point into"
_RECOVERY = "a start recovers from the last position that was noted as safe"
_SCHEDULE = "due messages are delivered one after the other"
_READ = "maxFilterMessageSize and maxTransfer... bound a read"
_INDEX = "messageIndexEnable alone decides about the index"
_OUTGOING = "connections to other servers have fixed limits"
_CONTAINER = "the broker knows by itself where it runs"

_GROUPS: dict[str, str] = {
    _SQL: "filterSupportRetry",
    _SLOW: "consumerFallbehindThreshold disableConsumeIfConsumerReadSlowly diskFallRecorded",
    _REGISTRATION: "enableSplitRegistration splitRegistrationSize",
    _MEMBERS: "realTimeNotifyConsumerChange subscriptionExpiredTimeout",
    _KEPT: "enableCleanExpiredOffset flushConsumerOffsetHistoryInterval maxStatsIdleTimeInMinutes",
    _RECORD: "autoMessageVersionOnTopicLen forceVerifyPropCRC maxTopicLength",
    _RETENTION: """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval deleteCommitLogFilesInterval
        deleteConsumeQueueFilesInterval logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum""",
    _RECOVERY: """
        commitLogRecoverMaxNum enableAcceleratedRecovery enableRunningFlagsInFlush flushConsumeQueueLeastPages
        maxRecoveryCommitlogFiles""",
    _SCHEDULE: """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked""",
    _READ: "maxConsumeQueueScan pullBatchMaxMessageCount travelCqFileNumWhenGetMessage",
    _INDEX: "indexFileReadEnable indexFileWriteEnable messageIndexSafe",
    _OUTGOING: "channelNotActiveInterval clientChannelMaxIdleTimeSeconds connectTimeoutMillis",
    _CONTAINER: "isBrokerContainer isInBrokerContainer",
    _THREADS: """
        ackMessageThreadPoolNums asyncSendEnable batchDispatchRequestThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
        consumerManageThreadPoolNums heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        maxAsyncPutMessageRequests
        pullMessageThreadPoolNums putMessageFutureThreadPoolNums putMessageTimeout putThreadPoolQueueCapacity
        queryMessageThreadPoolNums queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums
        sendMessageThreadPoolNums waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
        waitTimeMillsInPullQueue""",
    _ROCKSDB: """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        configManagerVersion enableRocksDBLog indexRocksDBEnable maxRocksDBIndexQueryDays memTableFlushIntervalMs
        realTimePersistRocksDBConfig rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storeType timerRocksDBEnable timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps transRocksDBEnable transWriteOriginTransHalfEnable
        useSingleRocksDBForAllConfigs""",
    _MAPPING: """
        cleanSwapedMapInterval commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum dataReadAheadEnable
        destroyMapedFileIntervalForcibly disappearTimeAfterStart fastFailIfNoBufferInStorePool
        flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable osPageCacheBusyTimeOutMills
        putConsumeQueueDataByFileChannel redeleteHangedFileInterval sharedByteBufferNum transferMsgByHeap
        transientStorePoolEnable transientStorePoolSize wakeCommitWhenPutMessage wakeFlushWhenPutMessage
        warmMapedFileEnable writeWithoutMmap""",
    _COLD: """
        accessMessageInMemoryHotRatio cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable
        coldDataScanEnable globalColdReadThreshold sampleCountThreshold sampleSteps timerColdDataCheckIntervalMs
        usePIDColdCtrStrategy""",
    _TIMER: """
        timerCheckMetricsWhen timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
        timerGetMessageThreadNum timerInterceptDelayLevel timerMetricSmallThreshold timerProgressLogIntervalMs
        timerPutMessageThreadNum timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerSkipUnknownError
        timerWarmEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs""",
    _POP: """
        ackThreadPoolQueueCapacity appendAckAsync appendCkAsync enableNotifyBeforePopCalculateLag enablePopLog
        enableSkipLongAwaitingAck popConsumerFSServiceInit popFromRetryProbabilityForPriority
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize priorityOrderAsc
        reviveAckWaitMs reviveMaxSlow reviveScanTime skipWhenCKRePutReachMaxTimes useSeparateRetryQueue
        waitTimeMillsInAckQueue""",
    _POP_KV: """
        popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popReviveConcurrency
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead""",
    _NETTY: """
        clientAsyncSemaphoreValue clientCallbackExecutorThreads clientCloseSocketIfTimeout
        clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        clientWorkerThreads disableCallbackExecutor disableNettyWorkerGroup enableFastChannelEventProcess
        enableNetWorkFlowControl enableReconnectForGoAway isScanAvailableNameSrv maxReconnectIntervalTimeSeconds
        printChannelGroups printChannelGroupsMinNum socksProxyConfig useTLS""",
    _DLEDGER: """
        dLegerGroup dLegerPeers dLegerSelfId enableBatchPush enableDLegerCommitLog preferredLeaderId
        storePathDLedgerCommitLog""",
    _COMPACTION: "compactionThreadNum",
    _AUTH: """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable authConfigPath configName
        migrateAuthFromV1Enabled statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond
        userCacheMaxNum userCacheRefreshSecond""",
    _COMMERCIAL: """
        accountStatsEnable accountStatsPrintZeroValues commercialBaseCount commercialSizePerMsg enableDetailStat
        enableScheduleMessageStats""",
    _DISPATCH: """
        dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread duplicationEnable enableAsyncReput
        enableBuildConsumeQueueConcurrently enableLogConsumeQueueRepeatedlyBuildWhenRecover putMsgIndexHightWater
        readUnCommitted recheckReputOffsetFromCq searchBcqByCacheEnable""",
    _BLOOM: "bitMapLengthConsumeQueueExt",
    _LOCK: """
        debugLockEnable spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock
        useReentrantLockWhenPutMessage""",
    _ADDRESS_SERVER: """
        fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval rmqAddressServerDomain rmqAddressServerSubGroup""",
    _JVM: "highSpeedMode isolateLogEnable messageStorePlugIn rocketmqHome useStaticSubscription",
    _CONTROLLER: "maxChecksumRange maxSlaveResendLength replicasPerDiskPartition",
    _ACTING: "cleanOfflineBrokerInterval",
    _FLUSH: "flushCommitLogTimed",
    _QUEUES: "flushConsumeQueueThoroughInterval flushIntervalConsumeQueue",
}

INERT: dict[str, str] = {key: reason for reason, keys in _GROUPS.items() for key in keys.split()} | NO_EFFECT
"""Key of the reference to the reason why it has no effect here."""

OUTSIDE: frozenset[str] = frozenset(key for key in INERT if INERT[key] == _AUTH and key != "aclEnable") | {
    "rmqAddressServerDomain",
    "rmqAddressServerSubGroup",
}
"""Inert keys of the reference's other configuration classes, known but not answered by GET_BROKER_CONFIG."""
