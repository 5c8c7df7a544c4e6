"""Three brokers of one group, led by three controllers, each on a host of its own, on virtual time."""

from __future__ import annotations

import random
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.switch_replication import SwitchReplication
from understudy.container.hosted import host_broker
from understudy.controller.group import Group as GroupFacts
from understudy.controller.server import Controller
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import open_background
from understudy.testkit.quorum.settings import API_PORT, member_settings
from understudy.testkit.quorum.simulation import give_secret
from understudy.testkit.sim.cluster import TINY_FILES, SimCluster
from understudy.testkit.sim.process import SimProcess
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

PORT = 10911
CONTROLLERS = ("k1", "k2", "k3")
BROKERS = ("b1", "b2", "b3")
TOPIC = "orders"
ASK_MS = 8_000


class LedGroup:
    """The group, by the names of its hosts.

    Args:
        cluster: has the hosts.
        nursery: where processes run.
        client: of the test.
        keys: of every broker.
        own_keys: of single brokers, by host; they win.
        quorum: the hosts of the controllers.
    """

    def __init__(
        self,
        cluster: SimCluster,
        nursery: trio.Nursery,
        client: RemotingClient,
        keys: dict[str, str],
        own_keys: Mapping[str, Mapping[str, str]],
        quorum: Sequence[str] = CONTROLLERS,
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.keys = keys
        self.own_keys = own_keys
        self.quorum = quorum
        self.brokers: dict[str, Broker] = {}
        self.controllers: dict[str, Controller] = {}
        self._nursery = nursery

    async def start_controller(self, name: str) -> None:
        host, addresses = self.cluster.host(name), {each: self.cluster.address(each) for each in self.quorum}
        give_secret(host.disk)
        config = member_settings(name, addresses)
        self.cluster.network.power_on(host.address)
        process = host.new_process()
        controller = self.controllers[name] = Controller(process.world, config)
        await self._run(process, controller.run)

    async def _run(self, process: SimProcess, program: Callable[..., Awaitable[None]]) -> None:
        try:
            await self._nursery.start(process.run, program)
        except RuntimeError as ended:  # before it served
            raise process.failure or ended from None

    def keys_of(self, name: str) -> dict[str, str]:
        """Return all keys of the broker of host *name*."""
        host = self.cluster.host(name).address
        return {
            "brokerName": "g", "listenPort": str(PORT), "brokerIP1": host, "brokerIP2": host,
            "enableControllerMode": "true",
            "controllerAddr": ";".join(f"{self.cluster.address(each)}:{API_PORT}" for each in self.quorum),
            "brokerHeartbeatInterval": "200", "controllerHeartBeatTimeoutMills": "2000",
            "syncBrokerMetadataPeriod": "1000", "checkSyncStateSetPeriod": "1000",
            "storePathRootDir": "/data/store", "storePathCommitLog": "/data/store/commitlog",
            "namesrvAddr": self.cluster.name_servers,
            "slaveReadEnable": "true", **TINY_FILES, **self.keys, **self.own_keys.get(name, {}),
        }  # fmt: skip

    async def start_broker(self, name: str) -> Broker:
        host = self.cluster.host(name)
        self.cluster.network.power_on(host.address)
        process = host.new_process()
        options, _ = BrokerOptions.from_properties(self.keys_of(name))

        async def life(*, task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as nursery:
                made: Broker = await nursery.start(host_broker, process.world, options)
                self.brokers[name] = made
                task_status.started()

        await self._run(process, life)
        return self.brokers[name]

    async def kill(self, name: str, *, power: bool = False) -> None:
        await self.cluster.kill(name, power=power)
        self.brokers.pop(name, None)
        self.controllers.pop(name, None)

    def facts(self) -> GroupFacts | None:
        """What the active controller knows of the group."""
        for controller in self.controllers.values():
            if controller.member.leads():
                return controller.metadata.groups.get("g")
        return None

    def master(self) -> str | None:
        """The host of the broker that the controllers have as master and that is it."""
        facts = self.facts()
        for name, broker in self.brokers.items():
            part = broker.replication
            if not isinstance(part, SwitchReplication):
                continue  # it is not led, not yet or no longer
            if facts is not None and facts.master_id == part.own_id and not broker.role.is_slave:
                return name if broker.role.epoch == facts.master_epoch else None
        return None

    async def ready(self, count: int, seconds: float = 30) -> str:
        """Wait until there is a master and *count* members, learners aside, in the set; return its host."""
        await until(lambda: self.master() is not None and len(self.members()) >= count - len(self._learners()), seconds)
        name = self.master()
        assert name is not None
        return name

    def host_of(self, broker_id: int) -> str:
        """The host of a replica that the active controller knows, by its persistent id."""
        facts = self.facts()
        assert facts is not None
        return self._host_of(facts.replicas[broker_id].address)

    def members(self) -> list[str]:
        """The hosts of the sync-state set, as the active controller has it."""
        facts = self.facts()
        return [] if facts is None else [self.host_of(each) for each in facts.sync_state_set]

    def _host_of(self, address: str) -> str:
        return next(name for name in BROKERS if address == f"{self.cluster.address(name)}:{PORT}")

    def _learners(self) -> list[str]:
        """Slaves that are never counted."""
        return [name for name, keys in self.own_keys.items() if "asyncLearner" in keys and name != self.master()]

    async def ask(
        self, name: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"", timeout_ms: int = ASK_MS
    ) -> Command:
        address = f"{self.cluster.address(name)}:{PORT}"
        return await self.client.invoke(address, request(code, ext or {}, body), timeout_ms)

    async def create_topic(self, name: str) -> None:
        assert (await self.ask(name, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1))).code == 0

    async def send(self, name: str, body: bytes) -> int:
        """Return the response code; -1 without an answer."""
        return (await self.put(name, body))[0]

    async def put(self, name: str, body: bytes, timeout_ms: int = ASK_MS) -> tuple[int, int]:
        """Send *body*; return the response code and the queue offset, -1 without either."""
        values = ("p", TOPIC, "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
        fields = dict(zip("abcdefghijkm", values, strict=True))
        try:
            answer = await self.ask(name, RequestCode.SEND_MESSAGE_V2, fields, body, timeout_ms)
        except RemotingError:
            return -1, -1
        return answer.code, int((answer.ext or {}).get("queueOffset", -1))

    def bodies(self, name: str, begin: int = 0) -> list[bytes]:
        """Return what readers get from queue offset *begin* on."""
        return list(self.read(name, begin).values())

    def read(self, name: str, begin: int = 0) -> dict[int, bytes]:
        """Return what readers get, by queue offset, from *begin* on; they go on behind what is lost."""
        found: dict[int, bytes] = {}
        while True:
            got = self.brokers[name].store.get(TOPIC, 0, begin, 32, 1 << 20)
            found |= {record.queue_offset: record.body for part in got.parts for record in decode_records(part)}
            if got.next_begin_offset <= begin:
                return found
            begin = got.next_begin_offset


@asynccontextmanager
async def led_group(
    source: random.Random,
    keys: dict[str, str],
    own_keys: Mapping[str, Mapping[str, str]] = types.MappingProxyType({}),
    quorum: Sequence[str] = CONTROLLERS,
) -> AsyncIterator[LedGroup]:
    """Start controllers and brokers; nobody is waited for.

    Args:
        source: of what is left to chance.
        keys: of every broker.
        own_keys: of single brokers, by host; they win.
        quorum: the hosts of the controllers.
    """
    async with (
        SimCluster(source) as cluster,
        open_client(cluster.client_world()) as client,
        open_background() as nursery,
    ):
        group = LedGroup(cluster, nursery, client, keys, own_keys, quorum)
        for name in (*quorum, *BROKERS):
            cluster.host(name)
        await cluster.start_name_server("ns")
        for name in quorum:
            await group.start_controller(name)
        for name in BROKERS:
            await group.start_broker(name)
        yield group
