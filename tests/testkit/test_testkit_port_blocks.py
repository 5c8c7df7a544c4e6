"""Blocks of ports of several runs at the same time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.testkit import port_blocks
from understudy.testkit.port_blocks import NoPortsError, PortBlocks


def test_blocks_of_different_widths_do_not_overlap() -> None:
    with PortBlocks(50) as wide, PortBlocks(10) as narrow, PortBlocks(33) as odd:
        blocks = [
            range(first, first + width)
            for taken, width in ((wide, 50), (narrow, 10), (odd, 40), (wide, 50))
            for first in (taken.take(),)
        ]
        ports = [port for block in blocks for port in block]
        assert len(ports) == len(set(ports)) == 150


@pytest.fixture
def own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports below those of all tests: nobody else claims there what was released a moment ago, but for a run beside."""
    first = max(port_blocks.FIRST_PORT - 50 * (1 + os.getpid() % 150), 1_100)
    monkeypatch.setattr(port_blocks, "FIRST_PORT", first)


@pytest.mark.usefixtures("own_range")
def test_a_block_with_a_port_in_use_is_left_out_and_a_released_one_comes_again() -> None:
    with PortBlocks(10) as blocks:
        first = blocks.take()
    with socket.socket() as user:
        user.bind(("127.0.0.1", first + 3))
        user.listen()
        with PortBlocks(10) as blocks:
            assert blocks.take() != first
    with PortBlocks(10) as blocks:
        (middle,) = blocks.middles(1)
        assert middle == first + 5


def test_two_processes_get_different_blocks_wherever_their_temporary_files_are(tmp_path: Path) -> None:
    code = (
        "from understudy.testkit.port_blocks import PortBlocks\n"
        "with PortBlocks(10) as blocks:\n    print(*blocks.middles(3), flush=True)\n    input()"
    )
    running = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        environment = {**os.environ, "TMPDIR": str(tmp_path / name)}
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        )
    try:
        ports = [port for process in running for port in (process.stdout or sys.stdin).readline().split()]
    finally:
        for process in running:
            process.communicate("\n", timeout=20)
    assert len(ports) == len(set(ports)) == 6


@pytest.mark.parametrize(
    ("said", "last"), [("32768\t60999\n", 32_000), ("16000\t65535\n", 16_000), ("1024\t65535\n", 32_000), ("", 32_000)]
)
def test_blocks_lie_below_the_ports_that_the_system_gives_to_connections(
    said: str, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(said)
    monkeypatch.setattr(port_blocks, "RANGE_FILE", tmp_path / "range")
    assert last == port_blocks.last_port()


def test_a_machine_without_free_ports_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_blocks, "LAST_PORT", port_blocks.FIRST_PORT + 5)
    with PortBlocks(10) as blocks, pytest.raises(NoPortsError, match="no 10 free ports in a row between 20000 and"):
        blocks.take()
