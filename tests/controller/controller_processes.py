"""An installation of real processes: name servers, one of which embeds a controller, controllers, a broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from understudy.mqclient.api import (
    ConsumeFrom,
    Producer,
    PullConsumerOptions,
    message,
    open_pull_consumer,
    real_world,
)
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command, request
from understudy.testkit.port_blocks import PortBlocks

BOOT_SECONDS = 60
BIN = Path(sys.executable).parent


@attrs.define
class Installation:
    """Three name servers, one of which embeds a controller; two controllers of their own; one broker."""

    folder: Path
    name_servers: list[int]
    api: dict[str, int]
    raft: dict[str, int]
    broker: int
    java_brokers: list[int]
    running: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)
    #: Where brokers and tools are sent to find a controller; the controllers themselves listen at 127.0.0.1.
    shown_host: str = "127.0.0.1"

    def start(self, name: str, command: str, text: str) -> None:
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        with (self.folder / f"{name}.out").open("ab") as out:
            arguments = [str(BIN / command), "-c", str(path)]
            self.running[name] = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def logged(self, member: str) -> str:
        """What a controller wrote into its own log file, embedded or not."""
        return (self.folder / member / "logs" / "controller.log").read_text()

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def controller_keys(self, member: str) -> str:
        return (
            "controllerDLegerGroup=test\n"
            f"controllerDLegerPeers={';'.join(f'{m}-{self.shown_host}:{p}' for m, p in self.api.items())}\n"
            f"controllerRaftPeers={';'.join(f'{m}-127.0.0.1:{p}' for m, p in self.raft.items())}\n"
            f"controllerDLegerSelfId={member}\n"
            f"controllerStorePath={self.folder / member}\n"
            f"configStorePath={self.folder / member}.properties\n"
            # generous: these tests are not about how fast a quorum elects
            "controllerRaftElectionMin=1000\ncontrollerRaftElectionMax=2000\ncontrollerRaftHeartbeat=250\n"
            "bindAddress=127.0.0.1\n"
        )

    def start_all(self) -> None:
        self.start_servers()
        self.start_broker()

    def start_servers(self) -> None:
        """Start every name server and controller that does not run."""
        for index in range(len(self.name_servers)):
            if f"namesrv{index}" not in self.running:
                embedded = "enableControllerInNamesrv=true\n" + self.controller_keys("n0") if index == 0 else ""
                self.start_name_server(index, embedded)
        for member in ("n1", "n2"):
            if member not in self.running:
                self.start_controller(member)

    def start_name_server(self, index: int, more: str = "") -> None:
        kv = self.folder / f"kv{index}.json"
        text = f"bindAddress=127.0.0.1\nlistenPort={self.name_servers[index]}\nkvConfigPath={kv}\n{more}"
        self.start(f"namesrv{index}", "mqnamesrv", text)

    def start_broker(self) -> None:
        """Start the broker when the name servers listen: one that finds nobody tries again only seconds later."""
        deadline = time.monotonic() + BOOT_SECONDS
        for name in [name for name in self.running if name.startswith("namesrv")]:
            while "boot success" not in self.said(name):
                assert time.monotonic() < deadline, f"{name} does not start: {self.said(name)}"
                time.sleep(0.02)
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
    with PortBlocks(10) as blocks:
        ports = blocks.middles(12)
        made = Installation(
            folder,
            ports[:3],
            dict(zip(("n0", "n1", "n2"), ports[3:6], strict=True)),
            dict(zip(("n0", "n1", "n2"), ports[6:9], strict=True)),
            ports[9],
            ports[10:],
        )
        try:
            yield made
        finally:
            for name in list(made.running):
                made.kill(name)


def alone(folder: Path, blocks: PortBlocks) -> tuple[str, int]:
    """Return the settings of a controller that is a quorum alone, with its store in *folder*, and its API port."""
    api, raft = blocks.middles(2)
    return (
        f"controllerDLegerPeers=n0-127.0.0.1:{api}\ncontrollerRaftPeers=n0-127.0.0.1:{raft}\n"
        f"controllerDLegerSelfId=n0\ncontrollerStorePath={folder / 'store'}\nbindAddress=127.0.0.1\n"
    ), api


def foreign_store(folder: Path, blocks: PortBlocks) -> Path:
    """Write the settings of a controller whose log another program wrote; return their file."""
    (folder / "store").mkdir()
    (folder / "store" / "raft.log").write_bytes(b"something else entirely")
    path = folder / "controller.conf"
    path.write_text(alone(folder, blocks)[0])
    return path


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


async def received(servers: str, count: int = 400, seconds: float = 60) -> set[str]:
    """Read the topic from its beginning until *count* different bodies were seen, or the time is over."""
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False)
    bodies: set[str] = set()
    async with open_pull_consumer(real_world(), servers, "readers", options) as consumer:
        await consumer.subscribe({"Traffic": "*"})
        with trio.move_on_after(seconds):
            while len(bodies) < count:
                batch = await consumer.poll(timeout_ms=2000)
                bodies |= {each.body.decode() for each in batch}
    return bodies
