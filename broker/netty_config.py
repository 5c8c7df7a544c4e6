"""The keys of NettyServerConfig and NettyClientConfig; the names are the reference's, there is no Netty here."""

import attrs

from understudy.broker.config_values import Positive
from understudy.runtime.configuration import Int, Port


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class NettyServerConfig:
    """Keys of the listening side (NettyServerConfig.java of 5.4.0), with the reference's defaults."""

    bindAddress: str = "0.0.0.0"
    enableShutdownGracefully: bool = False
    listenPort: Port = 0
    serverAsyncSemaphoreValue: int = 64
    serverCallbackExecutorThreads: int = 0
    serverChannelMaxIdleTimeSeconds: Int = 120
    serverNettyWorkerGroupEnable: bool = True
    serverOnewaySemaphoreValue: int = 256
    serverPooledByteBufAllocatorEnable: bool = True
    serverSelectorThreads: int = 3
    serverSocketBacklog: Positive = 1024
    serverSocketRcvBufSize: int = 0
    serverSocketSndBufSize: int = 0
    serverWorkerThreads: int = 8
    shutdownWaitTimeSeconds: int = 30
    useEpollNativeSelector: bool = False
    writeBufferHighWaterMark: int = 0
    writeBufferLowWaterMark: int = 0


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class NettyClientConfig:
    """Keys of the calling side (NettyClientConfig.java of 5.4.0), with the reference's defaults."""

    channelNotActiveInterval: int = 60000
    clientAsyncSemaphoreValue: int = 65535
    clientCallbackExecutorThreads: int = 2
    clientChannelMaxIdleTimeSeconds: int = 120
    clientCloseSocketIfTimeout: bool = True
    clientOnewaySemaphoreValue: int = 65535
    clientPooledByteBufAllocatorEnable: bool = False
    clientSocketRcvBufSize: int = 0
    clientSocketSndBufSize: int = 0
    clientWorkerThreads: int = 4
    connectTimeoutMillis: int = 3000
    disableCallbackExecutor: bool = False
    disableNettyWorkerGroup: bool = False
    enableReconnectForGoAway: bool = True
    isScanAvailableNameSrv: bool = True
    maxReconnectIntervalTimeSeconds: int = 60
    socksProxyConfig: str = "{}"
    useTLS: bool = False
    writeBufferHighWaterMark: int = 0
    writeBufferLowWaterMark: int = 0
