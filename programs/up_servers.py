"""The settings of the servers of ``understudy up``: what was changed while they ran, and over it the command line."""

from __future__ import annotations

import os

import trio

from understudy.broker.config import Machine
from understudy.container.config import ContainerOptions
from understudy.controller.embed import EmbeddedController, open_controller
from understudy.namesrv.config import NamesrvConfig, read_config
from understudy.namesrv.server import NameServer
from understudy.programs.up_places import LED_GROUP, REPLICAS, Places
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger
from understudy.runtime.properties import Properties
from understudy.runtime.property_file import read_properties_file
from understudy.runtime.world import World

log = get_logger("container")

COMMAND_LINE = "understudy up"
CLUSTER = "DefaultCluster"

_KEPT = """\
# Settings of {name} that differ from the defaults of "understudy up"; what is changed while it runs is kept here.
# Names, addresses, ports and folders are those of the command line.
"""
_MEMBER = "n0"
_LEADS_SECONDS = 5.0
_LED = {"allAckInSyncStateSet": "true", "slaveReadEnable": "true"}
"""What a led replica has unless it is told otherwise, as those of ``conf/controller/quick``."""


def _kept(disk: Disk, folder: str, name: str) -> Properties:
    """Return the settings that a server of *name* was given while it ran before, or by an editor; makes their file.

    Raises:
        ConfigError: the file cannot be read.
        OSError: it cannot be made.
    """
    path = os.path.join(folder, f"{name}.conf")
    if not disk.exists(path):
        write_durably(disk, path, _KEPT.format(name=name).encode())
    return read_properties_file(disk, path, None)


def machine_of(places: Places) -> Machine:
    """Return where the brokers' defaults come from."""
    return Machine("localhost", places.host, os.path.join(places.folder, "store"), None, None)


def container_options(disk: Disk, places: Places) -> ContainerOptions:
    """Return the options of the container; warns of keys of its file that do nothing.

    Raises:
        ConfigError, OSError: its file cannot be used.
    """
    keys = _kept(disk, places.folder, "container").changed(
        {
            "listenPort": str(places.container_port),
            "bindAddress": places.listen_address,
            "namesrvAddr": places.name_server,
        },
        COMMAND_LINE,
    )
    options, warnings = ContainerOptions.from_properties(keys, machine=machine_of(places))
    for warning in warnings:
        log.warning(warning)
    options.path = keys.source
    return options


def _name_server_keys(disk: Disk, places: Places) -> Properties:
    keys = _kept(disk, places.folder, "namesrv")
    fixed = {"listenPort": str(places.namesrv_port), "bindAddress": places.listen_address}
    if places.led:
        fixed |= {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"{_MEMBER}-{places.controller}",
            "controllerDLegerSelfId": _MEMBER,
            "controllerStorePath": os.path.join(places.folder, "controller"),
            "configStorePath": keys.source,
        }
    return keys.changed(fixed, COMMAND_LINE)


def controller_of(world: World, places: Places) -> EmbeddedController | None:
    """Return the controller of a led group, whose settings are in the name server's file; else ``None``.

    Raises:
        ConfigError, OSError: that file cannot be used.
    """
    return open_controller(world, _name_server_keys(world.disk, places)) if places.led else None


def name_server_of(world: World, places: Places, controller: EmbeddedController | None) -> NameServer:
    """Return the name server; warns of keys of its file that do nothing.

    Args:
        world: the outside world.
        places: where everything is.
        controller: that runs in it.

    Raises:
        ConfigError, OSError: its file cannot be used.
    """
    keys = _name_server_keys(world.disk, places)
    defaults = NamesrvConfig(
        kv_config_path=os.path.join(places.folder, "namesrv", "kvConfig.json"),
        config_store_path=keys.source,
        support_acting_master=not places.led,
        notify_min_broker_id_changed=not places.led,
    )
    config, warnings = read_config(keys, defaults)
    for warning in warnings:
        log.warning(warning)
    return NameServer(world, config, controller=controller)


async def wait_until_it_leads(controller: EmbeddedController) -> None:
    """Wait, a few seconds at most, until *controller* decides: brokers that ask before are told that nobody does."""
    with trio.move_on_after(_LEADS_SECONDS):
        member = controller.controller.member
        while not member.leads():
            await member.wait_change()


def broker_keys(disk: Disk, places: Places, name: str) -> Properties:
    """Return all keys of the broker whose folder and file are called *name*.

    Raises:
        ConfigError, OSError: its file cannot be used.
    """
    fixed = {
        "brokerClusterName": CLUSTER,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": places.host,
        "bindAddress": places.listen_address,
        "listenPort": str(places.port_of(name)),
        "storePathRootDir": os.path.join(places.folder, name),
        "storePathCommitLog": os.path.join(places.folder, name, "commitlog"),
    }
    kept = _kept(disk, places.folder, name)
    if places.led:
        # the id names it in its container, and is the one that the controller gives it when all are new
        fixed |= {"brokerName": LED_GROUP, "brokerId": str(REPLICAS.index(name) + 1)}
        fixed |= {"enableControllerMode": "true", "controllerAddr": places.controller}
        fixed |= {key: text for key, text in _LED.items() if key not in kept}
    return kept.changed(fixed, COMMAND_LINE)
