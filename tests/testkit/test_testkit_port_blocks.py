"""Blocks of ports of several runs at the same time."""

from __future__ import annotations

import socket

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


def test_a_machine_without_free_ports_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_blocks, "LAST_PORT", port_blocks.FIRST_PORT + 5)
    with PortBlocks(10) as blocks, pytest.raises(NoPortsError, match="no 10 free ports in a row between 20000 and"):
        blocks.take()
