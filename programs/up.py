"""``understudy up``: name server, proxy, console and a container with two broker groups in one process, on defaults."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.config import Machine
from understudy.console.report_files import ReportFiles
from understudy.console.server import Console, ConsoleOptions
from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.namesrv.config import NamesrvConfig, read_config
from understudy.namesrv.server import NameServer
from understudy.programs import command_line, proxy_options
from understudy.programs.live_table import show_live_table, show_plain_lines
from understudy.programs.mqconsole import DEFAULT_PORT, given_folder, given_token
from understudy.programs.up_places import BROKERS, LOOPBACK, Places, check_free, folder_of
from understudy.programs.version import ShowVersion
from understudy.runtime.disk import Disk, DiskLockedError
from understudy.runtime.durable import write_durably
from understudy.runtime.log import configure, get_logger
from understudy.runtime.network import ListenError
from understudy.runtime.os_failure import os_failure
from understudy.runtime.program import UsageError, run_program
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.property_file import read_properties_file
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.proxy.server import Proxy

log = get_logger("container")

_COMMAND_LINE = "understudy up"

_HOW_TO_SEND = """
Send to it with any RocketMQ client; topics are created on first use. Java:
    DefaultMQProducer producer = new DefaultMQProducer("my-group");
    producer.setNamesrvAddr("{address}");
    producer.start();
    producer.send(new Message("TopicTest", "hello".getBytes()));
{grpc}Look around:
    .venv/bin/mqadmin clusterList -n {address}
    .venv/bin/mqadmin sendMessage -n {address} -t TopicTest -p hello
{console}Data: {folder}    Stop: Ctrl-C
"""
_HOW_TO_USE_GRPC = """\
gRPC clients (5.x): endpoints {host}:{port}; their topics are made beforehand:
    .venv/bin/mqadmin updateTopic -n {address} -c DefaultCluster -t TopicTest
"""
_IN_THE_BROWSER = """\
In the browser: {address}
"""
_KEPT = """\
# Settings of {name} that differ from the defaults of "understudy up"; what is changed while it runs is kept here.
# Names, addresses, ports and folders are those of the command line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``understudy up``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    parser = argparse.ArgumentParser(prog="understudy up", description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", default="data", metavar="FOLDER", help="where messages are kept (default: ./data)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="IP",
        help="address that clients reach; with one of the network, all addresses are listened on (default: 127.0.0.1, "
        "this machine alone)",
    )
    parser.add_argument("--namesrv-port", type=int, default=9876, help="port of the name server (default: 9876)")
    parser.add_argument("--container-port", type=int, default=10811, help="port of the container (default: 10811)")
    parser.add_argument(
        "--broker-port",
        type=int,
        default=10911,
        help="port of the first broker, whose other ports are two below and one above; the next broker follows ten "
        "ports later (default: 10911)",
    )
    parser.add_argument(
        "--proxy-port", type=int, default=8081, help="port of the proxy for gRPC clients, 0 for none (default: 8081)"
    )
    parser.add_argument(
        "--console-port",
        type=int,
        metavar="PORT",
        help="port of the page for the browser, on this machine alone, 0 for none (default: 8082, or a free one)",
    )
    parser.add_argument(
        "--console-token", metavar="TEXT", help="who gives it on that page may change something (default: nobody may)"
    )
    parser.add_argument(
        "--spark-reports",
        metavar="DIR",
        help="show on that page the reports that understudy-spark has written below this folder",
    )
    parser.add_argument("--version", action=ShowVersion)
    parser.add_argument("--plain", action="store_true", help="plain lines even on a terminal")
    arguments = parser.parse_args(argv)
    configure(os.environ.get("UNDERSTUDY_LOG", "WARNING"))
    try:
        places = Places(
            folder_of(arguments.data),
            arguments.host,
            arguments.namesrv_port,
            arguments.container_port,
            arguments.broker_port,
            0 if proxy_options.missing_libraries() else arguments.proxy_port,
            arguments.console_port,
        )
        places.check()
        token, reports = given_token(arguments.console_token), given_folder(arguments.spark_reports)
        if places.proxy_port:
            proxy_options.load("understudy.proxy.key_pair")
    except UsageError as error:
        print(f"understudy up: {error}", file=sys.stderr)
        return 2
    return run_program(
        "understudy up",
        lambda: serve(
            command_line.server_world(),
            places,
            live=sys.stdout.isatty() and not arguments.plain,
            token=token,
            reports=reports,
        ),
        refusals=(ListenError, DiskLockedError, ConfigError, AddBrokerError, TableDamagedError),
    )


def kept_settings(disk: Disk, folder: str, name: str) -> Properties:
    """Return the settings that a server of *name* was given while it ran before, or by an editor; makes their file.

    Raises:
        ConfigError: the file cannot be read.
        OSError: it cannot be made.
    """
    path = os.path.join(folder, f"{name}.conf")
    if not disk.exists(path):
        write_durably(disk, path, _KEPT.format(name=name).encode())
    return read_properties_file(disk, path, None)


async def serve(
    world: World, places: Places, *, live: bool, token: str = "", reports: ReportFiles | None = None
) -> None:
    """Run everything until cancelled.

    Args:
        world: clock, network, disk and randomness.
        places: where it listens and keeps everything; the folder is made when absent.
        live: redraw a table instead of printing lines.
        token: who gives it on the page may change something.
        reports: of Spark jobs, that the page shows; ``None``: there are none.

    Raises:
        OSError: a file in the folder cannot be written.
        DiskLockedError: another one of these keeps its data there.
        UsageError, ListenError: the folder cannot be made, or a port cannot be had.
        AddBrokerError: a broker cannot start.
    """
    await check_free(world.network, places)
    try:
        world.disk.make_folder(places.folder)
    except OSError as error:
        raise UsageError(f"--data: {os_failure(error)}") from None
    try:
        lock = world.disk.lock(os.path.join(places.folder, "lock"))
    except DiskLockedError:
        raise DiskLockedError(
            f"{places.folder} is the data of an 'understudy up' that runs; stop it, or name another folder by --data"
        ) from None
    try:
        await _serve(world, places, live, ConsoleOptions(LOOPBACK, 0, places.name_server, token, spark_reports=reports))
    finally:
        lock.release()


def _grpc_hint(places: Places) -> str:
    if not places.proxy_port:
        return ""
    return _HOW_TO_USE_GRPC.format(host=places.host, port=places.proxy_port, address=places.name_server)


async def _run_proxy(
    world: World, places: Places, container: BrokerContainer, *, task_status: trio.TaskStatus[Proxy]
) -> None:
    from understudy.programs.local_proxy import run_local_proxy  # its libraries may be missing
    from understudy.proxy.config import config_of

    keys = {"grpcServerPort": places.proxy_port, "namesrvAddr": places.name_server, "localServeAddr": places.host}
    keys["remotingListenPort"] = 0  # older clients go to the brokers
    config, _ = config_of(keys, _COMMAND_LINE)
    await run_local_proxy(
        world,
        config,
        lambda: [each.broker for each in container.brokers()],
        places.listen_address,
        task_status=task_status,
    )


async def _start_console(nursery: trio.Nursery, world: World, places: Places, options: ConsoleOptions) -> str:
    """Start the page; return what is printed of it."""
    if places.console_port == 0:
        return ""
    ports = (DEFAULT_PORT, 0) if places.console_port is None else (places.console_port,)
    for port in ports:
        try:
            console = Console(world, attrs.evolve(options, port=port))
            await console.bind()
        except ListenError:
            if port == ports[-1]:
                raise
            continue
        nursery.start_soon(console.run)
        return _IN_THE_BROWSER.format(address=console.address)
    return ""


async def _serve(world: World, places: Places, live: bool, page: ConsoleOptions) -> None:
    folder, host, listen = places.folder, places.host, places.listen_address
    machine = Machine("localhost", host, os.path.join(folder, "store"), None, None)
    container_keys = kept_settings(world.disk, folder, "container").changed(
        {"listenPort": str(places.container_port), "bindAddress": listen, "namesrvAddr": places.name_server},
        _COMMAND_LINE,
    )
    container_options, warnings = ContainerOptions.from_properties(container_keys, machine=machine)
    container_options.path = container_keys.source
    namesrv_keys = kept_settings(world.disk, folder, "namesrv").changed(
        {"listenPort": str(places.namesrv_port), "bindAddress": listen}, _COMMAND_LINE
    )
    namesrv_defaults = NamesrvConfig(
        kv_config_path=os.path.join(folder, "namesrv", "kvConfig.json"),
        config_store_path=namesrv_keys.source,
        support_acting_master=True,
        notify_min_broker_id_changed=True,
    )
    namesrv_config, more = read_config(namesrv_keys, namesrv_defaults)
    for warning in warnings + more:
        log.warning(warning)
    name_server = NameServer(world, namesrv_config)
    async with trio.open_nursery() as outer:
        await outer.start(name_server.run)
        command_line.boot_line(f"The Name Server boot success. serializeType=JSON, address {places.name_server}")
        container = BrokerContainer(world, container_options, machine=machine, on_boot=command_line.boot_line)
        # The container's own nursery inside the name server's: brokers say goodbye while there is somebody to hear it.
        async with trio.open_nursery() as inner:
            await inner.start(container.run)
            for name in BROKERS:
                fixed = {
                    "brokerClusterName": "DefaultCluster",
                    "brokerName": name,
                    "brokerId": "0",
                    "brokerIP1": host,
                    "bindAddress": listen,
                    "listenPort": str(places.port_of(name)),
                    "storePathRootDir": os.path.join(folder, name),
                    "storePathCommitLog": os.path.join(folder, name, "commitlog"),
                }
                broker_keys = kept_settings(world.disk, folder, name).changed(fixed, _COMMAND_LINE)
                await container.add_broker(broker_keys, source=broker_keys.source)
            if places.proxy_port:
                await inner.start(_run_proxy, world, places, container)
            console = await _start_console(inner, world, places, page)
            grpc = _grpc_hint(places)
            command_line.boot_line(
                _HOW_TO_SEND.format(address=places.name_server, folder=folder, grpc=grpc, console=console)
            )
            await (show_live_table if live else show_plain_lines)(world.clock, container)
