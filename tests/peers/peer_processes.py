"""Servers of either kind (ours or the real Java ones) and real clients, each in a process with a bounded life."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_installation import JAVA_TOOLS, peer_environment
from peer_requests import await_registered

from understudy.testkit.port_blocks import PortBlocks

ROCKETMQ = str(JAVA_TOOLS / "rocketmq")
BOOT_MARK = "boot success"
BOOT_LIMIT_S = 90
STOP_LIMIT_S = 40

OURS, JAVA = "understudy", "java"
OUR_COMMANDS = {
    "namesrv": "mqnamesrv",
    "broker": "mqbroker",
    "container": "mqbrokercontainer",
    "controller": "mqcontroller",
    "proxy": "mqproxy",
}
JAVA_HEAPS = {"namesrv": "128m", "broker": "512m", "container": "768m", "controller": "128m"}


class PeerFailure(AssertionError):
    """A server or a client did not do what it must; the message carries the end of its output."""


def filled_template(template: str, **values: object) -> str:
    """Returns a configuration file of `bench/java/conf` with its placeholders filled in and other keys appended."""
    pairs = [f"{key}={value}" for key, value in values.items()]
    done = subprocess.run(
        [ROCKETMQ, "conf", template, *pairs], capture_output=True, text=True, env=peer_environment(), timeout=30
    )
    if done.returncode:
        raise PeerFailure(done.stderr.strip())
    return done.stdout


@dataclass
class ServerProcess:
    """One server in a process of its own; the owner must call `stop` or `kill`."""

    name: str
    command: list[str]
    folder: Path
    boot_mark: str = BOOT_MARK
    process: subprocess.Popen[bytes] | None = None
    _output: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._output = self.folder / "output.log"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def start(self) -> ServerProcess:
        """Starts the process; `await_boot` says when it serves."""
        with open(self._output, "wb") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=peer_environment(),
            )
        return self

    def await_boot(self, limit_s: float = BOOT_LIMIT_S) -> ServerProcess:
        """Waits for the boot line; raises PeerFailure with the output when the process ends or stays silent."""
        assert self.process is not None, f"{self.name} was not started"
        deadline = time.monotonic() + limit_s
        while self.boot_mark not in self.output():
            if self.process.poll() is not None:
                raise PeerFailure(
                    f"{self.name} ended with {self.process.returncode} at its start:\n{self.output()[-3000:]}"
                )
            if time.monotonic() > deadline:
                raise PeerFailure(f"{self.name} printed no boot line within {limit_s} s:\n{self.output()[-3000:]}")
            time.sleep(0.02)
        return self

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Ends the process with SIGTERM; returns its exit code, raises PeerFailure when it does not end in time."""
        assert self.process is not None, f"{self.name} was not started"
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerFailure(
                f"{self.name} was still there {limit_s} s after SIGTERM:\n{self.output()[-3000:]}"
            ) from None

    def kill(self) -> None:
        """Ends the process with SIGKILL, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def server(kind: str, role: str, name: str, folder: Path, configuration: str) -> ServerProcess:
    """Describes one server of either kind with the same configuration text; it is not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.conf"
    path.write_text(configuration)
    if kind == OURS:
        command = [str(Path(sys.executable).parent / OUR_COMMANDS[role]), "-c", str(path)]
    else:
        command = [ROCKETMQ, role, "--conf", str(path), "--heap", JAVA_HEAPS[role], "--home", str(folder / "home")]
    return ServerProcess(f"{kind} {name}", command, folder)


def our_proxy(folder: Path, namesrv: str, port: int, **keys: object) -> ServerProcess:
    """Describes a proxy of ours in front of brokers of either kind; it is not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rmq-proxy.json"
    path.write_text(json.dumps({"grpcServerPort": port, "remotingListenPort": 0, **keys}))
    command = [str(Path(sys.executable).parent / OUR_COMMANDS["proxy"]), "-n", namesrv, "-pm", "cluster"]
    return ServerProcess(f"{OURS} proxy", [*command, "-pc", str(path)], folder, "startup successfully")


def lone_broker_on(folder: Path, port: int, **keys: object) -> str:
    """Return the configuration of a broker without name server that goes on with the small files of *folder*.

    Args:
        folder: the store.
        port: where it listens; the next one is for replication.
        keys: more of them.
    """
    small = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": "127.0.0.1:1",
        "timerWheelEnable": "false",
        "storePathRootDir": folder,
        "storePathCommitLog": f"{folder}/commitlog",
        "diskMaxUsedSpaceRatio": 95,
        "mappedFileSizeCommitLog": 262_144,
        "mappedFileSizeConsumeQueue": 2_000,
        "mappedFileSizeTimerLog": 1_024,
        "maxHashSlotNum": 100,
        "maxIndexNum": 400,
        **keys,
    }
    return "".join(f"{key}={value}\n" for key, value in small.items())


@contextlib.contextmanager
def running(*servers: ServerProcess) -> Iterator[None]:
    """Starts servers one after the other and stops them in reverse; each of ours must end with exit code 0.

    The real servers are killed: they are not what is tested, and take some ten seconds to end.
    """
    started: list[ServerProcess] = []
    try:
        for one in servers:
            started.append(one)
            one.start().await_boot()
        yield
        for one in reversed(started):
            if one.name.startswith(OURS) and (code := one.stop()):
                raise PeerFailure(f"{one.name} ended with exit code {code} after SIGTERM:\n{one.output()[-3000:]}")
    finally:
        for one in started:
            one.kill()


@dataclass(frozen=True)
class PeerCluster:
    """A name server and brokers, as a client sees them; and a name server that answers everybody, where one does."""

    namesrv: str
    brokers: dict[str, str]
    servers: dict[str, ServerProcess]
    open_namesrv: str = ""


@contextlib.contextmanager
def peer_cluster(
    namesrv_kind: str,
    broker_kind: str | Mapping[str, str],
    folder: Path,
    ports: PortBlocks,
    broker_names: tuple[str, ...] = ("broker-a",),
    **more: object,
) -> Iterator[PeerCluster]:
    """Runs a name server and masters of the given kinds with the configuration of `bench/java/conf`.

    *broker_kind* is the kind of all *broker_names*, or says by name which brokers there are and of which kind.
    """
    kinds = dict.fromkeys(broker_names, broker_kind) if isinstance(broker_kind, str) else broker_kind
    port = ports.take()
    namesrv = f"127.0.0.1:{port}"
    text = filled_template("namesrv", PORT=port, DIR=folder / "namesrv")
    servers = {"namesrv": server(namesrv_kind, "namesrv", "namesrv", folder / "namesrv", text)}
    brokers = {}
    for name, kind in kinds.items():
        port = ports.take() + 10
        text = filled_template(
            "broker", NAME=name, PORT=port, HA_PORT=port + 2, NAMESRV=namesrv, DIR=folder / name, **more
        )
        servers[name] = server(kind, "broker", name, folder / name, text)
        brokers[name] = f"127.0.0.1:{port}"
    # One after the other: a broker that does not find its name server tries again only seconds later.
    with running(servers["namesrv"]), running(*(servers[name] for name in kinds)):
        await_registered(namesrv, kinds)
        yield PeerCluster(namesrv, brokers, servers)


# ------------------------------------------------------------------------------------------------------ real clients


def run_client(command: list[str], limit_s: float, **environment: str) -> list[dict[str, Any]]:
    """Runs a real client to its end and returns the JSON lines it printed, whatever its exit code is."""
    env = peer_environment() | environment
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=env)
    except subprocess.TimeoutExpired as late:
        raise PeerFailure(f"{' '.join(command)} was not done within {limit_s} s: {str(late.stdout)[-2000:]}") from late
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerFailure(f"{' '.join(command)} printed no result (exit code {done.returncode}): {done.stderr[-2000:]}")
    return lines


def run_interop(namesrv: str, scenarios: list[str], limit_s: float = 600) -> dict[str, dict[str, Any]]:
    """Runs scenarios of the Java driver in one JVM; returns {scenario: {ok, detail, ms}}.

    Waits are four times as long: at its start the Java client now and then misses its own registration, or sends no
    heartbeat because another one is under way, and then rebalances only 20 or 50 seconds later, against the real broker
    as well.
    """
    command = [
        ROCKETMQ,
        "interop",
        "--namesrv",
        namesrv,
        "--timeout",
        "240",
        "--parallel",
        "4",
        "--patience",
        "4",
        *scenarios,
    ]
    lines = run_client(command, limit_s)
    return {line["name"]: line for line in lines if "name" in line}


class AdminConsole:
    """The real mqadmin in one JVM for all its commands; a command that sends works once for each console."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [ROCKETMQ, "admin-batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=peer_environment(),
        )

    def run(self, namesrv: str, command: str) -> dict[str, Any]:
        """Runs one command against a name server; returns {command, output, errors, timed_out, ms}.

        The console itself ends a command after 30 seconds.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{command} -n {namesrv}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailure(f"mqadmin ended while it ran: {command}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def printed(self, namesrv: str, command: str) -> str:
        """Runs one command and returns all it printed."""
        answer = self.run(namesrv, command)
        return str(answer["output"]) + str(answer["errors"])

    def await_printed(self, namesrv: str, command: str, wanted: str, limit_s: float = 90) -> str:
        """Repeats a command until its output holds a text, or the time is over; returns the last output.

        A real broker whose first registration was late comes again after ten seconds.
        """
        deadline = time.monotonic() + limit_s
        while wanted not in (printed := self.printed(namesrv, command)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return printed

    def __enter__(self) -> AdminConsole:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()


class LoadClient:
    """The Java load client in the background; it prints one JSON line when it is done."""

    def __init__(self, subcommand: str, namesrv: str, *arguments: str) -> None:
        self._command = [ROCKETMQ, "load", subcommand, "--namesrv", namesrv, *arguments]
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=peer_environment(),
        )

    def await_measuring(self) -> None:
        """Waits until a sending client's warm-up is over: the first messages are acknowledged then."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "measuring" not in line:
            self._process.kill()
            raise PeerFailure(f"{' '.join(self._command)} did not begin: {line}")

    def result(self, limit_s: float) -> dict[str, Any]:
        """Returns the client's line; kills it and raises PeerFailure when it is not done in time.

        Closes the client's standard input first, which is the sign for one that sends `--until-closed`.
        """
        try:
            printed, _ = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise PeerFailure(f"{' '.join(self._command)} was not done within {limit_s} s") from None
        lines = printed.strip().splitlines()
        if not lines:
            raise PeerFailure(f"{' '.join(self._command)} printed no result")
        result: dict[str, Any] = json.loads(lines[-1])
        return result


def await_file(path: Path, limit_s: float) -> bool:
    """Waits until a file is there; returns whether it came in time."""
    deadline = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def run_tool(command: list[str], limit_s: float = 30) -> None:
    """Runs a small program that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=peer_environment())
    if done.returncode:
        raise PeerFailure(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def listed(cluster: PeerCluster, admin: AdminConsole) -> tuple[str, str, set[str]]:
    """Wait until the real mqadmin lists the broker; return its row, all of the list, and the topics it sees."""
    row = f"broker-a                0     {cluster.brokers['broker-a']}"
    clusters = admin.await_printed(cluster.namesrv, "clusterList", row)
    return row, clusters, set(admin.printed(cluster.namesrv, "topicList").split())
