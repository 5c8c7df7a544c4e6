"""A led group of three on one machine, in two commands or in one: its master is taken away, and another one leads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from understudy.format.json_dialect import loads
from understudy.mqclient.admin.cluster import cluster_info, remove_broker
from understudy.mqclient.api import Message, SendStatus, open_producer, real_world
from understudy.mqclient.errors import ClientError
from understudy.mqclient.producer import Producer
from understudy.mqclient.session import Session, open_session
from understudy.programs import up
from understudy.programs.up_places import LED_GROUP, REPLICAS, Places
from understudy.remoting.codes import RequestCode
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

CONF = Path(__file__).resolve().parents[2] / "conf" / "controller" / "quick"
BIN = Path(sys.executable).parent
START_SECONDS = 240.0


async def send(producer: Producer, body: bytes) -> None:
    """Send until it is stored by all that count."""
    with trio.fail_after(START_SECONDS):
        while True:
            try:
                if (await producer.send(Message("Orders", body))).status is SendStatus.OK:
                    return
            except ClientError:
                await trio.sleep(0.05)


async def addresses(session: Session) -> dict[int, str]:
    """Return where the replicas are, by id, as the name server has them."""
    try:
        groups = (await cluster_info(session)).brokers
    except ClientError:
        return {}
    return groups[LED_GROUP].addresses if LED_GROUP in groups else {}


async def in_sync(session: Session, controller: str) -> int:
    """Return how many replicas the controller has in the set: without another one in it nobody may lead."""
    answer = await session.call(
        controller, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=json.dumps([LED_GROUP]).encode()
    )
    return len(loads(answer.body)["replicasInfoTable"][LED_GROUP]["inSyncReplicas"])


async def check_failover(name_server: str, container: str, controller: str, ports: dict[int, str]) -> None:
    """Send, remove the master from its container, and send again.

    Args:
        name_server: of the group.
        container: of its replicas.
        controller: which leads it.
        ports: from the port of each to the id that its container has of it.
    """
    world = real_world()
    async with open_session(world, name_server) as session, open_producer(world, name_server, "writers") as producer:
        # given three replicas
        await eventually(partial(_all_are_there, session, controller), START_SECONDS)
        await send(producer, b"first")
        first = (await addresses(session))[0]
        # when the master is shut down
        await remove_broker(session, container, "DefaultCluster", LED_GROUP, int(ports[int(first.rpartition(":")[2])]))
        # then another one takes sends
        await send(producer, b"second")
        second = (await addresses(session))[0]
        assert first != second
        assert ports.keys() >= {int(second.rpartition(":")[2])}


async def _all_are_there(session: Session, controller: str) -> bool:
    found = await addresses(session)
    return len(found) == 3 and 0 in found and await in_sync(session, controller) == 3


def written(folder: Path, blocks: PortBlocks) -> dict[int, int]:
    """Write the ready set into *folder*, on free ports of the loopback; return the port in the place of each."""
    first = blocks.take()
    usual = (9876, 9878, 10811, 10911, 10931, 10951)
    ports = {port: first + 10 + 5 * number for number, port in enumerate(usual)}
    for path in CONF.iterdir():
        text = (
            path.read_text().replace("conf/controller/quick", str(folder)).replace("data/controller-quick", str(folder))
        )
        for port, other in ports.items():
            text = text.replace(f":{port}", f":{other}").replace(f"={port}", f"={other}")
        text += "bindAddress=127.0.0.1\n"
        if path.name.startswith("broker"):
            text += "brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\nmappedFileSizeCommitLog=1048576\n"
        if path.name == "namesrv.conf":
            text += f"controllerRaftPeers=n0-127.0.0.1:{first + 1}\n"
        (folder / path.name).write_text(text)
    return ports


@contextmanager
def program(*command: str, home: Path) -> Iterator[None]:
    """Run a program until the block ends; it must end well then."""
    environment = {**os.environ, "HOME": str(home), "UNDERSTUDY_LOG": "WARNING"}
    with (home / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen([str(BIN / command[0]), *command[1:]], stdout=log, stderr=log, env=environment)
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_SECONDS) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.covers("R147")
async def test_two_commands_are_a_led_group_of_three(tmp_path: Path) -> None:
    commands = [line.split()[1:] for line in (CONF / "container.conf").read_text().splitlines() if " -c conf/" in line]
    with PortBlocks(60) as blocks, ExitStack() as programs:
        ports = written(tmp_path, blocks)
        for command, option, path in commands[:2]:
            programs.enter_context(program(command, option, str(tmp_path / Path(path).name), home=tmp_path))
        await check_failover(
            f"127.0.0.1:{ports[9876]}",
            f"127.0.0.1:{ports[10811]}",
            f"127.0.0.1:{ports[9878]}",
            dict(zip((ports[10911], ports[10931], ports[10951]), ("0", "1", "2"), strict=True)),
        )
    assert "Traceback" not in (tmp_path / "mqbrokercontainer.log").read_text()


@asynccontextmanager
async def running(places: Places) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(up.serve, real_world(), places, live=False))
        yield
        nursery.cancel_scope.cancel()


async def test_one_command_is_a_led_group_of_three_that_finds_its_data_again(tmp_path: Path) -> None:
    with PortBlocks(50) as blocks:
        first = blocks.take()
        places = Places(
            str(tmp_path / "data"), "127.0.0.1", first, first + 5, first + 10, led=True, controller_port=first + 40
        )
        ids = {places.port_of(name): name.rpartition("-")[2] for name in REPLICAS}
        for _ in range(2):
            async with running(places):
                container = f"127.0.0.1:{places.container_port}"
                await check_failover(places.name_server, container, places.controller, ids)
