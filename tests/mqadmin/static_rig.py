"""Two broker groups under virtual time, and a client of static topics as Java's is: it asks the leader of a queue."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs

from understudy.broker.broker import Broker
from understudy.format.json_dialect import loads
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.testkit.sim.cluster import NAME_SERVER_PORT, SimCluster
from understudy.testkit.sim.determinism import run_seed

TOPIC, GROUP = "ledger", "readers"
SUSPEND, SUBSCRIPTION = 2, 4
HOSTS = {"broker-a": "c1", "broker-b": "c2"}


@attrs.frozen
class Read:
    """The answer to a pull: its code, the bodies by logical offset, and where to go on."""

    code: int
    messages: tuple[tuple[int, bytes], ...]
    next_offset: int


class Client:
    """Sends to and reads from logical queues."""

    def __init__(self, cluster: SimCluster, client: RemotingClient) -> None:
        self.cluster = cluster
        self._client = client

    def broker(self, name: str) -> Broker:
        return self.cluster.brokers(HOSTS[name])[name]

    async def invoke(self, address: str, command: Command) -> Command:
        return await self._client.invoke(address, command, 5_000)

    async def route(self) -> dict[str, Any]:
        """Return what the name server tells of the topic."""
        server = f"{self.cluster.address('n1')}:{NAME_SERVER_PORT}"
        ext = {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
        answer = await self._client.invoke(server, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext), 5_000)
        assert answer.code == 0, answer.remark
        found: dict[str, Any] = loads(answer.body)
        return found

    async def mappings(self) -> dict[str, dict[str, Any]]:
        """Return what the name server tells of the mapping, by group."""
        return (await self.route()).get("topicQueueMappingByBroker") or {}

    async def address(self, name: str) -> str:
        """Return the address of the master of group *name*, or of who is shown in its place."""
        (address,) = [
            each["brokerAddrs"]["0"] for each in (await self.route())["brokerDatas"] if each["brokerName"] == name
        ]
        return str(address)

    async def leader(self, global_id: int) -> str:
        """Return the group that leads a logical queue, as clients find it: in the newest mapping that names it."""
        leaders = [
            (info["epoch"], name)
            for name, info in (await self.mappings()).items()
            if str(global_id) in info["currIdMap"]
        ]
        return max(leaders)[1]

    async def ask(self, global_id: int, code: int, at: str | None = None, **fields: object) -> Command:
        name = at or await self.leader(global_id)
        ext = {"topic": TOPIC, "queueId": str(global_id), "bname": name}
        ext |= {key: str(value) for key, value in fields.items()}
        return await self._client.invoke_repeatable(await self.address(name), request(code, ext), 40_000)

    async def send(self, global_id: int, body: bytes, at: str | None = None, properties: str = "") -> Command:
        name = at or await self.leader(global_id)
        ext = {"a": "writers", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(global_id), "f": "0", "g": "1", "h": "0"}
        ext |= {"i": properties, "n": name}
        command = request(RequestCode.SEND_MESSAGE_V2, ext, body)
        return await self._client.invoke_repeatable(await self.address(name), command, 5_000)

    async def pull(
        self, global_id: int, offset: int, *, wait_ms: int = 0, most: int = 32, at: str | None = None
    ) -> Read:
        fields = {"consumerGroup": GROUP, "queueOffset": offset, "maxMsgNums": most, "commitOffset": 0, "subVersion": 0}
        flag = SUBSCRIPTION | (SUSPEND if wait_ms else 0)
        answer = await self.ask(
            global_id,
            RequestCode.PULL_MESSAGE,
            at,
            sysFlag=flag,
            suspendTimeoutMillis=wait_ms,
            subscription="*",
            **fields,
        )
        ext = answer.ext or {}
        if "nextBeginOffset" not in ext:
            return Read(answer.code, (), -1)
        shift = int(ext["offsetDelta"])
        records = decode_records(answer.body) if answer.body else ()
        found = tuple((record.queue_offset + shift, record.body) for record in records)
        return Read(answer.code, found, int(ext["nextBeginOffset"]))

    async def read_all(self, global_id: int, offset: int = 0) -> list[tuple[int, bytes]]:
        """Follow a queue from *offset* to where nothing more is found; return the bodies with their logical offsets."""
        found: list[tuple[int, bytes]] = []
        while True:
            read = await self.pull(global_id, offset)
            found += read.messages
            if read.code == 19:  # nothing more
                return found
            assert read.code in (0, 20), read
            assert read.next_offset > offset
            offset = read.next_offset

    async def offset_of(self, global_id: int, code: int, **fields: object) -> int:
        answer = await self.ask(global_id, code, **fields)
        assert answer.code == 0, (answer.code, answer.remark)
        return int((answer.ext or {})["offset"])


@asynccontextmanager
async def open_groups(source: random.Random, **keys: str) -> AsyncIterator[Client]:
    """Run two groups with a master each, and with *keys* in its settings, in containers of their own."""
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        for name, host in HOSTS.items():
            await cluster.start_container(host, [{"brokerName": name, **keys}])
        async with open_client(cluster.client_world()) as client:
            yield Client(cluster, client)


def run(scenario: Callable[[random.Random], Awaitable[None]], seed: int = 1) -> None:
    run_seed(scenario, seed)
