"""The programs as a user starts them: boot lines, signals, and one clear line for everything that is wrong."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy.runtime.ports import free_ports

BIN = Path(sys.executable).parent
START_SECONDS = 30.0
STOP_SECONDS = 20.0


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
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, text: str) -> str:
        """Read standard output until a line holds *text*."""
        assert self.process.stdout is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            ready, _, _ = select.select([self.process.stdout], [], [], end - time.monotonic())
            line = self.process.stdout.readline() if ready else ""
            if not line:
                break
            self.lines.append(line.rstrip())
            if text in line:
                return line.rstrip()
        self.process.kill()
        raise AssertionError(f"no line with {text!r}; got {self.lines} and {self.process.communicate()[1]}")

    def finish(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Send a signal, wait for the end, and return exit code and standard error."""
        if number is not None:
            self.process.send_signal(number)
        try:
            _, errors = self.process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError(f"still running after {STOP_SECONDS} s: {errors}") from None
        return self.process.returncode, errors


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
def test_a_broker_boots_says_so_and_stops_on_sigterm(tmp_path: Path, start: object) -> None:
    port = free_ports(1)[0]
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
        ({"listenPort": "often"}, "listenPort=often: expected"),
        ({"listenPort": "99999"}, "listenPort=99999: expected a port from 0 to 65535"),
        ({"brokerRole": "KING"}, "brokerRole=KING: expected one of"),
        ({"brokerRole": "SLAVE"}, "expected more than 0, because brokerRole is SLAVE"),
        ({"flushDiskType": "NEVER"}, "flushDiskType=NEVER: expected one of"),
        ({"flushIntervalCommitLog": "-1"}, "flushIntervalCommitLog=-1: expected 0 or more"),
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


def test_a_missing_configuration_file_is_one_line(tmp_path: Path, start: object) -> None:
    for program in ("mqbroker", "mqbrokercontainer"):
        code, errors = start(program, "-c", str(tmp_path / "none.conf")).finish()  # type: ignore[operator]
        reason = "No such file or directory; name a file of key=value lines"
        expected = f"{program}: configuration file {tmp_path}/none.conf cannot be read: {reason}\n"
        assert (1, expected) == (code, errors)


def test_unknown_and_inert_keys_are_one_warning_line_each(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path, flushDiskTipe="SYNC_FLUSH", useEpollNativeSelector="true")
    broker = start("mqbroker", "-c", file)  # type: ignore[operator]
    broker.wait_for("boot success")
    _, errors = broker.finish(signal.SIGTERM)
    warnings = [line for line in errors.splitlines() if line.startswith("warning: ")]
    assert 2 == len(warnings)
    assert "unknown key flushDiskTipe is ignored, the nearest known key is flushDiskType" in errors
    assert "useEpollNativeSelector=true has no effect here" in errors


def test_all_keys_and_the_important_ones_are_printed(tmp_path: Path, start: object) -> None:
    for option, least, most in (("-p", 300, 1000), ("-m", 20, 40)):
        printing = start("mqbroker", "-c", conf(tmp_path), option)  # type: ignore[operator]
        output, _ = printing.process.communicate(timeout=START_SECONDS)
        assert 0 == printing.process.returncode
        assert least <= len(output.splitlines()) <= most
        assert "brokerName=broker\n" in output


def test_a_broker_for_a_controller_is_refused_with_the_way_out(tmp_path: Path, start: object) -> None:
    file = conf(tmp_path, enableControllerMode="true", brokerId="-1")
    code, errors = start("mqbroker", "-c", file).finish()  # type: ignore[operator]
    assert 1 == code
    assert (
        "enableControllerMode=true: brokers of this version cannot be led by a controller; take the key out" in errors
    )
