"""Whatever a server accepts for any setting (25, 318, 1009), the next start accepts the file that it leaves."""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs
import pytest

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import ContainerOptions
from understudy.controller.configuration import check
from understudy.controller.configuration import read_config as read_controller
from understudy.controller.embed import open_controller
from understudy.controller.server import Controller
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.config import read_config as read_name_server
from understudy.namesrv.server import NameServer
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.remoting.settings_requests import read_body
from understudy.runtime import stored_settings
from understudy.runtime.disk import Disk, RealDisk
from understudy.runtime.properties import ConfigError, Properties, parse_properties
from understudy.runtime.stored_settings import BlackListedError, LiveSettings, StartOnlyError, StoredSettings
from understudy.runtime.world import real_world

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
PEERS = "n0-127.0.0.1:9878;n1-127.0.0.1:9888;n2-127.0.0.1:9898"
CONTROLLER = f"controllerDLegerPeers={PEERS}\ncontrollerDLegerSelfId=n0\n"


class InPlaceDisk(RealDisk):
    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        return function()


def start_broker(values: Properties) -> LiveSettings:
    options, _ = BrokerOptions.from_properties(values, machine=MACHINE)
    options.path = values.source
    ipaddress.ip_address(options.server.bind_address)
    return options


def start_container(values: Properties) -> LiveSettings:
    options, _ = ContainerOptions.from_properties(values, machine=MACHINE)
    options.path = values.source
    ipaddress.ip_address(options.server.bind_address)
    return options


def start_name_server(values: Properties) -> LiveSettings:
    base = attrs.evolve(NamesrvConfig(), config_store_path=values.source)
    config, _ = read_name_server(values, base)
    if config.enable_controller_in_namesrv:
        open_controller(real_world(), values)
    ipaddress.ip_address(config.bind_address)
    return NameServer(real_world(), config).settings


def start_controller(values: Properties) -> LiveSettings:
    config = attrs.evolve(read_controller(values), config_store_path=values.source)
    check(config)
    for host in (config.bind_address, config.metrics_prom_exporter_host or "0.0.0.0"):
        ipaddress.ip_address(host)
    return Controller(real_world(), config).settings


Start = Callable[[Properties], LiveSettings]
PROGRAMS: dict[str, tuple[Start, str, int]] = {
    "broker": (start_broker, "", 500),
    "container": (start_container, "", 50),
    "controller": (start_controller, CONTROLLER, 50),
    "name server": (start_name_server, "", 50),
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_what_is_accepted_for_any_setting_is_accepted_by_the_next_start(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, text, least = PROGRAMS[program]
    path, disk = tmp_path / "file.conf", InPlaceDisk()

    def write(disk: Disk, path: str, data: bytes) -> None:  # thousands of files need not outlive a loss of power
        Path(path).write_bytes(data)

    monkeypatch.setattr(stored_settings, "write_durably", write)
    first = start(parse_properties(text, str(path)))
    accepted = 0
    for key in first.properties():
        settings = copy.deepcopy(first)
        for value in EDGES:
            path.write_text(text)
            try:
                asked = read_body(Command(25, body=f"{key}={value}\n".encode()))
                await StoredSettings(settings, disk).update(asked)
            except (CommandError, ConfigError, BlackListedError, StartOnlyError):
                assert path.read_text() == text, (key, value)
                continue
            accepted, settings = accepted + 1, copy.deepcopy(first)
            start(parse_properties(path.read_text(), str(path)))
    assert accepted > least


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        ("name server", "enableControllerInNamesrv=true"),
        ("name server", "bindAddress=nonsense"),
        ("container", "bindAddress=nonsense"),
        ("container", "listenPort=1"),
        ("broker", "metricsPromExporterHost=nonsense"),
        ("controller", "controllerDLegerGroup=other"),
        ("controller", "controllerDLegerSelfId=n1"),
        ("controller", f"controllerDLegerPeers=n0-10.0.0.1:1;{PEERS[PEERS.index(';') + 1 :]}"),
        ("controller", "controllerRaftPeers=n0-10.0.0.1:1;n1-10.0.0.1:2;n2-10.0.0.1:3"),
        ("controller", "controllerStorePath=/proc/nope"),
        ("controller", "controllerLogFile=/proc/nope"),
        (
            "controller",
            "controllerRaftTlsCertificate=/nope\ncontrollerRaftTlsKey=/nope\ncontrollerRaftTlsAuthority=/nope",
        ),
        ("controller", "bindAddress=nonsense"),
        ("controller", "metricsPromExporterHost=nonsense"),
    ],
)
async def test_what_no_running_server_changes_and_may_stop_a_start_is_refused(
    program: str, asked: str, tmp_path: Path
) -> None:
    start, text, _ = PROGRAMS[program]
    path = tmp_path / "file.conf"
    path.write_text(text)
    settings = start(parse_properties(text, str(path)))
    before = settings.properties()
    with pytest.raises(StartOnlyError) as refused:
        await StoredSettings(settings, RealDisk()).update(parse_properties(asked, "request"))
    keys = ", ".join(sorted(line.partition("=")[0] for line in asked.splitlines()))
    assert str(refused.value) == f"{keys} cannot change while the server runs; change the file and start it again"
    assert (path.read_text(), settings.properties()) == (text, before)
    # and what it is already may be said again
    same = {key: before[key] for key in keys.split(", ") if key in before}
    assert await StoredSettings(settings, RealDisk()).update(same) == same
