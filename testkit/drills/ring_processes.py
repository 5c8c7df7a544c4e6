"""Containers in processes of their own, with a name server, on this machine: ours, or those of the real system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from understudy.format.json_dialect import loads
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.testkit.cuttable_container import CUT, CUT_LINE, MEND, MENDED_LINE, held_back
from understudy.testkit.drills.ring import CONTAINERS, brokers_of
from understudy.testkit.java_tools import LAUNCHER
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.processor_time import waited_for_processor
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import eventually

HOST, CLUSTER, NAME_SERVER = "127.0.0.1", "drill", "n1"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_LOOK_SECONDS = 0.005
_SMALL_FILES = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
}
_ACTING_NAME_SERVER = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
_HEAPS = {"namesrv": "128m", "container": "768m"}
_MODULES = {"namesrv": "understudy.programs.mqnamesrv", "container": "understudy.programs.mqbrokercontainer"}
_CUTTABLE = "understudy.testkit.cuttable_container"

Layout = Mapping[str, Sequence[Mapping[str, str]]]
"""Name of each container: the keys of its brokers, at most four."""


class DrillError(Exception):
    """Something did not happen in time; the message says what was waited for."""


class ProcessRing:
    """A name server and containers; nothing runs before :meth:`start_all`, and nothing is left after :meth:`close`.

    Args:
        client: asks them.
        layout: the brokers of each container; the ring of three when ``None``.
        extra: further keys of every broker.
        name_server: further keys of the name server.
        java: run the real system; its launcher and jars must be there.
        cuttable: containers can be cut off the network, see :meth:`cut`; not those of the real system.
    """

    def __init__(
        self,
        client: RemotingClient,
        layout: Layout | None = None,
        extra: Mapping[str, str] | None = None,
        name_server: Mapping[str, str] | None = None,
        *,
        java: bool = False,
        cuttable: bool = False,
    ) -> None:
        self._client = client
        self._java = java
        self._modules = {**_MODULES, "container": _CUTTABLE} if cuttable else _MODULES
        self._copies: dict[str, str] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="understudy-drill-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._addresses: dict[tuple[str, int], str] = {}
        self._homes: dict[tuple[str, int], str] = {}
        self._layout = layout if layout is not None else {name: brokers_of(name) for name in CONTAINERS}
        self._blocks = PortBlocks()
        ports = [self._blocks.take() for _ in range(1 + len(self._layout))]
        self.name_server = f"{HOST}:{ports[0]}"
        self._configure(ports, dict(extra or {}), {**_ACTING_NAME_SERVER, **(name_server or {})})

    def _configure(self, ports: Sequence[int], extra: dict[str, str], name_server: dict[str, str]) -> None:
        folder = self._folder
        place = {
            "listenPort": str(ports[0]),
            "kvConfigPath": str(folder / NAME_SERVER / "kvConfig.json"),
            "configStorePath": str(folder / NAME_SERVER / "namesrv.properties"),
        }
        (folder / NAME_SERVER).mkdir()
        self._command(NAME_SERVER, "namesrv", {**name_server, **place})
        for name, base in zip(self._layout, ports[1:], strict=True):
            files = []
            for number, keys in enumerate(self._layout[name]):
                identity = (keys["brokerName"], int(keys["brokerId"]))
                port = base + 10 * (number + 1)
                self._addresses[identity] = f"{HOST}:{port}"
                self._homes[identity] = name
                store = self.store(*identity)
                own = {
                    "brokerClusterName": CLUSTER,
                    "brokerIP1": HOST,
                    "brokerIP2": HOST,
                    "namesrvAddr": self.name_server,
                    "listenPort": str(port),
                    "haListenPort": str(port + 1),
                    "storePathRootDir": str(store),
                    "storePathCommitLog": str(store / "commitlog"),
                }
                all_keys = {**_SMALL_FILES, **keys, **own, **extra}
                files.append(self._file(f"{name}-{number}.conf", all_keys))
                if identity[1] == 0:
                    self._copies[identity[0]] = all_keys.get("inSyncReplicas", "1")
            own = {"listenPort": str(base), "namesrvAddr": self.name_server, "brokerConfigPaths": ":".join(files)}
            own["brokerContainerIP"] = HOST
            self._command(name, "container", own)

    def _command(self, name: str, role: str, keys: Mapping[str, str]) -> None:
        path = self._file(f"{name}.conf", keys)
        if self._java:
            home = str(self._folder / f"{name}-home")
            self._commands[name] = [str(LAUNCHER), role, "--conf", path, "--heap", _HEAPS[role], "--home", home]
        else:
            self._commands[name] = [sys.executable, "-m", self._modules[role], "-c", path]

    def _file(self, name: str, keys: Mapping[str, str]) -> str:
        path = self._folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="latin-1")
        return str(path)

    # --- processes ---------------------------------------------------------------------------------------------

    async def start_all(self) -> None:
        """Start the name server, then the containers. Raises :class:`DrillError`."""
        self.start(NAME_SERVER)
        await self.until("the name server answers", self._name_server_answers, 60)
        for name in self._layout:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one process; its output is kept until :meth:`close`."""
        with (self._folder / f"{name}.log").open("ab") as output, held_back():
            environment = {**os.environ, "ROCKETMQ_HOME": str(self._folder)}
            self._processes[name] = subprocess.Popen(
                self._commands[name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def kill(self, name: str) -> None:
        """End one process with SIGKILL and wait for it."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def freeze(self, name: str) -> None:
        """Stop a process where it stands (SIGSTOP)."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._processes[name].send_signal(signal.SIGCONT)

    async def cut(self, name: str) -> None:
        """Pull the network cable of a cuttable container, which runs on; nothing passes. Raises :class:`DrillError`."""
        await self._signal(name, CUT, CUT_LINE)

    async def mend(self, name: str) -> None:
        """Put the cable back. Raises :class:`DrillError`."""
        await self._signal(name, MEND, MENDED_LINE)

    async def _signal(self, name: str, number: signal.Signals, line: str) -> None:
        """Send a signal and wait until the process has logged what it does to it."""
        path = self._folder / f"{name}.log"
        before = path.read_bytes().count(line.encode())

        async def logged() -> bool:
            await trio.lowlevel.checkpoint()
            return path.read_bytes().count(line.encode()) > before

        self._processes[name].send_signal(number)
        await self.until(f"{name} is {line}", logged, 60)

    def processor_seconds(self, name: str) -> float:
        """Return the processor time that a running process has used, of all its threads."""
        # A process's clock in Linux, see clock_getcpuclockid; Python has a function for it for threads only.
        return time.clock_gettime(~self._processes[name].pid << 3 | 2)

    def close(self) -> None:
        """End every process and remove every file."""
        for name in list(self._processes):
            self.kill(name)
        self._blocks.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def warnings(self) -> list[str]:
        """Return the warnings and errors that the processes have logged, each after the name of its process."""
        return self.log_lines("WARNING")

    def log_lines(self, level: str) -> list[str]:
        """Return what the processes have logged, in the order of time, each line after the name of its process.

        Args:
            level: the least of :data:`LOG_LEVELS`.
        """
        wanted = tuple(f" {each} " for each in LOG_LEVELS[LOG_LEVELS.index(level) :])
        found = []
        for name in (NAME_SERVER, *self._layout):
            path = self._folder / f"{name}.log"
            lines = path.read_text(errors="replace").splitlines() if path.exists() else []
            # A line begins with its time: sorted by it, and those of one process stay in their order.
            found += [(line[:24], f"{name}: {line}") for line in lines if any(each in line for each in wanted)]
        return [line for _, line in sorted(found, key=lambda each: each[0])]

    # --- where things are --------------------------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, list[int]]:
        """Name of each broker group and the ids in it."""
        found: dict[str, list[int]] = {}
        for group, number in sorted(self._addresses):
            found.setdefault(group, []).append(number)
        return found

    def address(self, group: str, broker_id: int) -> str:
        """Return where a broker listens, ``host:port``."""
        return self._addresses[group, broker_id]

    def home(self, group: str, broker_id: int) -> str:
        """Return the container a broker is in."""
        return self._homes[group, broker_id]

    def store(self, group: str, broker_id: int) -> Path:
        """Return the folder of a broker's store."""
        return self._folder / f"{group}-{broker_id}"

    # --- questions ---------------------------------------------------------------------------------------------

    async def ask(
        self, address: str, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Command | None:
        """Return the good answer of *address*; ``None`` for a refusal, or none within a second.

        Args:
            address: ``host:port`` of a server.
            code: of the request.
            ext: fields of its header.
            body: of the request.
        """
        try:
            answer = await self._client.invoke(address, request(code, dict(ext) if ext else None, body), 1_000)
        except RemotingError:
            return None
        return answer if answer.code == 0 else None

    async def _name_server_answers(self) -> bool:
        return await self.ask(self.name_server, RequestCode.GET_BROKER_CLUSTER_INFO) is not None

    async def members(self, group: str) -> dict[int, str]:
        """Return which brokers of *group* the name server knows."""
        ext = {"clusterName": CLUSTER, "brokerName": group}
        answer = await self.ask(self.name_server, RequestCode.GET_BROKER_MEMBER_GROUP, ext)
        if answer is None:
            return {}
        found = loads(answer.body).get("brokerMemberGroup") or {}
        return {int(number): str(address) for number, address in (found.get("brokerAddrs") or {}).items()}

    async def runtime(self, group: str, broker_id: int) -> dict[str, str]:
        """Return the figures of one broker, none while it does not answer."""
        answer = await self.ask(self.address(group, broker_id), RequestCode.GET_BROKER_RUNTIME_INFO)
        return {} if answer is None else dict(loads(answer.body)["table"])

    async def active(self, group: str, broker_id: int) -> bool:
        """Return whether one broker looks after its group's due messages."""
        return (await self.runtime(group, broker_id)).get("brokerActive") == "true"

    async def complete(self) -> bool:
        """Return whether every broker is registered, every master serves, and its sends wait for their copies.

        A slave is listed before it copies: what is sent in between is acknowledged by the master alone, and lost with
        it. (A broker of the real system does not tell for how many copies it waits.)
        """
        for group, numbers in self.groups.items():
            if sorted(await self.members(group)) != numbers:
                return False
            figures, copies = await self.runtime(group, 0), self._copies[group]
            if figures.get("brokerActive") != "true" or figures.get("copiesNeeded", copies) != copies:
                return False
        return True

    async def route(self, topic: str) -> dict[str, dict[int, str]]:
        """Return the addresses of each group in the route of *topic*, as a client gets it."""
        answer = await self.ask(self.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        rows: list[Any] = [] if answer is None else loads(answer.body).get("brokerDatas") or []
        return {
            each["brokerName"]: {int(number): str(address) for number, address in each["brokerAddrs"].items()}
            for each in rows
        }

    async def routed_to(self, topic: str, group: str, broker_id: int) -> bool:
        """Return whether clients of *topic* take this broker for the master of its group."""
        return (await self.route(topic)).get(group, {}).get(0) == self.address(group, broker_id)

    async def make_topic(self, topic: str, queues: int = 2) -> None:
        """Create *topic* in every group. Raises :class:`DrillError`."""
        ext = {**topic_fields(topic, queues), "topicSysFlag": "0"}

        async def made(address: str) -> bool:
            return await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext) is not None

        for group in self.groups:
            await self.until(f"the topic is made at {group}", partial(made, self.address(group, 0)), 60)

    async def until(self, what: str, question: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Ask again and again until the answer is yes.

        Raises :class:`DrillError` after *seconds*, those not counted that a process of the ring waited for a processor:
        on a machine that does much else they say nothing of the ring.
        """
        before = self._kept_waiting()

        def hindered() -> float:
            waited = self._kept_waiting()
            return max((waited[pid] - before.get(pid, 0.0) for pid in waited), default=0.0)

        try:
            await eventually(question, seconds, _LOOK_SECONDS, hindered)
        except trio.TooSlowError:
            raise DrillError(f"not within {seconds:g} s: {what}; {self._ended()}") from None

    def _kept_waiting(self) -> dict[int, float]:
        """Return how long each process has waited for a processor since it began, in seconds."""
        return {process.pid: waited_for_processor(process.pid) for process in self._processes.values()}

    def has_ended(self, name: str) -> bool:
        """Return whether a process that was started has ended by itself."""
        return name in self._processes and self._processes[name].poll() is not None

    def _ended(self) -> str:
        """Return which processes have ended by themselves, with the end of what they printed."""
        ended = [name for name in self._processes if self.has_ended(name)]
        if not ended:
            return "every process runs"
        output = (self._folder / f"{ended[0]}.log").read_text(errors="replace").split()
        return f"{', '.join(ended)} ended: {' '.join(output[-40:])}"
