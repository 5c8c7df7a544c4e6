"""The units of ``conf/systemd``: systemd understands them, and what they start stops as they expect."""

from __future__ import annotations

import configparser
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.testkit.port_blocks import PortBlocks

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
PROGRAMS = {"mqnamesrv", "mqbroker", "mqbrokercontainer", "mqcontroller", "mqproxy"}


def section(path: Path, name: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys as they are written
    parser.read(path)
    return parser[name]


def test_every_server_has_a_unit() -> None:
    assert {section(path, "Service")["ExecStart"].split()[0].rpartition("/")[2] for path in UNITS} == PROGRAMS


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


def test_a_program_that_is_told_to_stop_ends_with_0(tmp_path: Path, port_blocks: PortBlocks) -> None:
    (tmp_path / "namesrv.conf").write_text(f"listenPort={port_blocks.take()}\nkvConfigPath={tmp_path}/kv.json\n")
    command = [sys.executable, "-m", "understudy.programs.mqnamesrv", "-c", str(tmp_path / "namesrv.conf")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert b"boot success" in program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        assert program.wait(30) == 0
