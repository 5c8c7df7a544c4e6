"""The same failover with real processes, real sockets and SIGKILL, on this machine.

Three container processes and a name server; the times are those of this machine under whatever else it does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.json_dialect import loads
from understudy.runtime.world import real_world
from understudy.testkit.history import History, Verdict
from understudy.testkit.ring import CONTAINERS, GROUPS, brokers_of, container_of

TOPIC, READERS = "orders", "readers"
_HOST = "127.0.0.1"
_LOOK_SECONDS = 0.005
_SMALL = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
}


class DrillError(Exception):
    """Something did not happen in time; the message says what was waited for."""


@attrs.define
class RealOutcome:
    """What a run showed; steps are names with seconds after the fault."""

    group: str
    steps: list[tuple[str, float]]
    report: dict[str, Any] | None
    verdict: Verdict


class RealRun:
    """One run.

    Args:
        source: chooses the group whose master dies.
        suspend: freeze the process (SIGSTOP) and let it go on, instead of killing and starting it.
        quiet_seconds: traffic before the fault, while the slave acts, and after the return.
    """

    def __init__(self, source: random.Random, *, suspend: bool = False, quiet_seconds: float = 5.0) -> None:
        self._suspend = suspend
        self._group = source.choice(GROUPS)
        self._quiet = quiet_seconds
        self._folder = Path(tempfile.mkdtemp(prefix="understudy-drill-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._ports = _free_ports(4)
        self._history = History()
        self._sending = True
        self._steps: list[tuple[str, float]] = []
        self._fault_at = 0.0
        self._client: RemotingClient

    async def play(self) -> RealOutcome:
        """Play it; every process and file is gone afterwards. Raises :class:`DrillError`."""
        try:
            return await self._play()
        finally:
            for name in list(self._processes):
                self._kill(name)
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _play(self) -> RealOutcome:
        self._configure()
        for name in ("n1", *CONTAINERS):
            self._start(name)
        servers = f"{_HOST}:{self._ports[0]}"
        options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, ordered=True)
        async with open_client(real_world()) as self._client:
            await self._until("the ring is complete", self._complete, 60)
            for group in GROUPS:
                await self._make_topic(group)
            await trio.sleep(4)
            async with (
                open_producer(real_world(), servers, "writers") as producer,
                open_push_consumer(real_world(), servers, READERS, {TOPIC: "*"}, self._listen, options),
                trio.open_nursery() as nursery,
            ):
                for number in range(3):
                    nursery.start_soon(self._send, producer, f"sender-{number}", 0)
                nursery.start_soon(self._send, producer, "delayed", 1)
                await trio.sleep(self._quiet)
                await self._fail()
                await trio.sleep(self._quiet)
                await self._return()
                await trio.sleep(self._quiet)
                self._sending = False
                await self._drain()
                nursery.cancel_scope.cancel()
        return RealOutcome(self._group, self._steps, self._report(), self._history.check([READERS]))

    # --- processes ---------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        folder = self._folder
        python = sys.executable
        settings = {
            "listenPort": str(self._ports[0]),
            "supportActingMaster": "true",
            "notifyMinBrokerIdChanged": "true",
            "kvConfigPath": str(folder / "namesrv" / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv" / "namesrv.properties"),
        }
        (folder / "namesrv").mkdir()
        self._commands["n1"] = [python, "-m", "understudy.namesrv.main", "-c", self._file("n1.conf", settings)]
        for index, name in enumerate(CONTAINERS):
            base = self._ports[1 + index]
            files = []
            for number, keys in enumerate(brokers_of(name, _SMALL)):
                store = folder / f"{keys['brokerName']}-{keys['brokerId']}"
                place = {
                    "brokerClusterName": "drill",
                    "brokerIP1": _HOST,
                    "brokerIP2": _HOST,
                    "listenPort": str(base + 10 * (number + 1)),
                    "storePathRootDir": str(store),
                    "storePathCommitLog": str(store / "commitlog"),
                }
                files.append(self._file(f"{name}-{number}.conf", {**keys, **place}))
            own = {"listenPort": str(base), "namesrvAddr": f"{_HOST}:{self._ports[0]}"}
            self._commands[name] = [
                *(python, "-m", "understudy.container.mqbrokercontainer"),
                *("-c", self._file(f"{name}.conf", own), "-b", ":".join(files)),
            ]

    def _file(self, name: str, keys: dict[str, str]) -> str:
        path = self._folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="latin-1")
        return str(path)

    def _start(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as output:
            environment = {**os.environ, "ROCKETMQ_HOME": str(self._folder)}
            self._processes[name] = subprocess.Popen(
                self._commands[name], stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _address(self, group: str, broker_id: int) -> str:
        name = container_of(group, broker_id)
        number = next(
            index
            for index, keys in enumerate(brokers_of(name))
            if keys["brokerName"] == group and keys["brokerId"] == str(broker_id)
        )
        return f"{_HOST}:{self._ports[1 + CONTAINERS.index(name)] + 10 * (number + 1)}"

    def _report(self) -> dict[str, Any] | None:
        path = self._folder / f"{self._group}-0" / "config" / "preOnline.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    # --- questions ---------------------------------------------------------------------------------------------

    async def _ask(self, address: str, code: int, ext: dict[str, str] | None = None) -> Command | None:
        try:
            answer = await self._client.invoke(address, request(code, ext), 1_000)
        except RemotingError:
            return None
        return answer if answer.code == 0 else None

    async def _members(self, group: str) -> dict[int, str]:
        ext = {"clusterName": "drill", "brokerName": group}
        answer = await self._ask(f"{_HOST}:{self._ports[0]}", RequestCode.GET_BROKER_MEMBER_GROUP, ext)
        listed = {} if answer is None else loads(answer.body)["brokerMemberGroup"]["brokerAddrs"]
        return {int(number): str(address) for number, address in listed.items()}

    async def _active(self, group: str, broker_id: int) -> bool:
        answer = await self._ask(self._address(group, broker_id), RequestCode.GET_BROKER_RUNTIME_INFO)
        return answer is not None and loads(answer.body)["table"]["brokerActive"] == "true"

    async def _complete(self) -> bool:
        for group in GROUPS:
            if sorted(await self._members(group)) != [0, 1, 2] or not await self._active(group, 0):
                return False
        return True

    async def _routed_to(self, address: str) -> bool:
        answer = await self._ask(f"{_HOST}:{self._ports[0]}", RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        if answer is None:
            return False
        groups = {each["brokerName"]: each["brokerAddrs"] for each in loads(answer.body)["brokerDatas"]}
        return {int(number): place for number, place in groups.get(self._group, {}).items()}.get(0) == address

    async def _make_topic(self, group: str) -> None:
        ext = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        if await self._ask(self._address(group, 0), RequestCode.UPDATE_AND_CREATE_TOPIC, ext) is None:
            raise DrillError(f"the topic could not be made at {group}")

    async def _until(self, what: str, question: Callable[[], Awaitable[bool]], seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not await question():  # noqa: ASYNC110 - the condition is in other processes
                await trio.sleep(_LOOK_SECONDS)
            return
        raise DrillError(f"not within {seconds:g} s: {what}")

    def _note(self, name: str) -> None:
        self._steps.append((name, trio.current_time() - self._fault_at))

    # --- traffic and fault -------------------------------------------------------------------------------------

    async def _send(self, producer: Producer, sender: str, level: int) -> None:
        number = 0
        while self._sending:
            key = f"{sender}-{number}"
            number += 1
            lane = key if level else sender
            try:
                sent = await producer.send(Message(TOPIC, key.encode(), {"DELAY": "2"} if level else {}))
            except ClientError:
                self._history.sent(key, lane, None, acknowledged=False)
            else:
                queue = (sent.queue.topic, sent.queue.broker_name, sent.queue.queue_id)
                self._history.sent(key, lane, queue, acknowledged=True)
            await trio.sleep(0.02)

    async def _listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        queue = (context.queue.topic, context.queue.broker_name, context.queue.queue_id)
        for each in batch:
            self._history.delivered(each.body.decode(), READERS, queue, each.queue_offset)

    async def _drain(self) -> None:
        async def all_there() -> bool:
            await trio.sleep(0.2)
            wanted = {sent.key for sent in self._history.sends if sent.acknowledged}
            return wanted <= {each.key for each in self._history.deliveries}

        with trio.move_on_after(60):
            while not await all_there():
                await trio.lowlevel.checkpoint()

    async def _fail(self) -> None:
        actor = self._address(self._group, 1)

        async def dropped() -> bool:
            return 0 not in await self._members(self._group)

        async def acts() -> bool:
            return await self._active(self._group, 1)

        async def served() -> bool:
            ext = {"topic": TOPIC, "queueId": "0"}
            return await self._ask(actor, RequestCode.GET_MAX_OFFSET, ext) is not None

        self._fault_at = trio.current_time()
        home = container_of(self._group, 0)
        if self._suspend:
            self._processes[home].send_signal(signal.SIGSTOP)
        else:
            self._kill(home)
        self._note("T0 SIGSTOP" if self._suspend else "T0 SIGKILL")
        await self._until("the name server drops the master", dropped, 30)
        self._note("T1 seen by the name server")
        await self._until("the slave acts", acts, 30)
        self._note("T2, T3 decided by the slave, services on")
        await self._until("the route is served", lambda: self._routed_to(actor), 30)
        self._note("T4 route served")
        await self._until("the slave answers", served, 30)
        self._note("T5 first good request")

    async def _return(self) -> None:
        async def back() -> bool:
            return await self._routed_to(self._address(self._group, 0))

        async def given_back() -> bool:
            return not await self._active(self._group, 1)

        home = container_of(self._group, 0)
        if self._suspend:
            self._processes[home].send_signal(signal.SIGCONT)
        else:
            self._start(home)
        self._note("R0 SIGCONT" if self._suspend else "R0 process started")
        await self._until("the master registers", back, 60)
        self._note("R1 master registered")
        await self._until("the slave stops acting", given_back, 30)
        self._note("R2 the slave has stopped acting")
        await self._until("the ring is complete", self._complete, 60)


def _free_ports(count: int) -> list[int]:
    """Return *count* ports, far enough apart for the brokers behind each."""
    found: list[int] = []
    source = random.Random()
    while len(found) < count:
        port = source.randrange(20_000, 32_000, 50)
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
