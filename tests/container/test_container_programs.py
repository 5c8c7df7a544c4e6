"""The programs as a user starts them: boot lines, signals, and one clear line for everything that is wrong."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.testkit.port_blocks import PortBlocks

BIN = Path(sys.executable).parent
START_SECONDS = 60.0
STOP_SECONDS = 40.0


class Program:
    """A server process; killed at the end of the test whatever happens."""

    def __init__(self, *command: str, home: Path) -> None:
        environment = {**os.environ, "HOME": str(home), "UNDERSTUDY_LOG": "WARNING"}
        environment.pop("NAMESRV_ADDR", None)
        self.process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,  # lines that come together are no secret of a buffer: what is not read yet makes the pipe ready
        )
        self.lines: list[str] = []

    def wait_for(self, text: str) -> str:
        """Read standard output until a line holds *text*."""
        assert self.process.stdout is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            ready, _, _ = select.select([self.process.stdout], [], [], end - time.monotonic())
            line = self.process.stdout.readline().decode() if ready else ""
            if not line:
                break
            self.lines.append(line.rstrip())
            if text in line:
                return line.rstrip()
        self.process.kill()
        raise AssertionError(f"no line with {text!r}; got {self.lines} and {self.process.communicate()[1].decode()}")

    def finish(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal, wait for the end, and return exit code and standard error."""
        if number is not None:
            self.process.send_signal(number)
        try:
            _, errors = self.process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError(f"still running after {STOP_SECONDS} s: {errors.decode()}") from None
        return self.process.returncode, errors.decode()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


@pytest.fixture
def start(tmp_path: Path, programs: list[Program]) -> Iterator[object]:
    def begin(*command: str) -> Program:
        programs.append(Program(*command, home=tmp_path))
        return programs[-1]

    yield begin


def conf(folder: Path, name: str = "broker", **keys: object) -> str:
    values: dict[str, object] = {
        "brokerClusterName": "C",
        "brokerName": name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": 0,
        "storePathRootDir": folder / "store" / name,
        "storePathCommitLog": folder / "store" / name / "commitlog",
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 6000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        **keys,
    }
    path = folder / f"{name}.conf"
    path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    return str(path)


@pytest.mark.covers("R98", "R115", "SL-08")
def test_a_broker_boots_says_so_and_stops_on_sigterm(tmp_path: Path, start: object, port_blocks: PortBlocks) -> None:
    (port,) = port_blocks.middles(1)
    broker = start("mqbroker", "-c", conf(tmp_path, listenPort=port), "-n", "127.0.0.1:1")  # type: ignore[operator]
    expected = f"The broker[broker, 127.0.0.1:{port}] boot success. serializeType=JSON and name server is 127.0.0.1:1"
    assert expected == broker.wait_for("boot success")
    code, errors = broker.finish(signal.SIGTERM)
    assert (0, True) == (code, "Traceback" not in errors)
    assert not (tmp_path / "store" / "broker" / "abort").exists()


@pytest.mark.covers("CU-10")
def test_a_container_boots_its_brokers_and_stops_on_sigterm(tmp_path: Path, start: object) -> None:
    one, two = conf(tmp_path, "one"), conf(tmp_path, "two")
    file = tmp_path / "container.conf"
    file.write_text(f"listenPort=0\nbrokerConfigPaths={one}:{two}\n")
    container = start("mqbrokercontainer", "-c", str(file))  # type: ignore[operator]
    container.wait_for("The broker[two,")
    assert 3 == sum("boot success" in line for line in container.lines)
    code, errors = container.finish(signal.SIGTERM)
    assert (0, True) == (code, "Traceback" not in errors)


@pytest.mark.parametrize("program", ["mqbroker", "mqbrokercontainer"])
@pytest.mark.covers("R115")
def test_sigterm_ends_a_start_that_waits_for_a_mute_name_server(tmp_path: Path, start: object, program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(START_SECONDS)
        name_server = f"127.0.0.1:{mute.getsockname()[1]}"
        file = conf(tmp_path)
        if program == "mqbrokercontainer":
            (tmp_path / "container.conf").write_text(f"listenPort=0\nbrokerConfigPaths={file}\n")
            file = str(tmp_path / "container.conf")
        process = start(program, "-c", file, "-n", name_server)  # type: ignore[operator]
        with mute.accept()[0]:  # the broker registers and would wait a second for the answer
            code, errors = process.finish(signal.SIGTERM)
    assert (0, True) == (code, "Traceback" not in errors)


def test_a_killed_broker_starts_again(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path)
    first = start("mqbroker", "-c", file)  # type: ignore[operator]
    first.wait_for("boot success")
    first.process.kill()
    first.process.communicate()
    second = start("mqbroker", "-c", file)  # type: ignore[operator]
    second.wait_for("boot success")
    assert 0 == second.finish(signal.SIGINT)[0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"listenPort": "often"}, "broker.conf:5: listenPort=often: expected"),
        ({"listenPort": "99999"}, "listenPort=99999: expected a port from 0 to 65535"),
        ({"brokerRole": "KING"}, "brokerRole=KING: expected one of"),
        ({"brokerRole": "SLAVE"}, "expected more than 0, because brokerRole is SLAVE"),
        ({"flushDiskType": "NEVER"}, "flushDiskType=NEVER: expected one of"),
        ({"flushIntervalCommitLog": "-1"}, "flushIntervalCommitLog=-1: expected a whole number from 0 to 2147483647"),
        ({"storePathRootDir": ""}, "storePathRootDir=: expected a folder"),
        ({"brokerIP1": "300.1.1.1"}, "brokerIP1=300.1.1.1: expected an IP address, or a host name that this machine"),
        (
            {"storePathRootDir": "/proc/nowhere", "storePathCommitLog": "/proc/nowhere/commitlog"},
            "/proc/nowhere cannot be used: No such file or directory; choose another path",
        ),
    ],
)
@pytest.mark.covers("R111")
def test_a_bad_value_is_one_line_and_exit_code_1(
    tmp_path: Path, start: object, keys: dict[str, object], message: str
) -> None:
    broker = start("mqbroker", "-c", conf(tmp_path, **keys))  # type: ignore[operator]
    code, errors = broker.finish()
    lines = [line for line in errors.splitlines() if line.startswith("mqbroker: ")]
    assert (1, 1) == (code, len(lines)), errors
    assert message in lines[0]
    assert "Traceback" not in errors


@pytest.mark.parametrize("program", ["mqbroker", "mqbrokercontainer"])
@pytest.mark.parametrize("text", ["", "-1", "10001", "0.4ms"])
def test_a_bad_idle_poll_is_one_line(
    program: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: object
) -> None:
    monkeypatch.setenv("UNDERSTUDY_IDLE_POLL", text)
    code, errors = start(program, "-c", conf(tmp_path)).finish()  # type: ignore[operator]
    expected = f"{program}: UNDERSTUDY_IDLE_POLL={text}: expected microseconds from 0 (never) to 10000\n"
    assert (1, expected) == (code, errors.splitlines(keepends=True)[-1])


def test_a_port_in_use_is_one_line(tmp_path: Path, start: object) -> None:
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        port = holder.getsockname()[1]
        broker = start("mqbroker", "-c", conf(tmp_path, listenPort=port))  # type: ignore[operator]
        code, errors = broker.finish()
    assert 1 == code
    assert f"mqbroker: cannot listen on 0.0.0.0:{port}: the port is in use" in errors
    assert "Traceback" not in errors


def test_a_folder_held_by_another_broker_is_one_line(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path)
    first = start("mqbroker", "-c", file)  # type: ignore[operator]
    first.wait_for("boot success")
    code, errors = start("mqbroker", "-c", file).finish()  # type: ignore[operator]
    assert 1 == code
    assert "is held by another process" in errors
    assert "Traceback" not in errors
    assert 0 == first.finish(signal.SIGTERM)[0]


def test_a_start_with_torn_tables_is_one_line(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path)
    first = start("mqbroker", "-c", file)  # type: ignore[operator]
    first.wait_for("boot success")
    assert 0 == first.finish(signal.SIGTERM)[0]
    config = tmp_path / "store" / "broker" / "config"
    for path in config.glob("topics.json*"):
        path.write_bytes(b"{torn")
    code, errors = start("mqbroker", "-c", file).finish()  # type: ignore[operator]
    assert 1 == code
    (line,) = [line for line in errors.splitlines() if line.startswith("mqbroker: ")]
    assert f"{config}/topics.json" in line and "No readable copy is left" in line
    assert "Traceback" not in errors


def test_a_missing_configuration_file_is_one_line(tmp_path: Path, start: object) -> None:
    for program in ("mqbroker", "mqbrokercontainer"):
        code, errors = start(program, "-c", str(tmp_path / "none.conf")).finish()  # type: ignore[operator]
        reason = "No such file or directory; name a text file of key=value lines"
        expected = f"{program}: configuration file {tmp_path}/none.conf cannot be read: {reason}\n"
        assert (1, expected) == (code, errors)


@pytest.mark.covers("R114")
@pytest.mark.parametrize("program", ["mqnamesrv", "mqbroker", "mqbrokercontainer", "mqcontroller"])
def test_a_relative_file_is_looked_for_here_and_then_below_the_installation(tmp_path: Path, program: str) -> None:
    # given a current folder without the file, and an installation that has it
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    (home / "conf").mkdir(parents=True)
    file = home / "conf" / "own.conf"
    file.write_text("listenPort=0\nbindAddress=127.0.0.2\nlistenPrt=1\n")
    environment = {**os.environ, "HOME": str(tmp_path)}

    def run(installation: Path | None) -> tuple[int, str, str]:
        environment.pop("ROCKETMQ_HOME", None)
        if installation is not None:
            environment["ROCKETMQ_HOME"] = str(installation)
        command = [str(BIN / program), "-c", "conf/own.conf", "-p"]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=START_SECONDS)
        return done.returncode, done.stdout, done.stderr

    # when ROCKETMQ_HOME names the installation, then its file is read, and named in what is said about it
    code, output, errors = run(home)
    assert (0, True) == (code, "bindAddress=127.0.0.2\n" in output), errors
    if program in ("mqnamesrv", "mqcontroller"):  # the others print keys only
        assert f"warning: {file}:3: unknown key listenPrt is ignored, the nearest known key is listenPort\n" == errors
    # and without it, or with one that is no folder, one line says where it was looked for and what to do
    begin = f"{program}: configuration file conf/own.conf cannot be read: {here}/conf/own.conf is not there, and "
    way_out = "give another path, or set ROCKETMQ_HOME to the installation\n"
    assert (1, "", f"{begin}ROCKETMQ_HOME is not set; {way_out}") == run(None)
    assert (1, "", f"{begin}ROCKETMQ_HOME={file} is no folder; {way_out}") == run(file)


@pytest.mark.parametrize(
    "command",
    [
        "mqnamesrv -p",
        "mqbroker -p",
        "mqbrokercontainer -p",
        "mqcontroller -p",
        "mqadmin help",
        "mqadmin help topicList",
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program, *arguments = command.split()
    environment = {**os.environ, "HOME": str(tmp_path)}
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [str(BIN / program), *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=START_SECONDS,
        )
    assert (0, b"") == (done.returncode, done.stderr)


def test_the_line_of_a_bad_value_is_named_for_a_broker_of_a_container(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path, fileReservedTime="soon")
    (tmp_path / "container.conf").write_text(f"listenPort=0\nbrokerConfigPaths={file}\n")
    container = start("mqbrokercontainer", "-c", str(tmp_path / "container.conf"))  # type: ignore[operator]
    code, errors = container.finish()
    last = errors.splitlines()[-1]
    expected = f"{file}:12: fileReservedTime=soon: expected a whole number from 0 to 2147483647"
    assert (1, f"mqbrokercontainer: {expected}") == (code, last)


def test_an_option_is_named_when_its_value_is_wrong(tmp_path: Path, start: object) -> None:
    code, errors = start("mqbroker", "-c", conf(tmp_path), "-n", "localhost").finish()  # type: ignore[operator]
    assert (1, True) == (code, errors.startswith("mqbroker: option -n: namesrvAddr=localhost: expected host:port"))


def test_unknown_and_inert_keys_are_one_warning_line_each(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path, flushDiskTipe="SYNC_FLUSH", useEpollNativeSelector="true")
    broker = start("mqbroker", "-c", file)  # type: ignore[operator]
    broker.wait_for("boot success")
    _, errors = broker.finish(signal.SIGTERM)
    warnings = [line for line in errors.splitlines() if line.startswith("warning: ")]
    assert 3 == len(warnings)
    assert warnings[2].startswith("warning: namesrvAddr is not set: no name server learns of this broker")
    assert f"{file}:12: unknown key flushDiskTipe is ignored, the nearest known key is flushDiskType" in errors
    assert f"{file}:13: useEpollNativeSelector=true has no effect here" in errors


def test_all_keys_and_the_important_ones_are_printed(tmp_path: Path, start: object) -> None:
    for option, least, most in (("-p", 300, 1000), ("-m", 20, 40)):
        printing = start("mqbroker", "-c", conf(tmp_path), option)  # type: ignore[operator]
        output, _ = printing.process.communicate(timeout=START_SECONDS)
        assert 0 == printing.process.returncode
        assert least <= len(output.splitlines()) <= most
        assert b"brokerName=broker\n" in output


@pytest.mark.parametrize("program", ["mqbroker", "mqnamesrv", "mqcontroller"])
def test_what_may_wait_is_said_in_the_file_of_a_program(
    tmp_path: Path, start: object, program: str, port_blocks: PortBlocks
) -> None:
    port, api, metrics = port_blocks.middles(3)
    keys: dict[str, object] = {"metricsExporterType": "PROM", "metricsPromExporterPort": metrics}
    keys |= {"waitingOutgoingBytes": 1111, "waitingIncomingBytes": 2222, "waitingParkedBytes": 3333, "listenPort": port}
    keys |= {"keptForPeersBytes": 4444}
    keys |= {"metricsPromExporterHost": "127.0.0.1"}
    if program == "mqcontroller":
        del keys["listenPort"]
        keys |= {"controllerDLegerPeers": f"n0-127.0.0.1:{api}", "controllerDLegerSelfId": "n0"}
        keys |= {"controllerRaftPeers": f"n0-127.0.0.1:{port}", "controllerStorePath": tmp_path / "controller"}
    start(program, "-c", conf(tmp_path, **keys)).wait_for("boot success")  # type: ignore[operator]
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    limits = re.findall(r'rocketmq_waiting_bytes_limit\{[^}]*kind="([a-z]+)"[^}]*\} ([0-9.e+]+)', text)
    assert {("outgoing", 1111), ("incoming", 2222), ("parked", 3333), ("kept", 4444)} == {
        (kind, float(n)) for kind, n in limits
    }
