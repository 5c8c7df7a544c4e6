"""A container: brokers come and go live, and none of them touches its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.container.hosted import BrokerIdentity
from understudy.format.json_dialect import loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.background import open_background
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import SMALL_FILES, LocalCluster
from understudy.testkit.port_blocks import PortBlocks

IDENTITY = BrokerIdentity("DefaultCluster", "broker-x", 0)


def broker_file(folder: Path, name: str = "broker-x", **keys: object) -> str:
    properties: dict[str, object] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": 0,
        "storePathRootDir": folder / name,
        "storePathCommitLog": folder / name / "commitlog",
        **SMALL_FILES,
        **keys,
    }
    path = folder / f"{name}.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def address_of(container: BrokerContainer) -> str:
    return f"127.0.0.1:{container.server.address[1]}"


async def ask(client: RemotingClient, container: BrokerContainer, code: int, ext: dict[str, str] | None) -> Command:
    return await client.invoke(address_of(container), request(code, ext), 20_000)


async def send(client: RemotingClient, broker: Broker, topic: str = "T") -> Command:
    ext = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": ""}
    return await client.invoke(broker.identity.address, request(310, {**ext, "j": "0", "k": "false"}, b"x"), 5000)


def remove_ext(identity: BrokerIdentity = IDENTITY) -> dict[str, str]:
    return {
        "brokerName": identity.name,
        "brokerClusterName": identity.cluster,
        "brokerId": str(identity.broker_id),
    }


async def names_in_route(client: RemotingClient, cluster: LocalCluster) -> set[str]:
    answer = await client.invoke(cluster.namesrv_address, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3000)
    return set(loads(answer.body)["brokerAddrTable"])


@pytest.mark.covers("CU-04", "CU-07")
async def test_a_master_is_added_and_removed_live(tmp_path: Path) -> None:
    async with LocalCluster(1) as cluster, open_client(real_world()) as client:
        container = cluster.container
        added = await ask(client, container, RequestCode.ADD_BROKER, {"configPath": broker_file(tmp_path)})
        assert (0, None) == (added.code, added.remark)
        broker = cluster.brokers["broker-x"]
        assert {"broker-a", "broker-x"} == await names_in_route(client, cluster)
        assert 0 == (await send(client, broker)).code

        removed = await ask(client, container, RequestCode.REMOVE_BROKER, remove_ext())
        assert 0 == removed.code
        assert {"broker-a"} == set(cluster.brokers)
        assert {"broker-a"} == await names_in_route(client, cluster)
        with pytest.raises(OSError, match="refused"):
            await TcpNetwork().connect("127.0.0.1", broker.identity.port, 1)
        assert 0 == (await send(client, cluster.brokers["broker-a"])).code

        again = await ask(client, container, RequestCode.ADD_BROKER, {"configPath": broker_file(tmp_path)})
        assert 0 == again.code
        assert 1 == cluster.brokers["broker-x"].store.max_queue_offset("T", 0)


@pytest.mark.parametrize(
    ("keys", "remark"),
    [
        ({"brokerRole": "SLAVE"}, "slave broker id must be > 0"),
        ({"inSyncReplicas": 1, "minInSyncReplicas": 2, "totalReplicas": 2}, "invalid replicas number"),
        ({"brokerRole": "NONE"}, "brokerRole=NONE: expected one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"duplicationEnable": "true"}, "duplicationEnable=true is not supported"),
    ],
)
async def test_a_broker_that_cannot_be_is_refused_with_its_reason(
    tmp_path: Path, keys: Mapping[str, object], remark: str
) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        path = broker_file(tmp_path, **keys)
        refused = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})
        assert 1 == refused.code
        assert remark in (refused.remark or "")
        assert {} == cluster.brokers


@pytest.mark.covers("CT-02")
async def test_requests_without_a_usable_file_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.conf"
    empty.write_text("")
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        answers = [
            (await ask(client, cluster.container, RequestCode.ADD_BROKER, ext)).remark
            for ext in (None, {"configPath": ""}, {"configPath": "/nonexistent.conf"}, {"configPath": str(empty)})
        ]
        assert [
            "addBroker config path is empty",
            "addBroker config path is empty",
            "addBroker properties empty",
            "addBroker properties empty",
        ] == answers


@pytest.mark.covers("CU-08")
async def test_a_dledger_broker_is_said_to_be_unsupported(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        path = broker_file(tmp_path, enableDLegerCommitLog="true")
        refused = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})
        assert 1 == refused.code
        assert "enableDLegerCommitLog=true is not supported" in (refused.remark or "")


@pytest.mark.covers("CU-06")
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
async def test_a_port_in_use_refuses_the_broker_and_leaves_the_rest_alone(tmp_path: Path, role: str) -> None:
    async with LocalCluster(1) as cluster, open_client(real_world()) as client:
        taken = cluster.brokers["broker-a"].identity.port
        path = broker_file(tmp_path, listenPort=taken, brokerRole=role, brokerId=int(role == "SLAVE"))
        refused = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})
        assert 1 == refused.code
        assert f"{taken}: the port is in use" in (refused.remark or "")
        assert {"broker-a"} == set(cluster.brokers)
        assert 0 == (await send(client, cluster.brokers["broker-a"])).code


async def test_the_same_broker_twice_and_an_unknown_one(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        path = broker_file(tmp_path)
        await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})
        twice = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})
        unknown = await ask(
            client, cluster.container, RequestCode.REMOVE_BROKER, remove_ext(BrokerIdentity("C", "no", 0))
        )
        fields = await ask(client, cluster.container, RequestCode.REMOVE_BROKER, None)

        assert "DefaultCluster_broker-x_0 has already been added to current broker container" == twice.remark
        assert (211, "Broker not exist") == (unknown.code, unknown.remark)
        assert (1, "the request header has no field brokerClusterName") == (fields.code, fields.remark)


async def test_a_folder_held_by_a_neighbour_refuses_the_broker(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        first = broker_file(tmp_path)
        second = broker_file(
            tmp_path,
            "broker-y",
            storePathRootDir=tmp_path / "broker-x",
            storePathCommitLog=tmp_path / "broker-x" / "commitlog",
        )
        await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": first})
        refused = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": second})
        assert 1 == refused.code
        assert "is held by another process" in (refused.remark or "")


async def test_a_broker_that_fails_leaves_its_neighbours_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> None:
        raise RuntimeError("disk controller on fire")

    async with LocalCluster(2) as cluster, open_client(real_world()) as client:
        failing = cluster.brokers["broker-a"]
        (hosted,) = [each for each in cluster.container.brokers() if each.broker is failing]
        monkeypatch.setattr(failing.session.rules, "decide", explode)
        failing.session.look()
        with trio.fail_after(30):
            await hosted.stopped.wait()

        assert {"broker-b"} == set(cluster.brokers)
        assert 0 == (await send(client, cluster.brokers["broker-b"])).code
        identity = BrokerIdentity("DefaultCluster", "broker-a", 0)
        assert {identity: "RuntimeError: disk controller on fire"} == cluster.container.failures()
        assert "broker failed, its neighbours go on" in caplog.text


@pytest.mark.covers("CU-01")
async def test_a_container_starts_and_stops_twice_on_one_port(port_blocks: PortBlocks) -> None:
    (port,) = port_blocks.middles(1)
    for _ in range(2):
        options, _warnings = ContainerOptions.from_properties({"listenPort": str(port), "bindAddress": "127.0.0.1"})
        container = BrokerContainer(real_world(), options)
        async with open_background() as nursery:
            await nursery.start(container.run)
            assert port == container.server.address[1]
        with pytest.raises(OSError, match="refused"):
            await TcpNetwork().connect("127.0.0.1", port, 1)


class Hook:
    """Records its calls."""

    name = "recorder"

    def __init__(self, refuse: str = "") -> None:
        self.calls: list[tuple[str, str]] = []
        self.refuse = refuse

    async def before_start(self, options: BrokerOptions, properties: Mapping[str, str]) -> None:
        self.calls.append(("before", properties["brokerName"]))
        if properties["brokerName"] == self.refuse:
            raise ValueError("not on this host")

    async def after_start(self, broker: Broker, properties: Mapping[str, str]) -> None:
        self.calls.append(("after", broker.identity.name))


@pytest.mark.covers("CU-14")
async def test_boot_hooks_run_once_around_each_start_and_may_refuse(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        hook = Hook(refuse="broker-y")
        cluster.container.hooks.append(hook)
        fine = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": broker_file(tmp_path)})
        path = broker_file(tmp_path, "broker-y")
        refused = await ask(client, cluster.container, RequestCode.ADD_BROKER, {"configPath": path})

        assert (0, 1) == (fine.code, refused.code)
        assert "not on this host" in (refused.remark or "")
        assert [("before", "broker-x"), ("after", "broker-x"), ("before", "broker-y")] == hook.calls
        assert {"broker-x"} == set(cluster.brokers)


class SlowHook:
    """Keeps a start waiting until the test lets it go on."""

    name = "slow"

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.release = trio.Event()

    async def before_start(self, options: BrokerOptions, properties: Mapping[str, str]) -> None:
        self.entered.set()
        await self.release.wait()

    async def after_start(self, broker: Broker, properties: Mapping[str, str]) -> None:
        return


async def all_gone(container: BrokerContainer) -> None:
    with trio.fail_after(30):
        for connection in list(container.server.connections):
            await connection.closed.wait()


@pytest.mark.covers("CU-04")
async def test_an_add_goes_on_when_the_tool_that_asked_has_gone(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        container, hook = cluster.container, SlowHook()
        container.hooks.append(hook)
        connection = await client.connection(address_of(container), 3000)
        connection.notify(request(RequestCode.ADD_BROKER, {"configPath": broker_file(tmp_path)}))
        await hook.entered.wait()
        connection.close("the tool ended")
        await all_gone(container)

        hook.release.set()
        removed = await ask(client, container, RequestCode.REMOVE_BROKER, remove_ext())  # waits its turn
        assert 0 == removed.code
        assert {} == cluster.brokers


@pytest.mark.covers("CU-07")
async def test_a_removal_is_finished_when_the_tool_that_asked_has_gone(tmp_path: Path) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        container = cluster.container
        await container.add_broker_file(broker_file(tmp_path))
        (hosted,) = container.brokers()
        connection = await client.connection(address_of(container), 3000)
        connection.notify(request(RequestCode.REMOVE_BROKER, remove_ext()))
        for _ in range(500):
            if hosted.scope.cancel_called:
                break
            await trio.sleep(0.01)
        assert hosted.scope.cancel_called
        connection.close("the tool ended")
        with trio.fail_after(15):
            await hosted.stopped.wait()

        assert {} == cluster.brokers
        again = await ask(client, container, RequestCode.ADD_BROKER, {"configPath": broker_file(tmp_path)})
        assert 0 == again.code


@pytest.mark.covers("CU-10")
async def test_a_container_stops_while_a_broker_starts(tmp_path: Path) -> None:
    hook = SlowHook()
    options, _ = ContainerOptions.from_properties({"listenPort": "0", "brokerConfigPaths": broker_file(tmp_path)})
    container = BrokerContainer(real_world(), options, hooks=[hook])
    with trio.fail_after(15):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(container.run)
            await hook.entered.wait()
            nursery.cancel_scope.cancel()
    assert [] == container.brokers()


@pytest.mark.covers("CU-15")
async def test_the_container_shows_and_changes_its_configuration(tmp_path: Path) -> None:
    file = tmp_path / "container.conf"
    file.write_text("# ours\nlistenPort=0\nbindAddress=127.0.0.1\nupdateNamesrvAddrInterval=120000\n")
    options, warnings = ContainerOptions.from_properties(
        {"listenPort": "0", "bindAddress": "127.0.0.1", "nosuchKey": "1", "listenPrt": "2"}, str(file)
    )
    options.path = str(file)
    assert [
        f"{file}: unknown key nosuchKey is ignored",
        f"{file}: unknown key listenPrt is ignored, the nearest known key is listenPort",
    ] == warnings
    container = BrokerContainer(real_world(), options)
    async with open_background() as nursery, open_client(real_world()) as client:
        await nursery.start(container.run)

        async def update(body: bytes) -> Command:
            return await client.invoke(address_of(container), request(25, None, body), 3000)

        shown = await client.invoke(address_of(container), request(26), 3000)
        assert b"updateNamesrvAddrInterval=120000\n" in shown.body
        assert 0 == loads((shown.ext or {})["version"])["counter"]

        assert 0 == (await update(b"updateNamesrvAddrInterval=60000\n")).code
        fixed = await update(b"brokerConfigPaths=/x\nupdateNamesrvAddrInterval=1")
        assert (16, "Can not update config in black list.") == (fixed.code, fixed.remark)
        bad = await update(b"updateNamesrvAddrInterval=often")
        assert 29 == bad.code
        assert "updateNamesrvAddrInterval=often: expected a number above 0" in (bad.remark or "")

        again = await client.invoke(address_of(container), request(26), 3000)
        assert b"updateNamesrvAddrInterval=60000\n" in again.body
        assert 1 == loads((again.ext or {})["version"])["counter"]
        assert "# ours\nlistenPort=0\nbindAddress=127.0.0.1\nupdateNamesrvAddrInterval=60000\n" == file.read_text()
        assert 3 == (await client.invoke(address_of(container), request(105, {"topic": "T"}), 3000)).code


async def test_a_file_of_a_boot_broker_that_is_wrong_ends_the_start(tmp_path: Path) -> None:
    options, _ = ContainerOptions.from_properties(
        {"listenPort": "0", "bindAddress": "127.0.0.1", "brokerConfigPaths": str(tmp_path / "missing.conf")}
    )
    with pytest.raises(ExceptionGroup) as failure:
        async with open_background() as nursery:
            await nursery.start(BrokerContainer(real_world(), options).run)
    assert failure.group_contains(AddBrokerError, match=r"missing\.conf cannot be read: No such file")


def test_an_empty_list_of_broker_files_is_said_to_be_a_mistake() -> None:
    with pytest.raises(ValueError, match="brokerConfigPaths is empty: name broker files"):
        ContainerOptions.from_properties({"brokerConfigPaths": ""})
