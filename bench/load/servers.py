"""Servers of each kind as processes of their own, with tables as large as asked for."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from bench.comparison.processes import cpu_seconds
from bench.load.turns import WITHOUT_VARIABLE, Turn, command, read_turns, waits_of
from bench.load.waits import Waited, read_waits
from bench.load.wire import Peer
from understudy.testkit.port_blocks import PortBlocks

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_S = 30
BROKER_NAME = "scale"
PORTS = 10
"""Of a broker: its own, that for slaves, that of metrics, and the fast one."""


@attrs.frozen
class Scale:
    """How large a broker's tables are.

    Args:
        topics: with 4 queues each.
        groups: consumer groups.
        topics_each: topics in which each group has offsets.
    """

    topics: int = 20_000
    groups: int = 1_000
    topics_each: int = 10


@attrs.frozen
class Server:
    """A running server.

    Attributes:
        port: where it listens.
        process: its process.
        errors: the file of its log.
        turns: the file of the long turns of its event loop.
    """

    port: int
    process: subprocess.Popen[str]
    errors: Path
    turns: Path

    @property
    def resident_bytes(self) -> int:
        """Memory it uses now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self) -> None:
        """Begin a new :attr:`peak_bytes`."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has used at a time since :meth:`forget_peak`, or its start."""
        rows = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (row,) = [row for row in rows if row.startswith("VmHWM:")]
        return int(row.split()[1]) * 1024

    def long_turns(self, since: float) -> list[Turn]:
        """Return the long turns of its event loop that ended after *since*, monotonic seconds."""
        return read_turns(self.turns, since)

    def waited(self, since: float) -> Waited:
        """Return the most that waited in it at a time after *since*, monotonic seconds."""
        return read_waits(waits_of(self.turns), since)

    @property
    def descriptors(self) -> tuple[int, int]:
        """Descriptors that it has open now, and how many it may have."""
        own = Path(f"/proc/{self.process.pid}")
        (row,) = [line for line in (own / "limits").read_text().splitlines() if line.startswith("Max open files")]
        return len(list((own / "fd").iterdir())), int(row.split()[3])

    @property
    def processor_ms(self) -> int:
        """Processor time that it has used so far."""
        return int(cpu_seconds(self.process.pid) * 1000)

    def last_words(self) -> str:
        """Return the last line of its log."""
        return (self.errors.read_text(errors="replace").strip().splitlines() or ["no word of it"])[-1]

    def logged(self, text: str) -> list[str]:
        """Return the lines of its log that hold *text*."""
        return [line for line in self.errors.read_text().splitlines() if text in line]


def topic_name(number: int) -> str:
    """Return the name of a prepared topic."""
    return f"scale-{number}"


def group_name(number: int) -> str:
    """Return the name of a prepared group."""
    return f"readers-{number}"


@contextmanager
def broker(
    folder: Path,
    scale: Scale | None = None,
    *,
    keys: Mapping[str, object] | None = None,
    descriptors: int = 0,
    name_server_port: int = 1,
    without: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a broker until the block ends.

    Args:
        folder: an empty folder.
        scale: its tables; empty ones if not given.
        keys: of its configuration.
        descriptors: its hard limit of descriptors; 0 leaves what there is.
        name_server_port: of its name server; nobody listens on the default.
        without: bounds that it shall not have, see ``without.py``.
    """
    store = folder / "store"
    values: dict[str, object] = {
        "brokerName": BROKER_NAME,
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "mappedFileSizeCommitLog": 64 << 20,
        "diskMaxUsedSpaceRatio": 99,
        "maxMessageSize": 8 << 20,
        **(keys or {}),
    }
    if scale is not None:
        write_tables(store / "config", scale)
    conf = folder / "broker.conf"
    arguments = ["-c", str(conf), "-n", f"127.0.0.1:{name_server_port}"]
    with PortBlocks(PORTS) as blocks:
        port = blocks.middles(1)[0]
        values |= {"listenPort": port, "haListenPort": port + 1, "metricsPromExporterPort": port + 2}
        _write_keys(conf, values)
        with _running("mqbroker", arguments, folder, port, descriptors, without=without) as server:
            yield server


@contextmanager
def name_server(
    folder: Path,
    *,
    keys: Mapping[str, object] | None = None,
    descriptors: int = 0,
    without: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a name server until the block ends; arguments as of :func:`broker`."""
    conf = folder / "namesrv.conf"
    with PortBlocks(10) as blocks:
        (port,) = blocks.middles(1)
        values = {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": folder / "kvConfig.json"}
        _write_keys(conf, {**values, **(keys or {})})
        with _running("mqnamesrv", ["-c", str(conf)], folder, port, descriptors, without=without) as server:
            yield server


@contextmanager
def controller(
    folder: Path,
    *,
    keys: Mapping[str, object] | None = None,
    descriptors: int = 0,
    without: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a controller, the only one of its group, until the block ends; arguments as of :func:`broker`.

    Its members would talk at the port after the one that the server names.
    """
    conf = folder / "controller.conf"
    with PortBlocks(20) as blocks:
        (port,) = blocks.middles(1)
        values = {
            "controllerDLegerGroup": "scale",
            "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
            "controllerRaftPeers": f"n0-127.0.0.1:{port + 1}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": folder / "controller",
            "configStorePath": folder / "controller.properties",
            "controllerLogFile": "off",
        }
        _write_keys(conf, {**values, **(keys or {})})
        with _running("mqcontroller", ["-c", str(conf)], folder, port, descriptors, without=without) as server:
            yield server


def _write_keys(conf: Path, values: Mapping[str, object]) -> None:
    conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


@contextmanager
def proxy(folder: Path, name_server_port: int) -> Iterator[Server]:
    """Run a proxy of the cluster that the name server knows, until the block ends; it asks for no TLS.

    Its remoting port is the one after the port that the server names.
    """
    conf = folder / "proxy.json"
    with PortBlocks(10) as blocks:
        (port,) = blocks.middles(1)
        values = {"grpcServerPort": port, "remotingListenPort": port + 1}
        values |= {"localServeAddr": "127.0.0.1", "tlsServerMode": "disabled"}
        conf.write_text(json.dumps(values))
        arguments = ["-pc", str(conf), "-n", f"127.0.0.1:{name_server_port}"]
        with _running("mqproxy", arguments, folder, port, 0) as server:
            yield server


@contextmanager
def console(folder: Path, name_server_port: int) -> Iterator[Server]:
    """Run a console of the cluster that the name server knows, until the block ends."""
    with PortBlocks(10) as blocks:
        (port,) = blocks.middles(1)
        arguments = ["-n", f"127.0.0.1:{name_server_port}", "--port", str(port)]
        with _running("mqconsole", arguments, folder, port, 0, "The console of") as server:
            yield server


@contextmanager
def _running(
    program: str,
    arguments: list[str],
    folder: Path,
    port: int,
    descriptors: int,
    up: str = "success",
    without: Sequence[str] = (),
) -> Iterator[Server]:
    errors, held = folder / f"{program}.log", folder / f"{program}.turns"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with errors.open("w") as log:
        process = subprocess.Popen(
            [*command(held, program), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, "HOME": str(folder), WITHOUT_VARIABLE: " ".join(without)},
            preexec_fn=limited if descriptors else None,
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if up in line:
                break
        else:
            raise RuntimeError(f"{program} ended: {errors.read_text()[-2000:]}")
        yield Server(port, process, errors, held)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def write_tables(config: Path, scale: Scale) -> None:
    """Write the tables of a broker as they are found at its start."""
    config.mkdir(parents=True)
    topics = {topic_name(number): _topic(topic_name(number)) for number in range(scale.topics)}
    groups = {group_name(number): {"groupName": group_name(number)} for number in range(scale.groups)}
    offsets = {
        f"{topic_name((number * scale.topics_each + each) % scale.topics)}@{group_name(number)}": {
            str(queue): 0 for queue in range(4)
        }
        for number in range(scale.groups)
        for each in range(scale.topics_each)
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    for name, content in (
        ("topics", {"topicConfigTable": topics}),
        ("subscriptionGroup", {"subscriptionGroupTable": groups}),
        ("consumerOffset", {"offsetTable": offsets}),
    ):
        (config / f"{name}.json").write_text(json.dumps({"dataVersion": version, **content}))


def _topic(name: str) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }


def make_topic(port: int, name: str, queues: int = 4) -> None:
    """Create a topic."""
    with Peer(port) as peer:
        ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        answer = peer.ask(17, ext)
        if answer.code:
            raise RuntimeError(f"topic {name} could not be created: {answer.remark}")
