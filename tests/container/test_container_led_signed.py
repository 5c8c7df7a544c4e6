"""Led brokers of containers that ask for signatures, over real sockets: copies, elections, and who gets in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from understudy.broker.broker import Broker
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.controller.configuration import read_config
from understudy.controller.server import Controller
from understudy.format.record import decode_records
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.properties import Properties, parse_properties
from understudy.runtime.world import real_world
from understudy.security.settings import read_security
from understudy.security.signature import Credentials, signer
from understudy.testkit.local_cluster import SMALL_FILES
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

ROOT = Credentials("rocketmq", "12345678")
SECURITY = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innersecret"}',
}
TOPIC = "orders"
JOIN_SECONDS = 60.0


@attrs.define
class Cluster:
    """A controller, and a container for each replica of one group."""

    folder: Path
    name_server: str
    controller: Controller
    client: RemotingClient
    brokers: dict[int, Broker] = attrs.field(factory=dict)
    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    ended: dict[int, trio.Event] = attrs.field(factory=dict)

    async def run_container(self, number: int, *, task_status: trio.TaskStatus[None]) -> None:
        keys = {"listenPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": self.name_server, **SECURITY}
        options, _ = ContainerOptions.from_properties(keys)
        container = BrokerContainer(real_world(), options)
        ended = self.ended[number] = trio.Event()
        with trio.CancelScope() as self.scopes[number]:
            async with trio.open_nursery() as nursery:
                await nursery.start(container.run)
                self.brokers[number] = await container.add_broker(self.keys(number))
                task_status.started()
        ended.set()

    def keys(self, number: int) -> dict[str, str]:
        return {
            "brokerName": "g",
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "enableControllerMode": "true",
            "controllerAddr": self.controller.address,
            "allAckInSyncStateSet": "true",
            "brokerHeartbeatInterval": "200",
            "storePathRootDir": str(self.folder / str(number)),
            "storePathCommitLog": str(self.folder / str(number) / "commitlog"),
            **SMALL_FILES,
            **SECURITY,
        }

    def in_sync(self, count: int) -> Broker | None:
        """Return the master once the set has *count* members."""
        group = self.controller.metadata.groups.get("g")
        if group is None or group.master_id is None or len(group.sync_state_set) != count:
            return None
        masters = [each for each in self.brokers.values() if each.role.epoch == group.master_epoch]
        return next((each for each in masters if not each.role.is_slave), None)

    async def ask(
        self, broker: Broker, code: int, ext: dict[str, str], body: bytes = b"", by: Credentials | None = ROOT
    ) -> Command:
        command = request(code, ext, body)
        if by is not None:
            signer(by)(command)
        return await self.client.invoke(broker.identity.address, command, 10_000)

    async def ask_at(self, address: str, code: int, by: Credentials | None) -> int:
        command = request(code)
        if by is not None:
            signer(by)(command)
        return (await self.client.invoke(address, command, 10_000)).code

    async def send(self, broker: Broker, body: bytes, by: Credentials | None = ROOT) -> Command:
        values = ("p", TOPIC, "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
        fields = dict(zip("abcdefghijkm", values, strict=True))
        return await self.ask(broker, RequestCode.SEND_MESSAGE_V2, fields, body, by)


@asynccontextmanager
async def running(folder: Path, nursery: trio.Nursery) -> AsyncIterator[Cluster]:
    world = real_world()
    config = NamesrvConfig(kv_config_path=f"{folder}/kv.json", config_store_path=f"{folder}/namesrv.properties")
    name_server = NameServer(world, config, "127.0.0.1", 0)
    await nursery.start(name_server.run)
    with PortBlocks(1) as blocks:
        text = (
            f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{blocks.middles(1)[0]}\n"
            f"controllerDLegerSelfId=n0\ncontrollerStorePath={folder}/controller\nbindAddress=127.0.0.1\n"
            f"configStorePath={folder}/controller.properties\nscanNotActiveBrokerInterval=300\n"
        )
        security = read_security(Properties(SECURITY, "controller.properties"))
        controller = Controller(world, read_config(parse_properties(text)), security)
        nursery.start_soon(controller.run)
        await until(lambda: controller.member.leads(), JOIN_SECONDS)
        async with open_client(world) as client:
            yield Cluster(folder, f"127.0.0.1:{name_server.address[1]}", controller, client)


def bodies(broker: Broker) -> list[bytes]:
    found = broker.store.get(TOPIC, 0, 0, 32, 1 << 20)
    return [record.body for part in found.parts for record in decode_records(part)]


async def test_signed_traffic_survives_the_end_of_a_container_over_real_sockets(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, nursery) as cluster:
        for number in (1, 2):
            await nursery.start(cluster.run_container, number)
            await until(lambda count=number: cluster.in_sync(count), JOIN_SECONDS)
        first = cluster.in_sync(2)
        assert first is cluster.brokers[1]
        # then who does not sign, or signs wrongly, gets nowhere
        for by in (None, Credentials("rocketmq", "wrong"), Credentials("mallory", "x")):
            assert (await cluster.send(first, b"unsigned", by)).code == 16
        # at the controller neither
        for by in (None, Credentials("mallory", "x")):
            assert (
                await cluster.ask_at(cluster.controller.address, RequestCode.CONTROLLER_GET_METADATA_INFO, by)
            ) == 16
        made = await cluster.ask(first, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1))
        assert made.code == 0, made.remark
        assert (await cluster.send(first, b"one")).code == 0
        # and the slave has log, topics and users, which it asked for with its own signature
        second = cluster.brokers[2]
        await until(lambda: TOPIC in second.topics.rows and bodies(second) == [b"one"], JOIN_SECONDS)
        # when the master's container ends, then the other replica is elected and lets in the same users
        cluster.scopes[1].cancel()
        del cluster.brokers[1]
        await until(lambda: cluster.in_sync(1) is second, JOIN_SECONDS)
        assert (await cluster.send(second, b"unsigned", None)).code == 16
        assert (await cluster.send(second, b"two")).code == 0
        # and the first one comes back as its slave
        await cluster.ended[1].wait()  # its store is free
        await nursery.start(cluster.run_container, 1)
        await until(lambda: cluster.in_sync(2) is second, JOIN_SECONDS)
        await until(lambda: bodies(cluster.brokers[1]) == [b"one", b"two"], JOIN_SECONDS)
        # what controllers and brokers say to each other was signed, and nothing of it refused
        refused = [line for line in caplog.messages if "not authenticated" in line and "user=inner" in line]
        assert [] == [line for line in caplog.messages if f"code={int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)}" in line]
        assert [] == refused
        nursery.cancel_scope.cancel()
