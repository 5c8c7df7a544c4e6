"""What an operator does in the first hour: each mistake is one line with the way out, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

import understudy
from understudy.mqclient.api import Message, message, open_producer
from understudy.programs.live_table import Meter, Row, table_of
from understudy.programs.mqconsole import DEFAULT_PORT
from understudy.programs.up import main
from understudy.programs.up_places import Places, folder_of
from understudy.runtime.program import UsageError
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
UP = "import sys; from understudy.programs.up import main; sys.exit(main())"
SECONDS = 60


def options(first: int, folder: Path) -> list[str]:
    ports = (
        "--namesrv-port",
        first,
        "--container-port",
        first + 5,
        "--broker-port",
        first + 10,
        "--proxy-port",
        first + 30,
        "--console-port",
        first + 31,
    )
    return [*map(str, ports), "--data", str(folder)]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``up`` until it has printed where its data is."""
    with subprocess.Popen(
        [sys.executable, "-c", UP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("Data:"):
                    break
            yield process
        finally:
            process.kill()


def but_for_a_busy_machine(errors: str) -> list[str]:
    """Return the lines that say more than that the machine had other things to do."""
    return [line for line in errors.splitlines() if "a task held the event loop" not in line]


def up(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", UP, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)


def test_it_listens_on_loopback_only_and_a_second_one_ends_with_one_line(tmp_path: Path) -> None:
    with PortBlocks(40) as blocks:
        first, second = blocks.take(), blocks.take()
        with running(*options(first, tmp_path / "data")) as process:
            # then nobody else reaches it
            for port in (
                first,
                first + 5,
                first + 30,
                first + 31,
                *(first + 10 + step for step in (0, -2, 1, 10, 8, 11)),
            ):
                with socket.create_connection(("127.0.0.1", port), 5):
                    pass
                with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), 5):
                    pass
            # when another one wants its ports, or its folder, then one line names the way out
            done = up(*options(first, tmp_path / "other"))
            assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
            assert f"cannot listen on 127.0.0.1:{first}" in done.stderr
            assert "--namesrv-port" in done.stderr
            assert not (tmp_path / "other").exists()
            done = up(*options(second, tmp_path / "data"))
            assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
            assert "name another folder by --data" in done.stderr
            # and a clean stop says nothing at all, but how busy the machine was
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=SECONDS)
            assert (0, []) == (process.returncode, but_for_a_busy_machine(errors))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (
            Places("/d", "nobody.invalid"),
            "--host: 'nobody.invalid' is no IP address, and no host name that this machine",
        ),
        (Places("/d", ""), "--host: '' is no IP address, and no host name that this machine can resolve"),
        (Places("/d", namesrv_port=99999), "--namesrv-port: the name server would listen on port 99999"),
        (Places("/d", broker_port=1), r"--broker-port: broker-a \(second port\) would listen on port -1"),
        (Places("/d", broker_port=65530), r"--broker-port: broker-b would listen on port 65540"),
        (Places("/d", console_port=10909), r"would both listen on port 10909; change --console-port or --broker-port"),
        (Places("/d", broker_port=10810), "would both listen on port 10811; change --container-port or --broker-port"),
    ],
)
def test_ports_that_cannot_be_are_refused_with_their_option(places: Places, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        places.check()


def test_an_address_of_the_network_opens_all_addresses() -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "localhost", "10.0.0.1", "host.example"]
    found = [Places("/d", host).listen_address for host in hosts]
    assert ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0", "0.0.0.0"] == found


def test_an_empty_or_impossible_folder_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["--data", " "])
    assert "understudy up: --data is empty" in capsys.readouterr().err
    assert os.path.abspath("data") == folder_of("data")
    with PortBlocks(40) as blocks:
        done = up(*options(blocks.take(), Path("/proc/none")))
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert done.stderr.startswith("understudy up: --data: /proc/none cannot be used: ")


def test_a_reader_that_goes_away_ends_it_with_one_line(tmp_path: Path) -> None:
    with PortBlocks(40) as blocks:
        arguments = options(blocks.take(), tmp_path / "data")
        with subprocess.Popen(
            [sys.executable, "-c", UP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            errors = process.stderr.read()
            assert 1 == process.wait(SECONDS)
    assert [
        "understudy up: stopped, because the reader of its output is gone; send the output to a file, or to /dev/null"
    ] == but_for_a_busy_machine(errors)


def test_the_table_of_two_brokers_fits_eighty_columns() -> None:
    rows = [
        Row(f"broker-{letter}", "master", "10911 10909 10912", 123, 1088, 123_456_789, 123_456.0, 123_456.0)
        for letter in "ab"
    ]
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(table_of("container", rows))
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for word in ("10911 10909 10912", "123456789", "in/s", "out/s", "stored"):
        assert word in text


async def test_the_table_counts_what_is_stored_and_a_restart_does_not_set_it_back(tmp_path: Path) -> None:
    for before in (0, 3):
        async with LocalCluster(folder=str(tmp_path)) as cluster:
            meter = Meter(real_world().clock, cluster.container)
            (row,) = meter.rows()
            assert (before, 0.0) == (row.stored, row.in_per_second)
            async with open_producer(real_world(), cluster.namesrv_address, "senders") as producer:
                for _ in range(3):
                    await producer.send(Message("Counted", b"x"))
                # a message that waits is one of a topic of the system until it is due
                await producer.send(message("Counted", b"x", delay_ms=60_000))
            (row,) = meter.rows()
            assert before + 3 == row.stored
            assert row.in_per_second > 0


def test_a_console_whose_usual_port_is_taken_listens_on_a_free_one(tmp_path: Path) -> None:
    with PortBlocks(40) as blocks, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another program has it already
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        arguments = options(blocks.take(), tmp_path / "data")
        before = arguments[: arguments.index("--console-port")]
        with subprocess.Popen(
            [sys.executable, "-c", UP, *before, *arguments[len(before) + 2 :]], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                line = next(line for line in process.stdout if line.startswith("In the browser: "))
                address = line.split()[-1]
                assert f":{DEFAULT_PORT}/" not in address
                with urllib.request.urlopen(address, timeout=SECONDS) as page:
                    assert b"<title>Understudy</title>" in page.read()
            finally:
                process.kill()


SCRIPTS: dict[str, str] = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
"""Every program that an installation has, with its place."""
PROGRAMS = ("mqnamesrv", "mqbroker", "mqbrokercontainer", "mqcontroller")


def program_of(name: str) -> Callable[[list[str]], int]:
    module, _, function = SCRIPTS[name].partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return found


@pytest.mark.parametrize("program", [*SCRIPTS, "understudy up"])
def test_every_program_tells_its_version(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = program_of(program) if program in SCRIPTS else main
    try:
        code = run(["--version"])
    except SystemExit as end:
        code = int(end.code or 0)
    assert (0, f"{program} {understudy.__version__}\n") == (code, capsys.readouterr().out)


@pytest.mark.parametrize("program", [*PROGRAMS, "mqproxy"])
def test_what_no_program_does_is_answered_alike_by_all(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a log that no program here has; when it is asked for, then every program refuses with one line
    file = tmp_path / "own.conf"
    if program == "mqproxy":
        file.write_text('{"namesrvAddr": "127.0.0.1:1", "enableDLegerCommitLog": true}')
        options, place = ["-pc", str(file)], str(file)
    else:
        file.write_text("enableDLegerCommitLog = true\n")
        options, place = ["-c", str(file), "-p"], f"{file}:1"
    assert 1 == program_of(program)(options)
    output = capsys.readouterr()
    assert ("", 1) == (output.out, output.err.count("\n"))
    assert f"{program}: {place}: enableDLegerCommitLog=true is not supported: " in output.err


@pytest.mark.parametrize("program", ["mqnamesrv", "mqcontroller"])
def test_a_key_that_looks_like_another_one_is_not_sent_there(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.conf"
    file.write_text("tlsEnable = true\nenableTls = true\naclEnabled = true\n")
    program_of(program)(["-c", str(file), "-p"])
    warnings = capsys.readouterr().err.splitlines()
    assert 3 == len(warnings)
    assert all("docs/security.md says how TLS is set" in line for line in warnings[:2]), warnings
    assert "nearest" not in "".join(warnings)
