"""``mqbrokercontainer --enable-proxy`` as an operator starts it: gRPC clients reach every broker of the container."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from grpc_client import open_client
from proxy_rig import User, message, receive_request, received

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import open_session
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

BIN = Path(sys.executable).parent
GROUP, TOPIC, BROKERS = "readers", "Normal", ("broker-a", "broker-b")
START_SECONDS, STOP_SECONDS = 90, 15


def begin(log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


@asynccontextmanager
async def running(folder: Path, name: str, mark: str, *options: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; entered when it has printed *mark*."""
    log = folder / f"{name}.log"
    process = begin(log, str(BIN / name), *options)
    try:

        async def begun() -> bool:
            return mark in log.read_text() or process.poll() is not None

        await eventually(begun, START_SECONDS)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def broker_file(folder: Path, name: str, port: int) -> str:
    keys = {
        "brokerName": name,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 2,
        "storePathRootDir": folder / name,
        "storePathCommitLog": folder / name / "commitlog",
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 6000,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
    }
    path = folder / f"{name}.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


async def receive(user: User, queue: v2.MessageQueue) -> tuple[v2.Status, list[v2.Message]]:
    """Receive from the broker of *queue*."""
    request = receive_request(GROUP, TOPIC)
    request.message_queue.CopyFrom(queue)
    stream = await user.begin("ReceiveMessage", request, timeout="20000m")
    await user.connection.wait(stream)
    return received(stream)


@pytest.mark.covers("R116")
async def test_grpc_clients_send_and_receive_through_each_broker_of_a_container(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    servers, control, proxy, *ports = port_blocks.middles(5)
    files = [broker_file(tmp_path, name, port) for name, port in zip(BROKERS, ports, strict=True)]
    (tmp_path / "namesrv.conf").write_text(f"listenPort={servers}\nkvConfigPath={tmp_path}/kv.json\n")
    (tmp_path / "container.conf").write_text(
        f"listenPort={control}\nnamesrvAddr=127.0.0.1:{servers}\nbrokerConfigPaths={':'.join(files)}\n"
    )
    keys = {"grpcServerPort": proxy, "remotingListenPort": 0, "localServeAddr": "127.0.0.1"}
    (tmp_path / "proxy.json").write_text(json.dumps(keys))
    options = ("-c", str(tmp_path / "container.conf"), "--enable-proxy", "-pc", str(tmp_path / "proxy.json"))
    world = real_world()
    async with (
        running(tmp_path, "mqnamesrv", "boot success", "-c", str(tmp_path / "namesrv.conf")),
        running(tmp_path, "mqbrokercontainer", "rocketmq-proxy startup successfully", *options) as container,
    ):
        async with open_session(world, f"127.0.0.1:{servers}") as session:
            for port in ports:
                await topics.save_topic(session, f"127.0.0.1:{port}", TopicSettings(TOPIC, 1, 1))
            await eventually(lambda: topics.exists(session, TOPIC), 30)
        async with open_client(world, ("127.0.0.1", proxy)) as connection:
            user = User(connection, "client")
            await user.consume(GROUP, TOPIC)
            request = v2.QueryRouteRequest(topic=v2.Resource(name=TOPIC))
            route = await user.ask("QueryRoute", request, v2.QueryRouteResponse)
            queues = {each.broker.name: each for each in route.message_queues}
            assert set(BROKERS) == queues.keys()
            for queue in queues.values():  # a new group begins with what comes after its first receive
                assert v2.MESSAGE_NOT_FOUND == (await receive(user, queue))[0].code
            for number in range(8):
                assert v2.OK == (await user.send(message(TOPIC, b"%d" % number, str(number)))).status.code
            bodies = []
            for name, queue in queues.items():
                status, got = await receive(user, queue)
                assert (v2.OK, 4) == (status.code, len(got))
                handles = [each.system_properties.receipt_handle for each in got]
                assert all(f" {name} " in handle for handle in handles)
                assert v2.OK == (await user.ack(GROUP, TOPIC, *handles)).status.code
                bodies += [each.body for each in got]
            assert [b"%d" % number for number in range(8)] == sorted(bodies)
        begin = time.monotonic()
        container.send_signal(signal.SIGTERM)
        assert 0 == await trio.to_thread.run_sync(lambda: container.wait(STOP_SECONDS)), "it did not stop well"
        assert time.monotonic() - begin < STOP_SECONDS
    assert "Traceback" not in (tmp_path / "mqbrokercontainer.log").read_text()
