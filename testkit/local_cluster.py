"""A whole cluster inside the process, on real sockets: for tests of code that talks to RocketMQ.

    async with LocalCluster() as cluster:
        ...                             # any RocketMQ client against cluster.namesrv_address

Everything lives in one nursery and one temporary folder, every port is free and chosen by the system, and all of it is
gone when the block ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import Machine
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.mqclient.admin.topics import TopicSettings, exists, save_topic
from understudy.mqclient.session import open_session
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.runtime.background import open_background
from understudy.runtime.world import World, real_world
from understudy.testkit.waiting import eventually

if TYPE_CHECKING:
    from understudy.proxy.server import Proxy

# Small files, so that a test's cluster is made and removed in milliseconds.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
}


class LocalCluster:
    """A name server and a container of brokers in this process.

    Args:
        brokers: how many masters to start, named ``broker-a``, ``broker-b`` ...
        broker_config: keys given to every broker beside the small file sizes.
        folder: where stores live; a temporary folder, removed at the end, when ``None``.
        world: clock, network, disk and randomness; the real ones when ``None``.
        host: the address to listen on and to publish.
        proxy: also run a proxy, for clients that speak gRPC; it needs ``understudy[grpc]``.

    Attributes:
        container: the container, for adding and removing brokers.
        name_server: the name server.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        broker_config: Mapping[str, str] | None = None,
        folder: str | None = None,
        world: World | None = None,
        host: str = "127.0.0.1",
        proxy: bool = False,
    ) -> None:
        self._count = brokers
        self._with_proxy = proxy
        self._proxy_port = 0
        self._extra = dict(broker_config or {})
        self._folder = folder
        self._own_folder: str | None = None
        self._world = world
        self._host = host
        self._stack = AsyncExitStack()
        self.container: BrokerContainer
        self.name_server: NameServer

    @property
    def namesrv_address(self) -> str:
        """The name server, ``host:port``: all a client needs to know."""
        return f"{self._host}:{self.name_server.address[1]}"

    @property
    def proxy_address(self) -> str:
        """The proxy, ``host:port``: all a gRPC client needs to know. Raises ``ValueError`` without one."""
        if not self._proxy_port:
            raise ValueError("this cluster was made without a proxy: say proxy=True")
        return f"{self._host}:{self._proxy_port}"

    @property
    def brokers(self) -> dict[str, Broker]:
        """The running brokers by broker name."""
        return {hosted.identity.name: hosted.broker for hosted in self.container.brokers()}

    async def __aenter__(self) -> LocalCluster:
        # In the event loop of a running cluster the import would take too long.
        make_proxy = _proxy_maker() if self._with_proxy else None
        world = self._world or real_world()
        if self._folder is None:
            self._folder = self._own_folder = tempfile.mkdtemp(prefix="understudy-cluster-")
        async with AsyncExitStack() as stack:
            if self._own_folder is not None:
                stack.callback(shutil.rmtree, self._own_folder, ignore_errors=True)
            outer = await stack.enter_async_context(open_background())
            config = NamesrvConfig(
                kv_config_path=f"{self._folder}/namesrv/kvConfig.json",
                config_store_path=f"{self._folder}/namesrv/namesrv.properties",
                support_acting_master=True,
                notify_min_broker_id_changed=True,
            )
            self.name_server = NameServer(world, config, self._host, 0)
            await outer.start(self.name_server.run)
            machine = Machine("localhost", self._host, f"{self._folder}/store", None, self.namesrv_address)
            options, _ = ContainerOptions.from_properties(
                {
                    "listenPort": "0",
                    "bindAddress": self._host,
                    "namesrvAddr": self.namesrv_address,
                    "addBrokerFolders": "/",  # a test's files may lie anywhere
                },
                machine=machine,
            )
            self.container = BrokerContainer(world, options, machine=machine)
            # Its own block inside the name server's: brokers say goodbye while there is somebody to hear it.
            inner = await stack.enter_async_context(open_background())
            await inner.start(self.container.run)
            for index in range(self._count):
                await self.add_broker(f"broker-{chr(ord('a') + index)}")
            if make_proxy is not None:
                front = await stack.enter_async_context(open_background())
                await front.start(self._run_proxy, make_proxy(world, self._host, self.namesrv_address))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _run_proxy(self, proxy: Proxy, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            _, self._proxy_port = await nursery.start(proxy.run)
            task_status.started()

    async def make_topic(self, topic: str, queues: int = 4, kind: str = "NORMAL") -> None:
        """Create *topic* on every broker, and return when the name server knows it.

        Args:
            topic: its name.
            queues: on each broker.
            kind: of its messages, which a proxy checks: ``NORMAL``, ``FIFO``, ``DELAY`` or ``TRANSACTION``.

        Raises:
            ClientError: a broker refuses it.
            TooSlowError: it is not known within half a minute.
        """
        settings = TopicSettings(topic, queues, queues, attributes={"+message.type": kind})
        async with open_session(self._world or real_world(), self.namesrv_address) as session:
            for broker in self.brokers.values():
                await save_topic(session, broker.identity.address, settings)
            await eventually(partial(exists, session, topic))

    async def add_broker(self, name: str, config: Mapping[str, str] | None = None) -> Broker:
        """Start one more broker; its store is ``<folder>/<name>``, so the same name finds its data again."""
        properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": "0",
            "brokerIP1": self._host,
            "listenPort": "0",
            "storePathRootDir": f"{self._folder}/{name}",
            "storePathCommitLog": f"{self._folder}/{name}/commitlog",
            **SMALL_FILES,
            **self._extra,
            **(config or {}),
        }
        return await self.container.add_broker(properties, source=f"local cluster {name}")


def _proxy_maker() -> Callable[[World, str, str], Proxy]:
    """Return what makes a proxy of a world, its host and a name server; only who wants one needs its libraries."""
    try:
        from understudy.proxy.config import config_of
        from understudy.proxy.server import Proxy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"a proxy needs {error.name}: pip install 'understudy[grpc]'") from error

    def made(world: World, host: str, name_server: str) -> Proxy:
        keys = {"grpcServerPort": 0, "remotingListenPort": 0, "localServeAddr": host, "namesrvAddr": name_server}
        config, _ = config_of(keys, "local cluster")
        return Proxy(world, config, host)

    return made
