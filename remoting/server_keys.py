"""Keys by which the reference sizes a server's thread pools and sockets (NettyServerConfig.java).

They are read, shown and stored, so that an existing file and every tool work unchanged. All but the address, the port
and the idle time are without effect here; :data:`NO_EFFECT` says why.
"""

from __future__ import annotations

import attrs

from understudy.remoting.access import AdminAddresses
from understudy.runtime.configuration import Count, Port


@attrs.frozen
class ServerKeys:
    """The keys with the reference's defaults; a field's key is its name in camel case."""

    admin_addresses: AdminAddresses = None
    bind_address: str = "0.0.0.0"
    enable_shutdown_gracefully: bool = False
    listen_port: Port = 0
    server_async_semaphore_value: Count = 64
    server_callback_executor_threads: Count = 0
    server_channel_max_idle_time_seconds: Count = 120
    server_netty_worker_group_enable: bool = True
    server_oneway_semaphore_value: Count = 256
    server_pooled_byte_buf_allocator_enable: bool = True
    server_selector_threads: Count = 3
    server_socket_backlog: Count = 1024
    server_socket_rcv_buf_size: Count = 0
    server_socket_snd_buf_size: Count = 0
    server_worker_threads: Count = 8
    shutdown_wait_time_seconds: Count = 30
    use_epoll_native_selector: bool = False
    write_buffer_high_water_mark: Count = 0
    write_buffer_low_water_mark: Count = 0


POOLS = "one event loop answers every request, there are no thread pools"
_SOCKETS = "the operating system sizes socket buffers here"
_STOPPING = "stopping always ends the connections at once, clients go to the next server"
NO_EFFECT = {
    "enableShutdownGracefully": _STOPPING,
    "serverAsyncSemaphoreValue": POOLS,
    "serverCallbackExecutorThreads": POOLS,
    "serverNettyWorkerGroupEnable": POOLS,
    "serverOnewaySemaphoreValue": POOLS,
    "serverPooledByteBufAllocatorEnable": _SOCKETS,
    "serverSelectorThreads": POOLS,
    "serverSocketBacklog": "it is fixed at 1024",
    "serverSocketRcvBufSize": _SOCKETS,
    "serverSocketSndBufSize": _SOCKETS,
    "serverWorkerThreads": POOLS,
    "shutdownWaitTimeSeconds": _STOPPING,
    "useEpollNativeSelector": _SOCKETS,
    "writeBufferHighWaterMark": _SOCKETS,
    "writeBufferLowWaterMark": _SOCKETS,
}
