"""The ready sets of ``conf/`` keep what their heads promise when a machine breaks, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
import trio

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import ContainerOptions
from understudy.format.record import decode_records
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import SendStatus, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.namesrv.config import read_config
from understudy.runtime.disk import RealDisk
from understudy.runtime.properties import Properties
from understudy.runtime.property_file import read_properties_file
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

CONF = Path(__file__).resolve().parents[2] / "conf"
SETS = ("2m-2s-async", "2m-2s-sync", "2m-noslave", "acting")
OF_THE_HOST = ("namesrvAddr", "listenPort", "storePathRootDir")
"""Keys that the heads say to change when a set is spread over hosts."""


def keys(path: Path) -> Properties:
    return read_properties_file(RealDisk(), str(path), None)


def broker_files(name: str) -> list[Path]:
    return sorted((CONF / name).glob("broker-*.properties"))


def spread(name: str) -> dict[str, Mapping[str, str]]:
    """Return the keys of each broker of a set by the name of its file, for a host of its own."""
    return {
        path.stem: {key: text for key, text in keys(path).items() if key not in OF_THE_HOST}
        for path in broker_files(name)
    }


FLUSHED_SECONDS = 1.6
"""After these all is flushed: flushCommitLogThoroughInterval of the sets, and half a second to the next look."""
SILENCE_SECONDS = 180
FROM_FIRST = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


# --- as they are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_a_set_runs_on_one_host_as_it_is(name: str) -> None:
    machine = Machine("host", "10.0.0.1", "/store")
    taken: dict[int, str] = {9876: "name server"}
    folders = set()
    for path in broker_files(name):
        options, warnings = BrokerOptions.from_properties(keys(path), machine=machine)
        assert [] == warnings
        assert options.broker.namesrv_addr == (None if name == "acting" else "127.0.0.1:9876")  # or its container's
        port = options.server.listen_port
        for each in (port, port - 2, port + 1):
            assert taken.setdefault(each, path.name) == path.name
        folders.add(options.store.store_path_root_dir)
        # and the head says how to begin, with files that are there
        head = path.read_text().partition("\n\n")[0]
        named = [line.split()[-1] for line in head.splitlines() if " -c conf/" in line]
        assert len(named) >= 3
        assert all((CONF.parent / each).is_file() for each in named), named
        assert {"namesrvAddr", "brokerIP1", "storePathRootDir"} <= set(head.replace(",", " ").split())
    assert len(folders) == len(broker_files(name))


def test_the_containers_and_the_name_server_of_the_acting_set_read_their_files() -> None:
    hosted = []
    for number in (1, 2):
        options, warnings = ContainerOptions.from_properties(keys(CONF / "acting" / f"container-{number}.conf"))
        assert [] == warnings
        hosted += options.broker_files()
    assert sorted(hosted) == [f"conf/acting/{path.name}" for path in broker_files("acting")]
    config, warnings = read_config(keys(CONF / "acting" / "namesrv.conf"))
    assert ([], True, True) == (warnings, config.support_acting_master, config.notify_min_broker_id_changed)


# --- broken machines ---------------------------------------------------------------------------------------------


class Readers:
    """A consumer group that notes the bodies it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        self.got += [bytes(message.body).decode() for message in messages]

    async def until(self, wanted: set[str], seconds: float) -> set[str]:
        """Wait until everything *wanted* has come; return what has not."""
        for _ in range(int(seconds * 10)):
            if wanted <= set(self.got):
                break
            await trio.sleep(0.1)
        return wanted - set(self.got)


async def send(cluster: SimCluster, first: int, count: int) -> dict[str, tuple[str, SendStatus]]:
    """Send messages; return of those that were stored the broker and the status, by body."""
    found = {}
    async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
        for number in range(first, first + count):
            try:
                result = await producer.send(Message("orders", f"m{number}".encode()))
            except ClientError:
                continue
            found[f"m{number}"] = (result.queue.broker_name, result.status)
    return found


async def start(cluster: SimCluster, name: str, **settings: object) -> None:
    await cluster.start_name_server("n1", **settings)
    for host, broker in spread(name).items():
        await cluster.start_container(host, [broker])
    await trio.sleep(15)


async def sync_set(source: random.Random) -> None:
    async with SimCluster(source) as cluster:
        await start(cluster, "2m-2s-sync", support_acting_master=False)
        # given messages that were answered SEND_OK
        sent = await send(cluster, 0, 40)
        assert {status for _, status in sent.values()} == {SendStatus.OK}
        assert {broker for broker, _ in sent.values()} == {"broker-a", "broker-b"}
        # when the machine of a master is lost, then its slave has every one of them
        await cluster.kill("broker-a", power=True)
        store = cluster.brokers("broker-a-s")["broker-a"].store
        copied = sum(store.max_queue_offset("orders", queue) for topic, queue in store.queues() if topic == "orders")
        assert copied == sum(broker == "broker-a" for broker, _ in sent.values())
        # and when the machine is back, consumers get them all
        await cluster.restart("broker-a")
        readers = Readers()
        async with open_push_consumer(
            cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, readers.listen, FROM_FIRST
        ):
            assert set() == await readers.until(set(sent), 60)
        # and when instead a slave is lost, then nothing is answered SEND_OK by its master alone
        await cluster.kill("broker-b-s", power=True)
        await trio.sleep(5)
        master = cluster.brokers("broker-b")["broker-b"]
        before = master.stats.put_total
        alone = await send(cluster, 100, 24)
        assert ("broker-b", SendStatus.OK) not in alone.values()
        assert ("broker-a", SendStatus.OK) in alone.values()
        assert master.stats.put_total > before


async def async_set(source: random.Random) -> None:
    async with SimCluster(source) as cluster:
        await start(cluster, "2m-2s-async", support_acting_master=False)
        sent = await send(cluster, 0, 40)
        assert {broker for broker, _ in sent.values()} == {"broker-a", "broker-b"}
        await trio.sleep(1)
        # when a master is away, then consumers read at its slave and producers go on with the other group
        await cluster.kill("broker-a")
        readers = Readers()
        async with open_push_consumer(
            cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, readers.listen, FROM_FIRST
        ):
            assert set() == await readers.until(set(sent), 120)
            more = await send(cluster, 100, 8)
            assert {("broker-b", SendStatus.OK)} == set(more.values())
            # and when it is back, nothing is missing
            await cluster.restart("broker-a")
            assert set() == await readers.until(set(sent) | set(more), 120)


async def single_set(source: random.Random) -> None:
    async with SimCluster(source) as cluster:
        await start(cluster, "2m-noslave", support_acting_master=False)
        sent = await send(cluster, 0, 40)
        held = {body for body, (broker, _) in sent.items() if broker == "broker-a"}
        assert held
        await cluster.kill("broker-a")
        more = await send(cluster, 100, 8)
        assert {("broker-b", SendStatus.OK)} == set(more.values())
        readers = Readers()
        async with open_push_consumer(
            cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, readers.listen, FROM_FIRST
        ):
            # then what it holds waits until it is back
            assert held == await readers.until(set(sent) | set(more), 60)
            await cluster.restart("broker-a")
            assert set() == await readers.until(set(sent) | set(more), 120)


async def acting_set(source: random.Random) -> None:
    async with SimCluster(source) as cluster:
        name_server = keys(CONF / "acting" / "namesrv.conf")
        config, _ = read_config(name_server)
        await cluster.start_name_server("n1", support_acting_master=config.support_acting_master)
        brokers = spread("acting")
        await cluster.start_container("c1", [brokers["broker-a"], brokers["broker-b-s"]])
        await cluster.start_container("c2", [brokers["broker-b"], brokers["broker-a-s"]])
        await trio.sleep(15)
        sent = await send(cluster, 0, 40)
        assert {broker for broker, _ in sent.values()} == {"broker-a", "broker-b"}
        assert {status for _, status in sent.values()} == {SendStatus.OK}
        # when the machine with one master and the other's slave is lost
        await cluster.kill("c1", power=True)
        await trio.sleep(15)
        slave = cluster.brokers("c2")["broker-a"]
        assert slave.session.rules.active, slave.session.rules.reason
        readers = Readers()
        async with open_push_consumer(
            cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, readers.listen, FROM_FIRST
        ):
            # then its slave acts, nothing is missing, and sends go on with one copy
            assert set() == await readers.until(set(sent), 60)
            more = await send(cluster, 100, 8)
            assert {("broker-b", SendStatus.OK)} == set(more.values())
            # and it gets its part back
            await cluster.restart("c1")
            await trio.sleep(30)
            assert not slave.session.rules.active
            back = await send(cluster, 200, 12)
            assert {broker for broker, _ in back.values()} == {"broker-a", "broker-b"}
            assert set() == await readers.until(set(sent) | set(more) | set(back), 60)


async def lose_power(cluster: SimCluster) -> tuple[set[str], set[str]]:
    """Take the power of a master away right after a send; return what was sent a second before, and what after that."""
    early = await send(cluster, 0, 40)
    await trio.sleep(FLUSHED_SECONDS)
    late = await send(cluster, 100, 16)
    assert (
        {broker for broker, _ in early.values()} == {broker for broker, _ in late.values()} == {"broker-a", "broker-b"}
    )
    await cluster.kill("broker-a", power=True)
    return set(early), {body for body, (broker, _) in late.items() if broker == "broker-a"}


async def single_set_without_power(source: random.Random) -> set[str]:
    async with SimCluster(source) as cluster:
        await start(cluster, "2m-noslave", support_acting_master=False)
        early, late = await lose_power(cluster)
        await cluster.restart("broker-a")
        readers = Readers()
        async with open_push_consumer(
            cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, readers.listen, FROM_FIRST
        ):
            # then nothing is lost but what was sent in the last second, and it goes on
            lost = await readers.until(early | late, 60)
            assert lost <= late
            more = await send(cluster, 200, 16)
            assert {broker for broker, _ in more.values()} == {"broker-a", "broker-b"}
            assert set() == await readers.until(set(more), 60)
        return lost


async def async_set_without_power(source: random.Random) -> set[str]:
    async with SimCluster(source) as cluster:
        await start(cluster, "2m-2s-async", support_acting_master=False)
        client, live, readers = cluster.client_world("reader"), Readers(), Readers()
        first = set(await send(cluster, 300, 16))
        async with open_push_consumer(client, cluster.name_servers, "live", {"orders": "*"}, live.listen, FROM_FIRST):
            assert set() == await live.until(first, 60)
            await trio.sleep(10)  # until it has committed
            early, late = await lose_power(cluster)
            # then a group that comes now reads at the slave, once the name server takes the silent machine for lost
            async with open_push_consumer(
                cluster.client_world("other"),
                cluster.name_servers,
                "others",
                {"orders": "*"},
                readers.listen,
                FROM_FIRST,
            ):
                assert await readers.until(first | early | late, SILENCE_SECONDS) <= late
            # and when the machine is back, only what was sent in the last second is lost, and nobody skips what follows
            await cluster.restart("broker-a")
            more = await send(cluster, 200, 16)
            assert {broker for broker, _ in more.values()} == {"broker-a", "broker-b"}
            assert await live.until(first | early | late | set(more), 90) <= late
        stores = [cluster.brokers(host)["broker-a"].store for host in ("broker-a", "broker-a-s")]
        of_master, of_slave = (bodies(each) for each in stores)
        of_group = {body for body, (broker, _) in more.items() if broker == "broker-a"}
        assert of_master >= of_group
        # a slave that has what its master lost follows it no more, and says so, instead of mixing both logs
        follower = cluster.brokers("broker-a-s")["broker-a"].replication.slave
        assert follower is not None
        if late & of_slave - of_master:
            assert not of_slave & of_group
            assert follower.progress().refusal
        else:
            assert of_slave == of_master
        return late - of_master


def bodies(store: MessageStore) -> set[str]:
    """Return the bodies of all messages of the topic in *store*."""
    found = (store.get("orders", queue, 0, 999, 1 << 22) for topic, queue in store.queues() if topic == "orders")
    return {record.body.decode() for each in found for part in each.parts for record in decode_records(part)}


@pytest.mark.parametrize(
    "play_loss", [single_set_without_power, async_set_without_power], ids=lambda play: play.__name__
)
def test_a_loss_of_power_takes_the_last_second_and_nothing_else(
    play_loss: Callable[[random.Random], Awaitable[set[str]]],
) -> None:
    lost = [run_seed(play_loss, seed) for seed in range(1, 5)]
    assert any(lost)  # or the disks lost nothing, and nothing was shown


@pytest.mark.parametrize("check_promise", [sync_set, async_set, single_set, acting_set], ids=lambda play: play.__name__)
def test_a_set_keeps_its_promise_when_a_machine_breaks(
    check_promise: Callable[[random.Random], Awaitable[None]],
) -> None:
    run_seed(check_promise, 1)
