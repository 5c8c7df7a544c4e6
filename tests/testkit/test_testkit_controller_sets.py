"""The ready sets of ``conf/controller`` keep what their heads promise when a machine breaks, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import ContainerOptions
from understudy.container.hosted import host_broker
from understudy.controller.configuration import read_config as read_controller
from understudy.controller.embed import open_controller
from understudy.controller.server import Controller
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import SendStatus, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.namesrv.config import NamesrvConfig, read_config
from understudy.namesrv.server import NameServer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import open_background
from understudy.runtime.disk import RealDisk
from understudy.runtime.properties import Properties
from understudy.runtime.property_file import read_properties_file
from understudy.testkit.quorum.simulation import SECRET_FILE, give_secret
from understudy.testkit.sim.cluster import TINY_FILES, SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.process import SimProcess
from understudy.testkit.waiting import until

CONF = Path(__file__).resolve().parents[2] / "conf" / "controller"
SETS = ("quick", "three-ns", "standalone")
PLAIN_PORT = 10911
FIRST = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


def files(kind: str, begin: str = "") -> list[Path]:
    return sorted(path for path in (CONF / kind).iterdir() if path.name.startswith(begin))


def keys(path: Path) -> Properties:
    return read_properties_file(RealDisk(), str(path), None)


@pytest.mark.covers("R134")
@pytest.mark.parametrize("kind", SETS)
def test_a_set_runs_on_one_host_as_it_is(kind: str) -> None:
    machine = Machine("host", "10.0.0.1", "/store")
    taken: dict[int, str] = {}
    controllers, folders = [], set()
    for path in files(kind):
        values = keys(path)
        if path.name.startswith("broker"):
            options, warnings = BrokerOptions.from_properties(values, machine=machine)
            port = options.server.listen_port
            ports = [port, port - 2, port + 1]
            folders.add(options.store.store_path_root_dir)
            assert options.broker.enable_controller_mode
        elif path.name == "container.conf":
            container, warnings = ContainerOptions.from_properties(values, machine=machine)
            ports = [container.server.listen_port]
            hosted = [CONF.parents[1] / each for each in container.broker_files()]
            assert hosted == files(kind, "broker")
            assert {keys(each)["namesrvAddr"] for each in hosted} == {values["namesrvAddr"]}
        else:
            _, warnings = read_config(values, NamesrvConfig())
            ports = [int(values["listenPort"])] if "listenPort" in values else []
        if "controllerDLegerSelfId" in values:
            config = read_controller(values)
            own = values["controllerDLegerSelfId"]
            peers = dict(each.split("-", 1) for each in config.controller_d_leger_peers.split(";"))
            api = int(peers[own].partition(":")[2])
            ports += [api, api + 10_000]
            controllers.append(peers[own])
            folders.add(config.controller_store_path)
        if path.name.startswith(("broker", "namesrv")):
            assert [] == [each for each in warnings if "controller" not in each]
        for each in ports:
            assert taken.setdefault(each, path.name) == path.name
        head = path.read_text().partition("\n\n")[0]
        named = [line.split()[-1] for line in head.splitlines() if " -c conf/" in line]
        assert sorted(CONF.parents[1] / each for each in named) == files(kind)
    assert len(folders) == len(files(kind, "broker")) + len(controllers)
    for path in files(kind, "broker"):
        assert sorted(keys(path)["controllerAddr"].split(";")) == sorted(controllers)


class Stage:
    """A set with each process on a host of its own, with the keys changed as its head says."""

    def __init__(self, cluster: SimCluster, nursery: trio.Nursery, kind: str) -> None:
        self.cluster = cluster
        self._nursery = nursery
        self._kind = kind
        self.brokers: dict[str, Broker] = {}
        self.controllers: dict[str, Controller] = {}
        name_servers = [path.stem for path in files(kind, "namesrv")]
        self._voters = [path.stem for path in files(kind) if "controllerDLegerSelfId" in keys(path)]
        for path in files(kind):
            cluster.host(path.stem)
        self.name_servers = ";".join(f"{cluster.address(each)}:9876" for each in name_servers)

    async def start_all(self) -> None:
        for begin in ("namesrv", "controller", "broker"):
            for path in files(self._kind, begin):
                await self.start(path.stem)

    async def start(self, name: str) -> None:
        (path,) = files(self._kind, name)
        host = self.cluster.host(name)
        values = {key: f"/{text}" if text.startswith("data/") else text for key, text in keys(path).items()}
        self.cluster.network.power_on(host.address)
        process = host.new_process()
        if "controllerDLegerSelfId" in values:
            values["controllerDLegerPeers"] = ";".join(
                f"{keys(files(self._kind, each)[0])['controllerDLegerSelfId']}-{self.cluster.address(each)}:9878"
                for each in self._voters
            )
            give_secret(host.disk)
            values |= {"controllerRaftSecretFile": SECRET_FILE, "controllerLogFile": "off"}
        if name.startswith("broker"):
            await self._start_broker(process, name, values)
        elif name.startswith("controller"):
            controller = self.controllers[name] = Controller(
                process.world, read_controller(Properties(values, path.name))
            )
            await self._run(process, controller.run)
        else:
            await self._start_name_server(process, name, Properties(values, path.name))

    async def _start_name_server(self, process: SimProcess, name: str, values: Properties) -> None:
        config, _ = read_config(values, NamesrvConfig(config_store_path="/data/namesrv.properties"))
        embedded = open_controller(process.world, values) if config.enable_controller_in_namesrv else None
        if embedded is not None:
            self.controllers[name] = embedded.controller
        await self._run(process, NameServer(process.world, config, "0.0.0.0", 9876, controller=embedded).run)

    async def _start_broker(self, process: SimProcess, name: str, values: dict[str, str]) -> None:
        address = self.cluster.address(name)
        own = {
            "brokerIP1": address,
            "brokerIP2": address,
            "namesrvAddr": self.name_servers,
            "controllerAddr": ";".join(f"{self.cluster.address(each)}:9878" for each in self._voters),
        }
        options, _ = BrokerOptions.from_properties({**values, **TINY_FILES, **own})

        async def life(*, task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as nursery:
                self.brokers[name] = await nursery.start(host_broker, process.world, options)
                task_status.started()

        await self._run(process, life)

    async def start_plain(self, name: str, **keys: str) -> Broker:
        """Start a broker that is not led on a host of its own: a master, unless *keys* say otherwise."""
        host = self.cluster.host(name)
        self.cluster.network.power_on(host.address)
        own = {
            "brokerName": "plain",
            "brokerId": "0",
            "listenPort": str(PLAIN_PORT),
            "brokerIP1": host.address,
            "brokerIP2": host.address,
            "namesrvAddr": self.name_servers,
            "storePathRootDir": "/data/plain",
            "flushDiskType": "SYNC_FLUSH",
        }
        options, _ = BrokerOptions.from_properties({**own, **TINY_FILES, **keys})
        made, process = list[Broker](), host.new_process()

        async def life(*, task_status: trio.TaskStatus[None]) -> None:
            async with trio.open_nursery() as nursery:
                made.append(await nursery.start(host_broker, process.world, options))
                task_status.started()

        await self._run(process, life)
        return made[0]

    async def _run(self, process: SimProcess, program: Callable[..., Awaitable[object]]) -> None:
        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await program(task_status=task_status)

        await self._nursery.start(process.run, run)

    async def lose(self, *names: str) -> None:
        """Take the power of machines away."""
        for name in names:
            await self.cluster.kill(name, power=True)
            self.brokers.pop(name, None)
            self.controllers.pop(name, None)

    def master(self) -> str | None:
        """The broker that the controllers have as master and that is it."""
        for controller in self.controllers.values():
            group = controller.metadata.groups.get("broker-a")
            if controller.member.leads() and group is not None and group.master_id is not None:
                for name, broker in self.brokers.items():
                    if not broker.role.is_slave and broker.role.epoch == group.master_epoch:
                        return name
        return None

    def in_sync(self) -> int:
        leading = (each for each in self.controllers.values() if each.member.leads())
        return max((len(each.metadata.groups["broker-a"].sync_state_set) for each in leading), default=0)

    async def whole(self) -> str:
        """Wait until all replicas are in sync; return the master."""
        await until(lambda: self.master() is not None and self.in_sync() == 3, 60)
        name = self.master()
        assert name is not None
        return name

    async def send(self, first: int, count: int, seconds: float) -> set[str]:
        """Send messages, each as often as it takes within *seconds*."""
        end = trio.current_time() + seconds
        found = set()
        async with open_producer(self.cluster.client_world(), self.name_servers, "writers") as producer:
            for number in range(first, first + count):
                while trio.current_time() < end:
                    try:
                        result = await producer.send(Message("orders", f"m{number}".encode()))
                    except ClientError:
                        await trio.sleep(0.2)
                        continue
                    if result.status is SendStatus.OK:
                        found.add(f"m{number}")
                        break
        return found


@pytest.mark.covers("R132", "R133", "R135")
@pytest.mark.parametrize("kind", SETS)
def test_a_set_loses_nothing_with_a_machine(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster, open_background() as nursery:
            stage = Stage(cluster, nursery, kind)
            await stage.start_all()
            first = await stage.whole()
            sent = await stage.send(0, 20, 30)
            assert len(sent) == 20
            # when the master's machine is lost, and what else there is on it, or another controller
            number = first.rpartition("-")[2]
            beside = {"quick": [], "three-ns": [f"namesrv-{number}"], "standalone": [f"controller-{number}"]}[kind]
            await stage.lose(first, *beside)
            # then another one is elected and takes sends
            more = await stage.send(100, 20, 40)
            assert len(more) == 20
            assert stage.master() not in (None, first)
            # and the next machine may break, too, once the first one is whole again
            for name in [*beside, first]:
                await stage.start(name)
            second = await stage.whole()
            await stage.lose(second)
            got: set[str] = set()

            async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
                got.update(bytes(each.body).decode() for each in messages)

            world, topics = cluster.client_world("reader"), {"orders": "*"}
            async with open_push_consumer(world, stage.name_servers, "readers", topics, listen, FIRST):
                last = await stage.send(200, 5, 60)
                assert len(last) == 5
                await until(lambda: got >= sent | more | last, 60)
            if kind != "quick":
                # with one replica left nothing is taken
                third = stage.master()
                assert third is not None
                await stage.lose(next(each for each in stage.brokers if each != third))
                await trio.sleep(30)
                assert await stage.send(300, 1, 10) == set()

    run_seed(scenario, 1)


@pytest.mark.covers("R136", "R149")
@pytest.mark.parametrize("kind", SETS)
def test_brokers_without_the_mode_run_beside_a_set_as_without_it(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with (
            SimCluster(source) as cluster,
            open_client(cluster.client_world()) as client,
            open_background() as nursery,
        ):
            stage = Stage(cluster, nursery, kind)
            await stage.start_all()
            await stage.whole()

            async def stored(name: str, body: bytes) -> int:
                values = ("p", "plain", "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
                fields = dict(zip("abcdefghijkm", values, strict=True))
                address, command = f"{cluster.address(name)}:{PLAIN_PORT}", RequestCode.SEND_MESSAGE_V2
                while True:
                    try:
                        return (await client.invoke(address, request(command, fields, body), 5_000)).code
                    except RemotingError:  # the connection to the process that was there before
                        await trio.sleep(0.1)

            # given a master and its slave that are not led, at the name servers of the set
            master = await stage.start_plain("plain-master")
            slave = await stage.start_plain("plain-slave", brokerId="1", brokerRole="SLAVE")
            assert not master.role.is_slave
            assert await stored("plain-master", b"0") == 0
            await until(lambda: slave.store.max_queue_offset("plain", 0) == 1, 30)
            # when the master is lost for longer than a led one would be
            await stage.lose("plain-master")
            await trio.sleep(30)
            # then nobody is elected: the slave stays what its file says, and takes nothing
            assert (slave.role.is_slave, slave.role.broker_id, slave.role.epoch) == (True, 1, 0)
            assert await stored("plain-slave", b"1") != 0
            assert [set(each.metadata.groups) for each in stage.controllers.values()] == [
                {"broker-a"} for _ in stage.controllers
            ]
            # and the master that comes back is master, also when no controller is there
            await stage.lose(*stage.controllers)
            master = await stage.start_plain("plain-master")
            assert await stored("plain-master", b"2") == 0
            assert (master.role.is_slave, master.store.max_queue_offset("plain", 0)) == (False, 2)

    run_seed(scenario, 2)
