"""Keys by which the reference sizes thread pools and sockets, of the listening and of the calling side.

They are read, shown and stored, so that an existing file and every tool work unchanged. The names are the reference's,
there is no Netty here: of the listening side all but addresses, the port, the idle time and what may wait are without
effect; :data:`NO_EFFECT` says why. Those of the calling side belong to brokers.
"""

from __future__ import annotations

import math
from typing import Annotated

import attrs

from understudy.remoting.access import AdminAddresses
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.configuration import LONG, Between, Count, Port, keyed

WaitingBytes = Annotated[int | None, Between(1, LONG[1], f"bytes from 1 to {LONG[1]}")]
"""Most bytes that wait or are kept, all peers together (``runtime/load.py``); a part of the memory if not given."""
WAITING_KEYS = frozenset({"waitingOutgoingBytes", "waitingIncomingBytes", "waitingParkedBytes", "keptForPeersBytes"})
"""They count for the process, and are read when it starts."""


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class NettyServerConfig:
    """Keys of the listening side (NettyServerConfig.java of 5.4.0), with the reference's defaults.

    A field's key is its name in camel case.

    Attributes:
        admin_addresses: ours; only these addresses may administrate, others are answered 16 (no permission); without it
            everybody may.
        bind_address: the address of this host to listen on; ``0.0.0.0`` is all of them.
        kept_for_peers_bytes: ours; bytes that peers have the whole process remember (locks, topics), at most.
        listen_port: the port for clients, other servers and tools; 0 takes a free one.
        server_channel_max_idle_time_seconds: seconds without a byte either way after which a connection is closed; 0:
            never.
        waiting_incoming_bytes: ours; bytes of requests that wait for their turn in the whole process, at most.
        waiting_outgoing_bytes: ours; bytes of answers that peers of the whole process have not taken yet, at most.
        waiting_parked_bytes: ours; bytes of pulls and pops that wait in the whole process, at most.
    """

    admin_addresses: AdminAddresses = None
    bind_address: str = "0.0.0.0"
    enable_shutdown_gracefully: bool = False
    kept_for_peers_bytes: WaitingBytes = None
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
    waiting_incoming_bytes: WaitingBytes = None
    waiting_outgoing_bytes: WaitingBytes = None
    waiting_parked_bytes: WaitingBytes = None
    write_buffer_high_water_mark: Count = 0
    write_buffer_low_water_mark: Count = 0

    @property
    def limits(self) -> ConnectionLimits:
        """What a connection may do; 0 seconds without a byte are any time, as for the reference's idle handler."""
        return ConnectionLimits(idle_seconds=self.server_channel_max_idle_time_seconds or math.inf)


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class NettyClientConfig:
    """Keys of the calling side (NettyClientConfig.java of 5.4.0), with the reference's defaults."""

    channel_not_active_interval: int = 60000
    client_async_semaphore_value: int = 65535
    client_callback_executor_threads: int = 2
    client_channel_max_idle_time_seconds: int = 120
    client_close_socket_if_timeout: bool = True
    client_oneway_semaphore_value: int = 65535
    client_pooled_byte_buf_allocator_enable: bool = False
    client_socket_rcv_buf_size: int = 0
    client_socket_snd_buf_size: int = 0
    client_worker_threads: int = 4
    connect_timeout_millis: int = 3000
    disable_callback_executor: bool = False
    disable_netty_worker_group: bool = False
    enable_reconnect_for_go_away: bool = True
    is_scan_available_name_srv: bool = True
    max_reconnect_interval_time_seconds: int = 60
    socks_proxy_config: str = "{}"
    use_tls: bool = keyed("useTLS", False)
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0


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
