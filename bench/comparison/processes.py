"""The sides of the comparison: clusters of the same shape whose processes are started, measured and ended alike."""

from __future__ import annotations

import compileall
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import understudy
from bench.comparison.load import TOOL, Watch

READY_LIMIT_S = 180
STOP_LIMIT_S = 60
JAVA_NAMESRV_HEAP = "256m"
OUR_COMMANDS = {"namesrv": "mqnamesrv", "broker": "mqbroker", "container": "mqbrokercontainer"}


def process_tree(pid: int) -> list[int]:
    """Returns a process and all below it."""
    found = [pid]
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += process_tree(int(entry.parent.name))
    return found


def anonymous_mb(pid: int) -> float:
    """Resident memory without mapped files: pages of the log belong to the page cache on both sides."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0
    return 0.0


def processor_ticks() -> tuple[int, int]:
    """Returns the ticks of all processors since the machine's start: those its host gave to others, and all of them."""
    ticks = list(map(int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]))
    return ticks[7], sum(ticks)


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def await_port(port: int) -> None:
    """Waits until somebody listens on a loopback port; raises RuntimeError after the limit."""
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    raise RuntimeError(f"nobody listens on port {port}")


def signal_groups(children: Sequence[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, how)  # each was started as the leader of its own group


def end(children: Sequence[subprocess.Popen[bytes]], how: signal.Signals = signal.SIGTERM) -> None:
    """Ends processes in the given order and waits for all of them; a stubborn one is killed."""
    signal_groups(children, how)
    for child in children:
        try:
            child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            signal_groups([child], signal.SIGKILL)
            child.wait()


class Cluster(ABC):
    """One side: a name server and a broker, more brokers for the idle drill."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name, self.folder, self.port = name, folder / name, port
        self.namesrv = f"127.0.0.1:{port}"
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, **keys: object) -> None:
        """Starts name server and broker; `keys` are further properties of the broker."""
        self.prepared(**keys)()

    @abstractmethod
    def prepared(self, **keys: object) -> Callable[[], None]:
        """Does all that is not the start itself (files); returns what starts name server and broker."""

    @abstractmethod
    def start_slave(self) -> None:
        """Starts an empty slave of the broker."""

    @abstractmethod
    def start_containers(self, containers: int, brokers_each: int) -> None:
        """Starts a name server and idle brokers in containers."""

    @abstractmethod
    def start_led(self) -> None:
        """Starts a name server with a controller inside, and the first broker of a group that it leads."""

    @abstractmethod
    def start_led_replica(self, number: int) -> None:
        """Starts another, empty broker of that group; the first one has number 0."""

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.port + 5}"

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.port + 10}"

    @property
    def slave_address(self) -> str:
        return f"127.0.0.1:{self.port + 20}"

    def spawn(self, command: Sequence[str], output: Path) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        with open(output, "ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.children.append(child)

    def configuration(self, template: str, name: str, **keys: object) -> Path:
        """Writes a configuration file from `bench/java/conf`; a later line of the same key wins on both sides."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        pairs = [f"{key}={value}" for key, value in keys.items()]
        text = subprocess.check_output([TOOL, "conf", template, *pairs, f"DIR={home}"])
        path = home / "conf"
        path.write_bytes(text)
        return path

    def processes(self) -> list[int]:
        return [pid for child in self.children for pid in process_tree(child.pid)]

    def memory_mb(self) -> float:
        return round(sum(map(anonymous_mb, self.processes())), 1)

    def cpu_s(self) -> float:
        return sum(map(cpu_seconds, self.processes()))

    def master_cpu_s(self, *, with_slave: bool) -> float:
        """Processor time of the broker: the last that was started, but for its slave."""
        master = self.children[-2 if with_slave else -1]
        return sum(map(cpu_seconds, process_tree(master.pid)))

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        end(self.children[::-1], how)
        self.children = []

    def pause(self, paused: bool) -> None:
        """Takes the side off the processors, or lets it run on."""
        signal_groups(self.children, signal.SIGSTOP if paused else signal.SIGCONT)

    def timed_start(self, **keys: object) -> int:
        """Starts; returns the ms from the first process until a send was acknowledged to a client that was waiting.

        The files are written and the client has practised before the clock runs: the figure is the servers' own.
        """
        start = self.prepared(**keys)
        watch = Watch("first", "--namesrv", self.namesrv, "--topic", "BaseFirst", "--timeout", READY_LIMIT_S)
        begin = time.time()
        start()
        result = watch.result()
        if "failed" in result:
            raise RuntimeError(f"{self.name} did not start: {result['failed']}; see {self.folder}")
        return round(float(result["first_ack_epoch_ms"]) - begin * 1000)


class SameShape(Cluster):
    """A side that runs one process per server, with the same configuration text on both sides."""

    @abstractmethod
    def run(self, role: str, configuration: Path, heap: str = "") -> None:
        """Starts one server."""

    @abstractmethod
    def broker_heap(self) -> str:
        """The heap of a broker, for the side that needs one."""

    def prepared(self, **keys: object) -> Callable[[], None]:
        ports = {"PORT": self.port + 10, "HA_PORT": self.port + 12}
        start_namesrv = self._prepared_namesrv()
        configuration = self.configuration("broker-default", "master", NAMESRV=self.namesrv, **ports, **keys)

        def start() -> None:
            start_namesrv()
            self.run("broker", configuration, self.broker_heap())

        return start

    def start_slave(self) -> None:
        ports = {"PORT": self.port + 20, "HA_PORT": self.port + 22}
        configuration = self.configuration("broker-default", "slave", NAMESRV=self.namesrv, ID=1, ROLE="SLAVE", **ports)
        self.run("broker", configuration, self.broker_heap())

    def start_led(self) -> None:
        peers = f"n0-{self.controller_address}"
        self._prepared_namesrv("namesrv-controller", PEERS=peers)()
        self.start_led_replica(0)

    def start_led_replica(self, number: int) -> None:
        port = self.port + 10 * (number + 1)
        keys = {"PORT": port, "HA_PORT": port + 2, "NAMESRV": self.namesrv, "CONTROLLER": self.controller_address}
        self.run("broker", self.configuration("broker-controller", f"led-{number}", **keys), self.broker_heap())

    def start_containers(self, containers: int, brokers_each: int) -> None:
        self._prepared_namesrv()()
        for c in range(containers):
            paths = []
            for b in range(brokers_each):
                number = c * brokers_each + b
                port = self.port + 100 + 10 * number
                keys = {"NAME": f"broker-{number}", "PORT": port, "HA_PORT": port + 2, "NAMESRV": self.namesrv}
                paths.append(self.configuration("broker-default", f"broker-{number}", **keys))
            keys = {"PORT": self.port + 40 + c, "NAMESRV": self.namesrv, "BROKERS": ":".join(map(str, paths))}
            self.run("container", self.configuration("container", f"container-{c}", **keys), "768m")

    def _prepared_namesrv(self, template: str = "namesrv", **keys: object) -> Callable[[], None]:
        configuration = self.configuration(template, "namesrv", PORT=self.port, **keys)

        def start() -> None:
            self.run("namesrv", configuration, JAVA_NAMESRV_HEAP)
            # In the documented order: a broker that does not find the name server at its start registers 10 s later.
            await_port(self.port)

        return start


class Java(SameShape):
    """The real system: asynchronous flush, asynchronous master, every other setting its default; heaps as given."""

    def __init__(self, folder: Path, port: int, heap: str) -> None:
        super().__init__("java", folder, port)
        self._heap = heap

    def broker_heap(self) -> str:
        return self._heap

    def run(self, role: str, configuration: Path, heap: str = "") -> None:
        home = configuration.parent
        command = [TOOL, role, "--conf", str(configuration), "--heap", heap, "--home", str(home)]
        self.spawn(command, home / "output.log")


class Understudy(SameShape):
    """Ours, from the commands beside the interpreter that runs this, compiled as an installation is."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("ours", folder, port)
        for room in Path(understudy.__file__).parent.glob("*/"):
            compileall.compile_dir(room, quiet=1)
        caches = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        for program in OUR_COMMANDS.values():  # each keeps what it compiles of its classes when it is imported first
            command = [Path(sys.executable).parent / program, "--version"]
            subprocess.run(command, env=caches, stdout=subprocess.DEVNULL, check=True)

    def broker_heap(self) -> str:
        return ""

    def run(self, role: str, configuration: Path, heap: str = "") -> None:
        command = [str(Path(sys.executable).parent / OUR_COMMANDS[role]), "-c", str(configuration)]
        self.spawn(command, configuration.parent / "output.log")


class Command(Cluster):
    """A cluster that a shell command starts in the foreground; SIGTERM ends it."""

    def __init__(self, folder: Path, port: int, command: str, slave_command: str = "") -> None:
        super().__init__("ours", folder, port)
        self._command, self._slave_command = command, slave_command

    def prepared(self, **keys: object) -> Callable[[], None]:
        if keys:
            raise LookupError("a cluster started by a command takes no further properties")
        return lambda: self.spawn(["bash", "-c", f"exec {self._command}"], self.folder / "output.log")

    def start_slave(self) -> None:
        if not self._slave_command:
            raise LookupError("there is no command that starts a slave")
        self.spawn(["bash", "-c", f"exec {self._slave_command}"], self.folder / "slave.log")

    def start_led(self) -> None:
        raise LookupError("a cluster started by a command has no controllers")

    def start_led_replica(self, number: int) -> None:
        raise LookupError("a cluster started by a command has no controllers")

    def start_containers(self, containers: int, brokers_each: int) -> None:
        raise LookupError("a cluster started by a command has no containers")
