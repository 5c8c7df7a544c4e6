"""Whatever UPDATE_BROKER_CONFIG (25) accepts for any setting, the next start accepts the file that it leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from understudy.broker.config import BrokerOptions, Machine
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.remoting.settings_requests import read_body
from understudy.runtime import stored_settings
from understudy.runtime.disk import Disk, RealDisk
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.runtime.stored_settings import BlackListedError, StartOnlyError, StoredSettings

T = TypeVar("T")
MACHINE = Machine("vm", "127.0.0.1", "/home/vm")
EDGES = (
    "",
    "0",
    "-1",
    "1.5",
    str(2**31 - 1),
    str(2**63),
    "true",
    "x",
    "a;b=c",
    "# x",
    "\\u00",
    "a b ",
    "1s 1x",
    "127.0.0.1:1",
)


class InPlaceDisk(RealDisk):
    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        return function()


async def test_what_is_accepted_for_any_setting_is_accepted_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "broker.conf", InPlaceDisk()

    def write(disk: Disk, path: str, data: bytes) -> None:  # thousands of files need not outlive a loss of power
        Path(path).write_bytes(data)

    monkeypatch.setattr(stored_settings, "write_durably", write)
    first, _ = BrokerOptions.from_properties({}, machine=MACHINE)
    first.path = str(path)
    accepted = 0
    for key in first.properties():
        options = copy.deepcopy(first)
        for value in EDGES:
            try:
                asked = read_body(Command(25, body=f"{key}={value}\n".encode()))
                await StoredSettings(options, disk).update(asked)
            except (CommandError, ConfigError, BlackListedError, StartOnlyError):
                assert not path.exists(), (key, value)
                continue
            accepted, options = accepted + 1, copy.deepcopy(first)
            kept = parse_properties(path.read_text()) if path.exists() else {}
            BrokerOptions.from_properties(kept, machine=MACHINE)
            path.unlink(missing_ok=True)
    assert accepted > 500
