"""Keys of the reference that are accepted and answered here but change nothing, each with the reason a user is told."""

from __future__ import annotations

_THREADS = "requests are served by one event loop, there are no thread pools to size"
_ROCKSDB = "there is no RocksDB store"
_METRICS = "there is no OpenTelemetry exporter"
_MAPPING = "files are mapped and unmapped without this tuning"
_COLD = "there is no cold data control"
_TIMER = "timer messages are not served"
_POP = "POP consumption is not served"
_TRANSACTION = "transaction messages are not served"
_NETTY = "there is no Netty, the kernel's defaults apply"
_DLEDGER = "there is no DLedger commit log"
_COMPACTION = "compaction topics are not served"
_AUTH = "requests are not authenticated or authorized"
_LMQ = "light message queues are not served"
_COMMERCIAL = "there are no commercial statistics"
_DISPATCH = "queue and index entries are made by the append itself"
_BLOOM = "filtering needs no Bloom filter"
_LOCK = "there is one writer, no append lock to choose"
_ADDRESS_SERVER = "name server addresses come from namesrvAddr only"
_JVM = "it belongs to the Java process"
_REPLICATION = "there is no replication"

_GROUPS: dict[str, str] = {
    _THREADS: """
        ackMessageThreadPoolNums adminBrokerThreadPoolNums asyncSendEnable batchDispatchRequestThreadPoolNums
        clientManageThreadPoolNums consumerManageThreadPoolNums endTransactionThreadPoolNums heartbeatThreadPoolNums
        litePullMessageThreadPoolNums loadBalanceProcessorThreadPoolNums processReplyMessageThreadPoolNums
        pullMessageThreadPoolNums putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
        recoverThreadPoolNums recoverConcurrently sendMessageThreadPoolNums maxAsyncPutMessageRequests""",
    _ROCKSDB: """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
        configManagerVersion enableRocksDBLog indexRocksDBEnable maxRocksDBIndexQueryDays memTableFlushIntervalMs
        realTimePersistRocksDBConfig rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storeType timerRocksDBEnable timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps transRocksDBEnable useSingleRocksDBForAllConfigs""",
    _METRICS: """
        enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics
        enableRequestMetrics enableStatsMetrics enableTransactionMetrics estimateAccumulation
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
        metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort""",
    _MAPPING: """
        cleanSwapedMapInterval commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum dataReadAheadEnable
        fastFailIfNoBufferInStorePool flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval
        logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSwapEnable osPageCacheBusyTimeOutMills
        putConsumeQueueDataByFileChannel sharedByteBufferNum transferMsgByHeap transientStorePoolEnable
        transientStorePoolSize wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval disappearTimeAfterStart""",
    _COLD: """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable globalColdReadThreshold
        sampleCountThreshold sampleSteps timerColdDataCheckIntervalMs usePIDColdCtrStrategy
        accessMessageInMemoryHotRatio""",
    _TIMER: """
        appendTopicForTimerDeleteKey mappedFileSizeTimerLog timerCheckMetricsWhen timerCongestNumEachSlot
        timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
        timerGetMessageThreadNum timerInterceptDelayLevel timerMetricSmallThreshold timerPrecisionMs
        timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimelineEnable timerRecallToTimeWheelEnable
        timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs recallMessageEnable
        allowRecallWhenBrokerNotWriteable""",
    _POP: """
        ackThreadPoolQueueCapacity appendAckAsync appendCkAsync enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
        enableRetryTopicV2 enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem maxPopPollingSize
        popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog
        popFromRetryProbability popFromRetryProbabilityForPriority popInflightMessageThreshold
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        priorityOrderAsc retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveScanTime skipWhenCKRePutReachMaxTimes useSeparateRetryQueue waitTimeMillsInAckQueue""",
    _TRANSACTION: """
        endTransactionPoolQueueCapacity transactionCheckInterval transactionCheckMax transactionMetricFlushInterval
        transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut transWriteOriginTransHalfEnable
        waitTimeMillsInTransactionQueue""",
    _NETTY: """
        clientAsyncSemaphoreValue clientCallbackExecutorThreads clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
        disableCallbackExecutor disableNettyWorkerGroup enableFastChannelEventProcess enableNetWorkFlowControl
        enableReconnectForGoAway enableShutdownGracefully isScanAvailableNameSrv maxReconnectIntervalTimeSeconds
        printChannelGroups printChannelGroupsMinNum serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
        serverSelectorThreads serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
        shutdownWaitTimeSeconds socksProxyConfig useEpollNativeSelector useTLS writeBufferHighWaterMark
        writeBufferLowWaterMark""",
    _DLEDGER: """
        dLegerGroup dLegerPeers dLegerSelfId enableBatchPush enableDLegerCommitLog preferredLeaderId
        storePathDLedgerCommitLog""",
    _COMPACTION: """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        enableCompaction maxOffsetMapSize""",
    _AUTH: """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable authConfigPath authenticationEnabled
        authenticationMetadataProvider authenticationProvider authenticationStrategy authenticationWhitelist
        authorizationEnabled authorizationMetadataProvider authorizationProvider authorizationStrategy
        authorizationWhitelist clusterName configName initAuthenticationUser innerClientAuthenticationCredentials
        migrateAuthFromV1Enabled statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond
        userCacheMaxNum userCacheRefreshSecond""",
    _LMQ: "enableLmq enableLmqStats enableMultiDispatch maxLmqConsumeQueueNum",
    _COMMERCIAL: """
        accountStatsEnable accountStatsPrintZeroValues commercialBaseCount commercialSizePerMsg enableDetailStat
        enableScheduleMessageStats""",
    _DISPATCH: """
        dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread enableAsyncReput
        enableBuildConsumeQueueConcurrently enableLogConsumeQueueRepeatedlyBuildWhenRecover putMsgIndexHightWater
        readUnCommitted recheckReputOffsetFromCq searchBcqByCacheEnable duplicationEnable""",
    _BLOOM: """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap enableConsumeQueueExt expectConsumerNumUseFilter
        mappedFileSizeConsumeQueueExt maxErrorRateOfBloomFilter maxFilterMessageSize""",
    _LOCK: """
        debugLockEnable spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock
        useReentrantLockWhenPutMessage""",
    _ADDRESS_SERVER: """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
        rmqAddressServerDomain rmqAddressServerSubGroup""",
    _JVM: "highSpeedMode isolateLogEnable messageStorePlugIn rocketmqHome useStaticSubscription",
    _REPLICATION: """
        allAckInSyncStateSet asyncLearner enableAutoInSyncReplicas haFlowControlEnable haHousekeepingInterval
        haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize inSyncReplicas
        maxChecksumRange maxHaTransferByteInSecond maxSlaveResendLength minInSyncReplicas replicasPerDiskPartition
        slaveTimeout storePathBrokerIdentity storePathEpochFile syncFromLastFile syncMasterFlushOffsetWhenStartup
        totalReplicas""",
}

INERT: dict[str, str] = {key: reason for reason, keys in _GROUPS.items() for key in keys.split()}
"""Key of the reference to the reason why it has no effect here."""

OUTSIDE: frozenset[str] = frozenset(key for key in INERT if INERT[key] == _AUTH and key != "aclEnable") | {
    "rmqAddressServerDomain",
    "rmqAddressServerSubGroup",
}
"""Inert keys of the reference's other configuration classes, known but not answered by GET_BROKER_CONFIG."""
