"""The program ``mqnamesrv`` as an operator runs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.programs.mqnamesrv import main
from understudy.testkit.port_blocks import PortBlocks

PROGRAM = [sys.executable, "-m", "understudy.programs.mqnamesrv"]


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("ROCKETMQ_HOME", "UNDERSTUDY_LOG_LEVEL")}
    return {**kept, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(home)
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, env=environment(home), timeout=60, check=False
    )


def settings(folder: Path, text: str) -> str:
    path = folder / "n.conf"
    path.write_text(text)
    return str(path)


def answers(port: int, within_seconds: float) -> bool:
    """Return whether somebody listens on *port* by then."""
    deadline = time.monotonic() + within_seconds
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)


@pytest.mark.covers("R96", "NS-25")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_that_it_serves_and_stops_on_a_signal(
    tmp_path: Path, number: signal.Signals, port_blocks: PortBlocks
) -> None:
    # given a settings file with a key that has no effect and one that is misspelt
    (port,) = port_blocks.middles(1)
    path = settings(tmp_path, f"listenPort={port}\nbindAddress=127.0.0.1\nserverWorkerThreads=9\nlistenport=1\n")
    with started(tmp_path, "-c", path, "-n", "ignored:9876") as process:
        # when it starts, then it prints the reference's line and answers on the port
        assert process.stdout is not None
        line = process.stdout.readline()
        expected = f"The Name Server boot success. serializeType=JSON, address 127.0.0.1:{port}\n"
        assert line == expected, process.stderr.read() if process.stderr and not line else line
        socket.create_connection(("127.0.0.1", port), 5).close()
        # when it is told to stop, then it does, with success
        process.send_signal(number)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 0
    warnings = [line for line in errors.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "serverWorkerThreads has no effect" in warnings[0]
    assert "the nearest known key is listenPort" in warnings[1]
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(tmp_path, "-c", settings(tmp_path, f"listenPort={port}\nbindAddress=127.0.0.1\n"))
    assert done.returncode == 1
    assert done.stdout == ""
    complaints = [line for line in done.stderr.splitlines() if line.startswith("mqnamesrv: ")]
    assert len(complaints) == 1
    assert f"127.0.0.1:{port}" in complaints[0]
    assert "in use" in complaints[0]
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", settings(tmp_path, "listenPort=0\nkvConfigPath=/dev/null/kv.json\n"))
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mqnamesrv: ")]
    assert "kvConfigPath: cannot write in /dev/null" in line
    assert "Traceback" not in done.stderr


def test_a_bad_value_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, "listenPort=abc\n")
    assert main(["-c", path]) == 1
    assert capsys.readouterr() == ("", f"mqnamesrv: {path}:1: listenPort=abc: expected a port from 0 to 65535\n")


def test_a_missing_settings_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "absent.conf"
    assert main(["-c", str(path)]) == 1
    reason = "No such file or directory; name a text file of key=value lines"
    assert capsys.readouterr() == ("", f"mqnamesrv: configuration file {path} cannot be read: {reason}\n")


def test_a_key_value_file_without_a_readable_copy_is_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "namesrv"
    folder.mkdir()
    (folder / "kvConfig.json").write_text("{")
    done = run(tmp_path, "-c", settings(tmp_path, "listenPort=0\n"))
    assert done.returncode == 1
    assert "kvConfig.json" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert (folder / "kvConfig.json").read_text() == "{"


def test_settings_are_printed_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settings(tmp_path, "listenPort=1234\n")
    assert main(["-c", path, "-p"]) == 0
    every = capsys.readouterr().out
    assert "listenPort=1234\n" in every
    assert f"configStorePath={path}\n" in every
    assert "writeBufferLowWaterMark=0\n" in every
    assert main(["-c", path, "-m"]) == 0
    important = capsys.readouterr().out
    assert "listenPort=1234\n" in important
    assert "writeBufferLowWaterMark" not in important


@pytest.mark.covers("R122")
def test_a_controller_is_embedded_only_when_the_settings_say_so(tmp_path: Path, port_blocks: PortBlocks) -> None:
    # given settings of a name server and of the controller beside it
    port, controller_port, raft_port = port_blocks.middles(3)
    controller = (
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{controller_port}\n"
        f"controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path}/controller\n"
        f"controllerRaftPeers=n0-127.0.0.1:{raft_port}\n"
    )
    for enabled in ("true", "false"):
        text = f"listenPort={port}\nbindAddress=127.0.0.1\nenableControllerInNamesrv={enabled}\n{controller}"
        with started(tmp_path, "-c", settings(tmp_path, text)) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("The Name Server boot success."), process.communicate()[1]
            # then its port answers, or does not
            assert answers(controller_port, within_seconds=60 if enabled == "true" else 0) is (enabled == "true")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=40)
            assert process.returncode == 0, errors
            assert ("unknown key controllerStorePath" in errors) is (enabled == "false")
