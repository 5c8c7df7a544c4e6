"""The keys of MessageStoreConfig, as they stand in a user's ``broker.conf``.

A plain ``int`` has 64 bits, as the reference's ``long``; so has one without an effect here, of which nothing is asked.
"""

import attrs

from understudy.broker.config_values import (
    DelayLevels,
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
from understudy.runtime.configuration import Int, Port


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class MessageStoreConfig:
    """Keys of one message store (MessageStoreConfig.java of 5.4.0), with the reference's defaults."""

    accessMessageInMemoryHotRatio: int = 26
    accessMessageInMemoryMaxRatio: Int = 40
    allAckInSyncStateSet: bool = False
    appendTopicForTimerDeleteKey: bool = False
    asyncLearner: bool = False
    autoMessageVersionOnTopicLen: bool = True
    batchDispatchRequestThreadPoolNums: int = 16
    bitMapLengthConsumeQueueExt: int = 64
    bottomMostCompressionTypeForConsumeQueueStore: str = "zstd"
    brokerRole: Role = "ASYNC_MASTER"
    checkCRCOnRecover: bool = True
    cleanFileForciblyEnable: bool = True
    cleanResourceInterval: NotNegative = 10000
    cleanRocksDBDirtyCQIntervalMin: int = 60
    cleanSwapedMapInterval: int = 300_000
    coldDataFlowControlEnable: bool = False
    coldDataScanEnable: bool = False
    combineAssignOffsetCQType: str = "default"
    combineCQEnableCheckSelf: bool = False
    combineCQLoadingCQTypes: str = "default;defaultRocksDB"
    combineCQMaxExtraSearchCommitLogFiles: int = 3
    combineCQPreferCQType: str = "default"
    commitCommitLogLeastPages: int = 4
    commitCommitLogThoroughInterval: int = 200
    commitIntervalCommitLog: int = 200
    commitLogForceSwapMapInterval: int = 43_200_000
    commitLogRecoverMaxNum: int = 10
    commitLogSwapMapInterval: int = 3_600_000
    commitLogSwapMapReserveFileNum: int = 100
    compactionCqMappedFileSize: int = 10_485_760
    compactionMappedFileSize: int = 104_857_600
    compactionScheduleInternal: int = 900_000
    compactionThreadNum: int = 6
    correctLogicMinOffsetForceInterval: int = 300_000
    correctLogicMinOffsetSleepInterval: int = 1
    dataReadAheadEnable: bool = True
    debugLockEnable: bool = False
    defaultQueryMaxNum: Int = 32
    deleteCommitLogFilesInterval: int = 100
    deleteConsumeQueueFilesInterval: int = 100
    deleteFileBatchMax: Int = 10
    deleteWhen: Hours = "04"
    destroyMapedFileIntervalForcibly: int = 120_000
    disappearTimeAfterStart: int = -1
    diskFallRecorded: bool = True
    diskMaxUsedSpaceRatio: Int = 75
    diskSpaceCleanForciblyRatio: Int = 85
    diskSpaceWarningLevelRatio: Int = 90
    dispatchCqCacheNum: int = 4096
    dispatchCqThreads: int = 10
    dispatchFromSenderThread: bool = False
    dLegerGroup: str | None = None
    dLegerPeers: str | None = None
    dLegerSelfId: str | None = None
    duplicationEnable: bool = False
    enableAcceleratedRecovery: bool = False
    enableAsyncReput: bool = True
    enableAutoInSyncReplicas: bool = False
    enableBatchPush: bool = False
    enableBuildConsumeQueueConcurrently: bool = False
    enableCleanExpiredOffset: bool = False
    enableCompaction: bool = True
    enableConsumeQueueExt: bool = False
    enabledAppendPropCRC: bool = False
    enableDLegerCommitLog: bool = False
    enableLmq: bool = False
    enableLogConsumeQueueRepeatedlyBuildWhenRecover: bool = False
    enableMultiDispatch: bool = False
    enableRocksDBLog: bool = False
    enableRunningFlagsInFlush: bool = False
    enableScheduleAsyncDeliver: bool = False
    enableScheduleMessageStats: bool = True
    fastFailIfNoBufferInStorePool: bool = False
    fileReservedTime: NotNegative = 72
    flushCommitLogLeastPages: Int = 4
    flushCommitLogThoroughInterval: Int = 10000
    flushCommitLogTimed: bool = True
    flushConsumeQueueLeastPages: int = 2
    flushConsumeQueueThoroughInterval: Int = 60000
    flushDelayOffsetInterval: NotNegativeLong = 10000
    flushDiskType: FlushType = "ASYNC_FLUSH"
    flushIntervalCommitLog: NotNegative = 500
    flushIntervalConsumeQueue: Int = 1000
    flushLeastPagesWhenWarmMapedFile: int = 4096
    forceVerifyPropCRC: bool = False
    haFlowControlEnable: bool = False
    haHousekeepingInterval: NotNegative = 20000
    haListenPort: Port = 10912
    haMasterAddress: str | None = None
    haMaxGapNotInSync: Int = 268_435_456
    haMaxTimeSlaveNotCatchup: int = 15000
    haSendHeartbeatInterval: NotNegative = 5000
    haTransferBatchSize: Int = 32768
    haTransferWholeLog: bool = False  # ours: an empty slave gets the whole log, not only its last file
    indexFileReadEnable: bool = True
    indexFileWriteEnable: bool = True
    indexRocksDBEnable: bool = False
    inSyncReplicas: Int = 1
    logicalDiskSpaceCleanForciblyThreshold: float = 0.8
    logicQueueForceSwapMapInterval: int = 43_200_000
    logicQueueSwapMapInterval: int = 3_600_000
    logicQueueSwapMapReserveFileNum: int = 20
    mappedFileSizeCommitLog: LogFileBytes = 1_073_741_824
    mappedFileSizeConsumeQueue: QueueFileBytes = 6_000_000
    mappedFileSizeConsumeQueueExt: int = 50_331_648
    mappedFileSizeTimerLog: int = 104_857_600
    mappedFileSwapEnable: bool = True
    mapperFileSizeBatchConsumeQueue: Int = 13_800_000
    maxAsyncPutMessageRequests: int = 5000
    maxBatchDeleteFilesNum: int = 50
    maxChecksumRange: int = 1_073_741_824
    maxConsumeQueueScan: int = 20000
    maxFilterMessageSize: Int = 16000
    maxHashSlotNum: Positive = 5_000_000
    maxHaTransferByteInSecond: int = 104_857_600
    maxIndexNum: IndexEntries = 20_000_000
    maxLmqConsumeQueueNum: int = 20000
    maxMessageSize: Positive = 4_194_304
    maxMsgsNumBatch: Int = 64
    maxOffsetMapSize: int = 104_857_600
    maxRecoveryCommitlogFiles: int = 30
    maxRocksDBIndexQueryDays: int = 7
    maxSlaveResendLength: int = 268_435_456
    maxTopicLength: int = 127
    maxTransferBytesOnMessageInDisk: Int = 65536
    maxTransferBytesOnMessageInMemory: Int = 262_144
    maxTransferCountOnMessageInDisk: Int = 8
    maxTransferCountOnMessageInMemory: Int = 32
    memTableFlushIntervalMs: int = 3_600_000
    messageDelayLevel: DelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    messageIndexEnable: bool = True
    messageIndexSafe: bool = False
    minInSyncReplicas: Int = 1
    offsetCheckInSlave: bool = False
    osPageCacheBusyTimeOutMills: int = 1000
    preferredLeaderId: str | None = None
    pullBatchMaxMessageCount: int = 160
    putConsumeQueueDataByFileChannel: bool = True
    putMessageTimeout: int = 8000
    putMsgIndexHightWater: int = 600_000
    readOnlyCommitLogStorePaths: str | None = None
    readUnCommitted: bool = False
    realTimePersistRocksDBConfig: bool = True
    recheckReputOffsetFromCq: bool = False
    redeleteHangedFileInterval: int = 120_000
    replicasPerDiskPartition: int = 1
    rocksdbCompressionType: str = "lz4"
    rocksdbCQDoubleWriteEnable: bool = False
    rocksdbFlushWalFrequency: int = 1024
    rocksdbWalFileRollingThreshold: int = 1_073_741_824
    sampleCountThreshold: int = 5000
    sampleSteps: int = 32
    scheduleAsyncDeliverMaxPendingLimit: int = 2000
    scheduleAsyncDeliverMaxResendNum2Blocked: int = 3
    searchBcqByCacheEnable: bool = True
    sharedByteBufferNum: int = 16
    slaveTimeout: Int = 3000
    spinLockCollisionRetreatOptimalDegree: int = 1000
    statRocksDBCQIntervalSec: int = 10
    storePathBrokerIdentity: str | None = None
    storePathCommitLog: str | None = None
    storePathDLedgerCommitLog: str | None = None
    storePathEpochFile: str | None = None
    storePathRootDir: Folder = "store"
    storeType: str = "default"
    syncFlushTimeout: Positive = 5000
    syncFromLastFile: bool = False
    syncMasterFlushOffsetWhenStartup: bool = False
    timerCheckMetricsWhen: str = "05"
    timerColdDataCheckIntervalMs: int = 60000
    timerCongestNumEachSlot: int = 2_147_483_647
    timerEnableCheckMetrics: bool = True
    timerEnableDisruptor: bool = False
    timerEnableRetryUntilSuccess: bool = False
    timerFlushIntervalMs: int = 1000
    timerGetMessageThreadNum: int = 3
    timerInterceptDelayLevel: bool = False
    timerMaxDelaySec: Int = 259_200
    timerMetricSmallThreshold: int = 1_000_000
    timerPrecisionMs: int = 1000
    timerProgressLogIntervalMs: int = 10000
    timerPutMessageThreadNum: int = 3
    timerRecallToTimelineEnable: bool = True
    timerRecallToTimeWheelEnable: bool = True
    timerRocksDBEnable: bool = False
    timerRocksDBPrecisionMs: int = 1000
    timerRocksDBRollIntervalHours: int = 1
    timerRocksDBRollMaxTps: float = 8000.0
    timerRocksDBRollRangeHours: int = 2
    timerRocksDBStopScan: bool = False
    timerRocksDBTimeExpiredMaxTps: float = 200000.0
    timerRollWindowSlot: int = 172_800
    timerSkipUnknownError: bool = False
    timerStopDequeue: bool = False
    timerStopEnqueue: bool = False
    timerWarmEnable: bool = False
    timerWheelEnable: bool = True
    timerWheelSnapshotFlush: bool = False
    timerWheelSnapshotIntervalMs: int = 10000
    topicQueueLockNum: int = 32
    totalReplicas: Int = 1
    transientStorePoolEnable: bool = False
    transientStorePoolSize: int = 5
    transRocksDBEnable: bool = False
    transWriteOriginTransHalfEnable: bool = True
    travelCqFileNumWhenGetMessage: int = 1
    useABSLock: bool = False
    useReentrantLockWhenPutMessage: bool = True
    wakeCommitWhenPutMessage: bool = True
    wakeFlushWhenPutMessage: bool = False
    warmMapedFileEnable: bool = False
    writeWithoutMmap: bool = False
