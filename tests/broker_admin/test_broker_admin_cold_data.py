"""Limits for groups that read old data, and read-ahead of the log: what the real tool asks (captured from 5.4.0)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.remoting.client import open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, request
from understudy.runtime.disk import Mapping, RealDisk
from understudy.runtime.world import World, real_world
from understudy.testkit.local_cluster import SMALL_FILES

Ask = Callable[[int, dict[str, str] | None, bytes], Awaitable[Command]]

# captured: the answer of a broker that was told of one group
SHOWN = (
    '{"runtimeTable":{},"configTable":{"cglive":1000},'
    '"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,"globalAcc":0}'
)


class NotingMapping:
    """A mapping that notes how it is to be read."""

    def __init__(self, mapping: Mapping, path: str, modes: dict[str, bool]) -> None:
        self._mapping, self._path, self._modes = mapping, path, modes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mapping, name)

    def read_ahead(self, on: bool) -> None:
        self._modes[self._path] = on
        self._mapping.read_ahead(on)


class NotingDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.modes: dict[str, bool] = {}

    def map(self, path: str, size: int, *, create: bool = True) -> Any:
        return NotingMapping(super().map(path, size, create=create), path, self.modes)


@pytest.fixture
def disk() -> NotingDisk:
    return NotingDisk()


@pytest.fixture
async def ask(tmp_path: Path, disk: NotingDisk, nursery: trio.Nursery) -> AsyncIterator[Ask]:
    options, _ = BrokerOptions.from_properties(
        {"listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "broker-a", **SMALL_FILES},
        machine=Machine("vm", "127.0.0.1", str(tmp_path / "store")),
    )
    world = real_world()
    broker: Broker = await nursery.start(host_broker, World(world.clock, world.network, disk, world.random), options)
    broker.store.append("T", 0, b"x", b"", 0, broker.store_host)
    async with open_client(world) as client:

        async def invoke(code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
            return await client.invoke(broker.identity.address, request(code, ext, body), 5_000)

        yield invoke
    nursery.cancel_scope.cancel()


async def test_limits_are_kept_shown_and_removed(ask: Ask) -> None:
    assert json.loads((await ask(2003, None, b"")).body)["configTable"] == {}
    assert (await ask(2001, None, b"cglive=1000\n")).code == 0
    shown = await ask(2003, None, b"")
    assert (shown.code, shown.body.decode()) == (0, SHOWN)
    for body, code in [
        (b"other=many", ResponseCode.INVALID_PARAMETER),
        (b"other=9223372036854775808", ResponseCode.INVALID_PARAMETER),
        (b"other=1\nwrong=\\uXYZ", ResponseCode.SYSTEM_ERROR),
    ]:
        assert (await ask(2001, None, body)).code == code
    assert (await ask(2003, None, b"")).body == shown.body  # all or none
    assert (await ask(2002, None, b"cglive")).code == 0
    assert (await ask(2002, None, b"never there")).code == 0
    assert json.loads((await ask(2003, None, b"")).body)["configTable"] == {}


async def test_read_ahead_of_the_log_is_set(ask: Ask, disk: NotingDisk) -> None:
    off = await ask(2004, {"READ_AHEAD_MODE": "1"}, b"")
    assert (off.code, off.remark) == (0, "set commitlog readahead mode success, mode: 1")  # captured
    (path,) = disk.modes
    assert "commitlog" in path and disk.modes[path] is False
    on = await ask(2004, {"READ_AHEAD_MODE": "0"}, b"")
    assert (on.code, on.remark, disk.modes) == (0, "set commitlog readahead mode success, mode: 0", {path: True})
    absent = await ask(2004, None, b"")
    assert (absent.code, absent.remark) == (1, "set commitlog readahead mode param error")  # captured
    assert (await ask(2004, {"READ_AHEAD_MODE": "2"}, b"")).code == ResponseCode.INVALID_PARAMETER
