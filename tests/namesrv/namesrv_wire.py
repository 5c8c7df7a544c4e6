"""A name server on a free port and peers that speak to it in frames."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.command import Command, request
from understudy.remoting.frame import FrameReader, encode
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World

DATA = Path(__file__).parent.parent / "data" / "namesrv"


def captured(name: str) -> list[dict[str, Any]]:
    """Return the frames of a capture of 5.4.0, one dict each."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def world() -> World:
    return World(SystemClock(), TcpNetwork(), RealDisk(), random.Random(1))


def config_in(folder: Path, **changes: Any) -> NamesrvConfig:
    """Return settings whose files are in *folder*."""
    paths = {"kv_config_path": str(folder / "kvConfig.json"), "config_store_path": str(folder / "namesrv.conf")}
    return attrs.evolve(NamesrvConfig(), **(paths | changes))


@asynccontextmanager
async def running(config: NamesrvConfig, **options: Any) -> AsyncIterator[NameServer]:
    """Run a name server on a free port for the length of the block."""
    server = NameServer(options.pop("world", None) or world(), config, "127.0.0.1", 0, **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel()


class Peer:
    """One connection that sends frames and reads frames, whole ones, as bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._kept = b""

    async def send(self, command: Command) -> None:
        await self.stream.send_all(encode(command))

    async def receive_frame(self) -> bytes:
        with trio.fail_after(30):
            while True:
                if len(self._kept) >= 4:
                    size = 4 + int(struct.unpack_from(">i", self._kept)[0])
                    if len(self._kept) >= size:
                        frame, self._kept = self._kept[:size], self._kept[size:]
                        return frame
                more = await self.stream.receive_some(65536)
                if not more:
                    raise EOFError("closed by the server")
                self._kept += more

    async def receive(self) -> Command:
        (command,) = FrameReader().feed(await self.receive_frame())
        return command

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", version: int = 493) -> Command:
        """Send a request and return the answer."""
        command = request(code, ext, body)
        command.version = version
        await self.send(command)
        answer = await self.receive()
        assert answer.opaque == command.opaque
        assert answer.is_response
        return answer

    async def route(self, topic: str, **ext: str) -> dict[str, Any] | None:
        """Return the route of *topic*, or ``None`` when there is none."""
        answer = await self.ask(105, {"topic": topic, **ext})
        if answer.code == 17:
            return None
        assert answer.code == 0, answer.remark
        return dict(json.loads(answer.body))

    async def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        topics: dict[str, int],
        *,
        cluster: str = "C",
        version: tuple[int, int, int] = (0, 1, 5),
        **ext: str,
    ) -> Command:
        """Register a broker with *topics* (name to permission, two queues each); return the answer."""
        return await self.ask(
            103,
            {
                "brokerName": name,
                "brokerAddr": address,
                "clusterName": cluster,
                "haServerAddr": address + "1",
                "brokerId": str(broker_id),
                **ext,
            },
            registration_body(topics, version),
        )


def registration_body(topics: dict[str, int], version: tuple[int, int, int] = (0, 1, 5)) -> bytes:
    state_version, counter, timestamp = version
    return json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": counter, "stateVersion": state_version, "timestamp": timestamp},
                "topicConfigTable": {
                    topic: {"perm": perm, "readQueueNums": 2, "topicName": topic, "writeQueueNums": 2}
                    for topic, perm in topics.items()
                },
            },
        }
    ).encode()


@asynccontextmanager
async def connected(server: NameServer) -> AsyncIterator[Peer]:
    """Open a connection to *server* for the length of the block."""
    stream = await trio.open_tcp_stream(*server.address)
    async with stream:
        yield Peer(stream)
