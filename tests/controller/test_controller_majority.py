"""The majority of the controllers is gone: messages flow through the name server that embeds one, elections wait."""

from __future__ import annotations

import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from understudy.mqclient.api import (
    ConsumeFrom,
    Producer,
    PullConsumerOptions,
    message,
    open_producer,
    open_pull_consumer,
    real_world,
)
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import Command, request
from understudy.testkit.sim_quorum_wait import until

BOOT_SECONDS = 60
BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@attrs.define
class Installation:
    """Three name servers, one of which embeds a controller; two controllers of their own; one broker."""

    folder: Path
    name_servers: list[int]
    api: dict[str, int]
    raft: dict[str, int]
    broker: int
    running: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    def start(self, name: str, command: str, text: str) -> None:
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        with (self.folder / f"{name}.out").open("ab") as out:
            arguments = [str(BIN / command), "-c", str(path)]
            self.running[name] = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def controller_keys(self, member: str) -> str:
        return (
            "controllerDLegerGroup=test\n"
            f"controllerDLegerPeers={';'.join(f'{m}-127.0.0.1:{p}' for m, p in self.api.items())}\n"
            f"controllerRaftPeers={';'.join(f'{m}-127.0.0.1:{p}' for m, p in self.raft.items())}\n"
            f"controllerDLegerSelfId={member}\n"
            f"controllerStorePath={self.folder / member}\n"
            f"configStorePath={self.folder / member}.properties\n"
            "bindAddress=127.0.0.1\n"
        )

    def start_all(self) -> None:
        for index in range(len(self.name_servers)):
            embedded = "enableControllerInNamesrv=true\n" + self.controller_keys("n0") if index == 0 else ""
            self.start_name_server(index, embedded)
        for member in ("n1", "n2"):
            self.start_controller(member)
        self.start_broker()

    def start_name_server(self, index: int, more: str = "") -> None:
        kv = self.folder / f"kv{index}.json"
        text = f"bindAddress=127.0.0.1\nlistenPort={self.name_servers[index]}\nkvConfigPath={kv}\n{more}"
        self.start(f"namesrv{index}", "mqnamesrv", text)

    def start_broker(self) -> None:
        store = self.folder / "store"
        self.start(
            "broker",
            "mqbroker",
            f"brokerClusterName=C\nbrokerName=a\nbrokerId=0\nbrokerIP1=127.0.0.1\nlistenPort={self.broker}\n"
            f"namesrvAddr={self.servers}\nstorePathRootDir={store}\nstorePathCommitLog={store}/commitlog\n"
            "mappedFileSizeCommitLog=4194304\nmappedFileSizeConsumeQueue=200000\ndiskMaxUsedSpaceRatio=95\n",
        )

    def start_controller(self, member: str) -> None:
        self.start(member, "mqcontroller", self.controller_keys(member))

    @property
    def servers(self) -> str:
        return ";".join(f"127.0.0.1:{port}" for port in self.name_servers)


@contextmanager
def installation(folder: Path) -> Iterator[Installation]:
    # a broker listens on its port and on those beside it
    ports = free_ports(10)
    made = Installation(
        folder,
        ports[:3],
        dict(zip(("n0", "n1", "n2"), ports[3:6], strict=True)),
        dict(zip(("n0", "n1", "n2"), ports[6:9], strict=True)),
        ports[9],
    )
    try:
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)


async def until_true(condition: Callable[[], Awaitable[object]], *, wanted: bool = True) -> None:
    """Ask other processes until they give what is wanted; the caller bounds it."""
    while True:
        if bool(await condition()) == wanted:
            return
        await trio.sleep(0.05)


async def ask(client: RemotingClient, port: int, code: int, **ext: str) -> Command:
    return await client.invoke(f"127.0.0.1:{port}", request(code, ext or None), 3000)


async def send_many(producer: Producer, label: str, count: int) -> list[float]:
    """Send one by one; return how long each took (seconds)."""
    took = []
    for number in range(count):
        began = trio.current_time()
        await producer.send(message("Traffic", f"{label}-{number}".encode()))
        took.append(trio.current_time() - began)
    return took


async def received(servers: str) -> set[str]:
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False)
    bodies: set[str] = set()
    async with open_pull_consumer(real_world(), servers, "readers", options) as consumer:
        await consumer.subscribe({"Traffic": "*"})
        with trio.move_on_after(20):
            while len(bodies) < 400:
                batch = await consumer.poll(timeout_ms=2000)
                bodies |= {each.body.decode() for each in batch}
    return bodies


@pytest.mark.slow
@pytest.mark.covers("R123", "R124", "R126", "R173", "R205")
async def test_messages_flow_and_elections_wait_while_two_of_three_controllers_are_dead(tmp_path: Path) -> None:
    with installation(tmp_path) as made:
        made.start_all()
        async with open_client(real_world()) as client:
            with trio.fail_after(BOOT_SECONDS):
                for name in ("namesrv0", "namesrv1", "namesrv2", "n1", "n2", "broker"):
                    await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)

                async def leader() -> str:
                    return ((await ask(client, made.api["n0"], 1005)).ext or {}).get("controllerLeaderId", "")

                await until_true(leader)
            # nothing else runs: no coordination service
            assert sorted(made.running) == ["broker", "n1", "n2", "namesrv0", "namesrv1", "namesrv2"]
            # a controller of its own answers no client: only name servers have routes
            assert (await ask(client, made.api["n1"], 105, topic="Traffic")).code == 3
            # the embedded controller alone: the other name servers have none and need none
            async with open_producer(real_world(), made.servers, "senders") as producer:
                before = await send_many(producer, "before", 200)

                # when both stand-alone controllers die
                made.kill("n1")
                made.kill("n2")
                with trio.fail_after(20):
                    await until_true(leader, wanted=False)

                # then sends through routes of the embedding name server go on as fast as before
                after = await send_many(producer, "after", 200)
            embedding = f"127.0.0.1:{made.name_servers[0]}"
            route = await ask(client, made.name_servers[0], 105, topic="Traffic")
            assert route.code == 0
            assert b'"brokerName":"a"' in route.body
            bodies = await received(embedding)
            assert len(bodies) == 400
            assert statistics.median(after) < 5 * statistics.median(before) + 0.005

            # and no election happens, which it says to who asks and in its log
            fields = {"clusterName": "C", "brokerName": "a", "brokerId": "1", "designateElect": "false"}
            refused = await ask(client, made.api["n0"], 1002, **fields)
            assert (refused.code, refused.remark) == (2007, "The controller is not in leader state")
            shown = await ask(client, made.api["n0"], 1051)
            assert b"#Leader\tunknown" in shown.body
            assert b"#Connected\tnobody" in shown.body
            await until(lambda: "no controller is active" in made.said("namesrv0"))
            assert "elections wait, routes and traffic go on" in made.said("namesrv0")

            # when one of them is back
            made.start_controller("n1")
            with trio.fail_after(BOOT_SECONDS):
                await until_true(leader)
            await until(lambda: "a controller is active again" in made.said("namesrv0"))


@pytest.mark.slow
@pytest.mark.covers("R154")
async def test_name_servers_are_restarted_one_by_one_under_traffic(tmp_path: Path) -> None:
    with installation(tmp_path) as made:
        made.start_all()
        for name in made.running:
            await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
        sent: list[float] = []
        stopping = trio.Event()

        async def traffic(producer: Producer) -> None:
            while not stopping.is_set():
                sent.extend(await send_many(producer, f"rolling-{len(sent)}", 1))
                await trio.sleep(0.01)

        async with open_producer(real_world(), made.servers, "senders") as producer, trio.open_nursery() as nursery:
            nursery.start_soon(traffic, producer)
            await until(lambda: len(sent) > 20)
            for index in range(3):
                name = f"namesrv{index}"
                process = made.running.pop(name)
                process.terminate()
                assert await trio.to_thread.run_sync(process.wait) == 0
                (made.folder / f"{name}.out").unlink()
                embedded = "enableControllerInNamesrv=true\n" + made.controller_keys("n0") if index == 0 else ""
                made.start_name_server(index, embedded)
                await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
                async with open_client(real_world()) as client:

                    async def registered(client: RemotingClient = client, port: int = made.name_servers[index]) -> bool:
                        return (await ask(client, port, 105, topic="Traffic")).code == 0

                    with trio.fail_after(BOOT_SECONDS):
                        await until_true(registered)
            seen = len(sent)
            await until(lambda: len(sent) > seen + 20)
            stopping.set()
        # every send of the whole time was acknowledged: a refused one would have raised


COLUMNS = {
    "old name server": (False, "", ()),
    "old name server and controllers of their own": (False, "", ("n0", "n1", "n2")),
    "new name server with a controller": (True, "enableControllerInNamesrv=true\n", ("n1", "n2")),
    "new name server without": (True, "enableControllerInNamesrv=false\n", ()),
}


@pytest.mark.slow
@pytest.mark.covers("R149", "R153", "R172")
@pytest.mark.parametrize("column", COLUMNS)
async def test_a_broker_without_controller_mode_runs_everywhere_and_never_switches(column: str, tmp_path: Path) -> None:
    keyed, switch, controllers = COLUMNS[column]
    with installation(tmp_path) as made:
        made.name_servers = made.name_servers[:1]
        made.start_name_server(0, switch + made.controller_keys("n0") if keyed else "")
        for member in controllers:
            made.start_controller(member)
        made.start_broker()
        for name in made.running:
            await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
        async with open_producer(real_world(), made.servers, "senders") as producer:
            await send_many(producer, "column", 10)
        async with open_client(real_world()) as client:
            if controllers:
                active = made.api[controllers[-1]]

                async def explained() -> Command:
                    leader = ((await ask(client, active, 1005)).ext or {}).get("controllerLeaderAddress")
                    if not leader:
                        return await ask(client, active, 1005)
                    return await client.invoke(leader, request(1050, {"brokerName": "a"}), 3000)

                async def unknown() -> bool:
                    return (await explained()).code == 2008

                with trio.fail_after(BOOT_SECONDS):
                    await until_true(unknown)  # no controller ever heard of the group: nobody can switch it
            made.kill("broker")

            async def gone() -> bool:
                return (await ask(client, made.name_servers[0], 105, topic="Traffic")).code == 17

            with trio.fail_after(BOOT_SECONDS):
                await until_true(gone)
