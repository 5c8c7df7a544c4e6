"""A listener lives through times without descriptors, and says so once."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from understudy.runtime.tcp import TcpListener


class Starved:
    """A listening socket whose first calls of accept fail."""

    def __init__(self, real: trio.socket.SocketType, failures: list[int]) -> None:
        self._real = real
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def accept(self) -> Any:
        if self._failures:
            number = self._failures.pop(0)
            raise OSError(number, os.strerror(number))
        return await self._real.accept()


async def test_a_lack_of_descriptors_is_waited_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with trio.socket.socket() as real:
        await real.bind(("127.0.0.1", 0))
        real.listen()
        failures = [errno.EMFILE, errno.EMFILE, errno.ECONNABORTED]
        listener = TcpListener(Starved(real, failures))  # type: ignore[arg-type]  # looks like one
        with socket.create_connection(real.getsockname()) as client:
            stream = await listener.accept()
            assert stream.peer == client.getsockname()
            await stream.aclose()
    assert failures == []
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "no connection can be accepted at the moment" in lines[0] and "ulimit -n" in lines[0]


async def test_other_errors_of_a_listener_end_it(autojump_clock: MockClock) -> None:
    with trio.socket.socket() as real:
        await real.bind(("127.0.0.1", 0))
        real.listen()
        listener = TcpListener(Starved(real, [errno.EBADF]))  # type: ignore[arg-type]  # looks like one
        with pytest.raises(OSError, match="Bad file descriptor"):
            await listener.accept()
