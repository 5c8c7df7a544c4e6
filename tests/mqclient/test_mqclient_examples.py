"""The examples do what they say."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio

from understudy.container.broker_files import AddBrokerError
from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.errors import ClientError
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.session import open_session
from understudy.remoting.codes import RequestCode
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually, until

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_what_is_sent_is_consumed_and_polled(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def seen(text: str) -> bool:
        printed.append(capsys.readouterr().out)
        return text in "".join(printed)

    async with LocalCluster() as cluster:
        servers = cluster.namesrv_address
        await load("send").main(servers)
        assert seen(" offset 0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load("consume").main, servers)
            await until(lambda: seen("part 9"))
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load("poll").main, servers)
            await until(lambda: seen("messages of MessageQueue"))
            nursery.cancel_scope.cancel()


async def test_a_test_of_ones_own() -> None:
    await load("whole_cluster_in_a_test").test_my_code_can_send()


async def test_a_container_of_ones_own_with_hooks_around_each_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with LocalCluster() as cluster, trio.open_nursery() as nursery:
        container = await nursery.start(load("embedded_container").main, cluster.namesrv_address, str(tmp_path))
        names = [each.identity.name for each in container.brokers()]
        with pytest.raises(AddBrokerError, match="only brokers of the cluster Mine live here"):
            await container.add_broker({"brokerClusterName": "Theirs", "brokerName": "c", "listenPort": "0"})
        async with open_producer(real_world(), cluster.namesrv_address, "pg") as producer:
            await eventually(partial(knows, producer, {"mine-a", "mine-b"}))
        nursery.cancel_scope.cancel()
    assert names == ["mine-a", "mine-b"]
    assert "starting mine-a\n" in capsys.readouterr().out


async def knows(producer: Producer, brokers: set[str]) -> bool:
    info = await cluster_info(producer.session)
    return brokers <= set(info.brokers)


async def test_a_name_server_of_ones_own_with_a_controller(tmp_path: Path, port_blocks: PortBlocks) -> None:
    (port,) = port_blocks.middles(1)
    async with trio.open_nursery() as nursery:
        server = await nursery.start(load("embedded_name_server").main, str(tmp_path), 0, port)
        async with open_session(real_world(), f"127.0.0.1:{server.address[1]}") as session:

            async def leads() -> bool:
                try:
                    answer = await session.call(f"127.0.0.1:{port}", RequestCode.CONTROLLER_GET_METADATA_INFO)
                except ClientError:
                    return False
                return (answer.ext or {}).get("controllerLeaderId") == "n0"

            await eventually(leads)
        nursery.cancel_scope.cancel()
