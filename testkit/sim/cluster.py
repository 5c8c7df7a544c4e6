"""A whole cluster under one seed: production code on virtual time, an in-memory network and disks that lose power.

    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            ...
            await cluster.kill("c1", power=True)
            await cluster.restart("c1")

    run_seed(scenario, seed=1)

Host names resolve to addresses of their own; a broker's default ports are those of the reference, ten apart.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import Machine
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.runtime.background import open_background
from understudy.runtime.world import World
from understudy.testkit.sim.awaits import reach_await
from understudy.testkit.sim.clock import StoppableClock
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import Trace
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork
from understudy.testkit.sim.process import SimProcess

__all__ = [
    "CONTAINER_PORT",
    "FIRST_BROKER_PORT",
    "NAME_SERVER_PORT",
    "TINY_FILES",
    "LinkQuality",
    "SimCluster",
    "SimHost",
]

NAME_SERVER_PORT = 9876
CONTAINER_PORT = 10811
FIRST_BROKER_PORT = 10911
_PORTS_PER_BROKER = 10
# Files of a few pages: a simulated disk compares what is synced page by page.
TINY_FILES = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 500),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}

Boot = Callable[[SimProcess], Awaitable[None]]


class SimHost:
    """One machine: its own clock, disk and link, and the process that runs on it."""

    def __init__(self, cluster: SimCluster, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.clock = StoppableClock()
        self.source = random.Random(cluster.source.getrandbits(64))
        self.disk = SimDisk(self.source, now_ms=self.clock.wall_ms, sync_seconds=0.001)
        self.network = cluster.network.host(address)
        self.process: SimProcess | None = None
        self.boot: Boot | None = None
        self.container: BrokerContainer | None = None
        self.name_server: NameServer | None = None

    def new_process(self) -> SimProcess:
        """Return a fresh process of this host."""
        self.process = SimProcess(self.clock, self.network, self.disk, self.source)
        return self.process


class SimCluster:
    """Hosts, links and accidents.

    Args:
        source: where everything random comes from.
        quality: of every link.

    Attributes:
        network: for partitions, slow links and loss; hosts are named by :meth:`address`.
        trace: what the test records; equal for equal seeds.
    """

    def __init__(self, source: random.Random, quality: LinkQuality | None = None) -> None:
        self.source = source
        self.network = SimNetwork(random.Random(source.getrandbits(64)), quality)
        self.trace = Trace()
        self._hosts: dict[str, SimHost] = {}
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery

    async def __aenter__(self) -> SimCluster:
        self._nursery = await self._stack.enter_async_context(open_background())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    # --- hosts -------------------------------------------------------------------------------------------------

    def host(self, name: str) -> SimHost:
        """Return host *name*, made on first use."""
        if name not in self._hosts:
            address = f"10.0.0.{len(self._hosts) + 1}"
            self.network.alias(name, address)
            self._hosts[name] = SimHost(self, name, address)
        return self._hosts[name]

    def address(self, name: str) -> str:
        """Return the address of host *name*."""
        return self.host(name).address

    def client_world(self, name: str = "client") -> World:
        """Return the world of a client that runs on host *name* and is never killed."""
        host = self.host(name)
        return World(host.clock, host.network, host.disk, host.source)

    @property
    def name_servers(self) -> str:
        """The name servers started so far, as ``namesrvAddr`` takes them."""
        return ";".join(
            f"{host.address}:{NAME_SERVER_PORT}" for host in self._hosts.values() if host.name_server is not None
        )

    def brokers(self, name: str) -> dict[str, Broker]:
        """Return the running brokers of host *name* by broker name."""
        container = self.host(name).container
        return {} if container is None else {each.identity.name: each.broker for each in container.brokers()}

    async def start_name_server(self, name: str, **settings: object) -> NameServer:
        """Start a name server on host *name*; *settings* are fields of its configuration."""
        host = self.host(name)
        config = NamesrvConfig(
            kv_config_path="/data/namesrv/kvConfig.json",
            config_store_path="/data/namesrv/namesrv.properties",
            **{"support_acting_master": True, "notify_min_broker_id_changed": True, **settings},  # type: ignore[arg-type]  # checked by the caller's test
        )

        async def boot(process: SimProcess) -> None:
            host.name_server = NameServer(process.world, config, "0.0.0.0", NAME_SERVER_PORT)
            await self._nursery.start(process.run, host.name_server.run)

        await self._boot(host, boot)
        assert host.name_server is not None
        return host.name_server

    async def start_container(
        self, name: str, brokers: Sequence[Mapping[str, str]], keys: Mapping[str, str] | None = None
    ) -> BrokerContainer:
        """Start a container on host *name*.

        Args:
            name: the host.
            brokers: keys of each broker; what is left out is a master with tiny files and a port of its own.
            keys: of the container, beside its port and name servers.
        """
        host = self.host(name)

        async def boot(process: SimProcess) -> None:
            machine = Machine(name, host.address, "/data/store", None, self.name_servers)
            options, _ = ContainerOptions.from_properties(
                {"listenPort": str(CONTAINER_PORT), "namesrvAddr": self.name_servers, **(keys or {})}, machine=machine
            )
            host.container = BrokerContainer(process.world, options, machine=machine)
            await self._nursery.start(process.run, host.container.run)
            for index, each in enumerate(brokers):
                await host.container.add_broker(self.keys_of(name, index, each), source=f"simulated {name}")

        await self._boot(host, boot)
        assert host.container is not None
        return host.container

    def keys_of(self, name: str, index: int, keys: Mapping[str, str]) -> dict[str, str]:
        """Return all keys of broker number *index* of host *name*: what *keys* leave out is filled in."""
        folder = f"/data/{keys.get('brokerName', name)}-{keys.get('brokerId', '0')}"
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": "0",
            "listenPort": str(FIRST_BROKER_PORT + index * _PORTS_PER_BROKER),
            "storePathRootDir": folder,
            "storePathCommitLog": f"{folder}/commitlog",
            **TINY_FILES,
            **keys,
        }

    async def _boot(self, host: SimHost, boot: Boot) -> None:
        host.boot = boot
        await host.new_process().boot(boot)

    # --- accidents ---------------------------------------------------------------------------------------------

    async def kill(self, name: str, *, power: bool = False) -> None:
        """End the process of host *name* as SIGKILL does; with *power*, take the power of the host away too."""
        host = self._met(name)
        process = host.process
        if process is None:
            return
        if power:
            self.network.power_off(host.address)
        else:
            self.network.kill(host.address)
        await process.vanish()
        host.process = None
        if power:
            host.disk.lose_power()
        else:
            host.disk.kill_process()

    async def reach_await(
        self, name: str, modules: Sequence[str], number: int, seconds: float, *, power: bool = False
    ) -> bool:
        """Wait until the process of host *name* is at one of its awaits; from then on it reaches nobody.

        Args:
            name: the host; :meth:`kill` must follow.
            modules: whose awaits count, see :func:`~understudy.testkit.sim.awaits.reach_await`.
            number: of the await, from 1 on.
            seconds: how long to wait at most.
            power: it is silent as well, as after a loss of power.

        Returns:
            whether it came to that await.
        """
        host = self._met(name)
        process = host.process
        if process is None:
            return False

        def end() -> None:
            process.fence()
            (self.network.power_off if power else self.network.kill)(host.address)

        return await reach_await(process, modules, number, seconds, end)

    async def restart(self, name: str) -> None:
        """Start the process of host *name* again, with what its disk has kept."""
        host = self._met(name)
        if host.boot is None:
            raise ValueError(f"nothing was ever started on {name}")
        if host.process is not None:
            raise ValueError(f"{name} still runs; kill or stop it first")
        self.network.power_on(host.address)
        await self._boot(host, host.boot)

    async def stop(self, name: str) -> None:
        """End the process of host *name* as SIGTERM does."""
        host = self._met(name)
        if host.process is not None:
            await host.process.stop()
            host.process = None
            host.disk.kill_process()

    def partition(self, *groups: Sequence[str]) -> None:
        """Let hosts of different groups not hear each other; see :meth:`SimNetwork.heal`."""
        self.network.partition(*[[self._met(name).address for name in group] for group in groups])

    def heal(self) -> None:
        """End every partition."""
        self.network.heal()

    def freeze(self, name: str) -> None:
        """Let host *name* stand still as SIGSTOP or a suspended machine does: no time passes there, nothing is read."""
        host = self._met(name)
        host.clock.stop()
        self.network.freeze(host.address)

    def unfreeze(self, name: str, *, suspended: bool = False) -> None:
        """Let host *name* go on.

        Args:
            suspended: the time that it stood still did not count for its clocks, as after the sleep of a machine;
                otherwise they have gone on, as after SIGCONT.
        """
        host = self._met(name)
        self.network.unfreeze(host.address)
        host.clock.go_on(counted=not suspended)

    def slow(self, name: str, quality: LinkQuality | None = None) -> None:
        """Give the links from host *name* to all others another quality; without one they are as good as any again."""
        host = self._met(name)
        for other in self._hosts.values():
            if other is not host:
                self.network.set_link(host.address, other.address, quality or self.network.default_quality)

    def jump(self, name: str, milliseconds: int) -> None:
        """Let the wall clock of host *name* jump; below zero it goes back."""
        self._met(name).clock.jump(milliseconds)

    def disk_full(self, name: str, full: bool = True) -> None:
        """Let the disk of host *name* have no space left, or (False) space again."""
        disk = self._met(name).disk
        disk.used_bytes = disk.total_bytes if full else None

    def _met(self, name: str) -> SimHost:
        """Return host *name*. Raises ``ValueError`` for one that the test has never used: an accident must meet one."""
        if name not in self._hosts:
            known = ", ".join(self._hosts) or "none yet"
            close = difflib.get_close_matches(name, self._hosts, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"there is no host {name!r} in this cluster{hint} Hosts: {known}")
        return self._hosts[name]
