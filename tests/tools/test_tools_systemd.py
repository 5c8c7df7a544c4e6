"""The units of ``conf/systemd``: systemd understands them, and what they start stops as they expect."""

from __future__ import annotations

import configparser
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from understudy.container.config import DEFAULT_LISTEN_PORT
from understudy.namesrv.config import NamesrvConfig
from understudy.programs.mqconsole import DEFAULT_PORT
from understudy.proxy.config import ProxyConfig
from understudy.testkit.blocking import local_cluster
from understudy.testkit.port_blocks import PortBlocks

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
PROGRAMS = {"mqnamesrv", "mqbroker", "mqbrokercontainer", "mqcontroller", "mqproxy", "mqconsole"}
PAGE = (ROOT / "docs" / "deployment.md").read_text()
BOOTED = rb"boot success|startup successfully|The console of .* is at "


def section(path: Path, name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys as they are written
    parser.read(path)
    return parser[name]


def test_every_server_has_a_unit() -> None:
    assert {section(path, "Service")["ExecStart"].split()[0].rpartition("/")[2] for path in UNITS} == PROGRAMS


def test_the_page_names_every_installed_program_and_the_ports_of_each() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert PROGRAMS < scripts.keys()
    (sentence,) = re.findall(r"^puts (.*?) into `/opt/understudy/bin`", PAGE, re.MULTILINE | re.DOTALL)
    assert scripts.keys() == set(re.findall(r"`([\w-]+)`", sentence))
    _, _, table = PAGE.partition("| server | port | who connects |\n")
    table, _, _ = table.partition("\n\n")
    proxy = ProxyConfig()
    for server, port in (
        ("name server", NamesrvConfig().listen_port),
        ("container", DEFAULT_LISTEN_PORT),
        ("proxy", proxy.grpc_server_port),
        ("", proxy.remoting_listen_port),
        ("console", DEFAULT_PORT),
    ):
        assert re.search(rf"^\| {server}? ?\| [^|]*\({port}\)", table, re.MULTILINE), server


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_failure_starts_it_again_and_a_stop_is_given_time(path: Path) -> None:
    service = section(path, "Service")
    assert (service["Restart"], service["Type"]) == ("on-failure", "exec")
    assert int(service["TimeoutStopSec"]) >= 20  # how long a stop takes at most
    assert int(section(path, "Unit")["StartLimitBurst"]) * int(service["RestartSec"]) < 60


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_them(tmp_path: Path) -> None:
    for path in UNITS:
        text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", path.read_text(), flags=re.MULTILINE)
        name = path.name.replace("@", "@broker-a")
        (tmp_path / name).write_text(re.sub(r"^User=\S+", "User=root", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def configuration(program: str, port: int, name_server: str, folder: Path) -> list[str]:
    """Write the least file that *program* starts with; return its options."""
    keys = {
        "mqnamesrv": f"listenPort={port}\nkvConfigPath={folder}/kv.json",
        "mqbroker": f"listenPort={port}\nbrokerIP1=127.0.0.1\nnamesrvAddr={name_server}\n"
        f"storePathRootDir={folder}/store",
        "mqbrokercontainer": f"listenPort={port}\nbrokerIP1=127.0.0.1\nnamesrvAddr={name_server}",
        "mqcontroller": f"controllerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerDLegerSelfId=n0\n"
        f"controllerStorePath={folder}/controller",
        "mqproxy": f'{{"grpcServerPort": {port}, "remotingListenPort": 0, "localServeAddr": "127.0.0.1"}}',
        "mqconsole": "",
    }
    (folder / "its.conf").write_text(keys[program] + "\n")
    if program == "mqconsole":
        return ["--port", str(port), "-n", name_server]
    if program == "mqproxy":
        return ["-pm", "cluster", "-n", name_server, "-pc", str(folder / "its.conf")]
    return ["-c", str(folder / "its.conf")]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_program_that_is_told_to_stop_ends_with_0(program: str, tmp_path: Path, port_blocks: PortBlocks) -> None:
    if program == "mqproxy":
        pytest.importorskip("hpack")
    (port,) = port_blocks.middles(1)
    with local_cluster() as cluster:
        options = configuration(program, port, cluster.namesrv_address, tmp_path)
        command = [sys.executable, "-m", f"understudy.programs.{program}", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path) as running:
            assert running.stdout is not None
            assert re.search(BOOTED, running.stdout.readline())
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
