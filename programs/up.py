"""``understudy up``: name server, proxy, console and a container of brokers in one process, on defaults."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.console.report_files import ReportFiles
from understudy.console.server import Console, ConsoleOptions
from understudy.container.broker_files import AddBrokerError
from understudy.container.container import BrokerContainer
from understudy.namesrv.server import NameServer
from understudy.programs import command_line, proxy_options, up_servers
from understudy.programs.live_table import show_live_table, show_plain_lines
from understudy.programs.mqconsole import DEFAULT_PORT, given_folder, given_token
from understudy.programs.up_places import LOOPBACK, Places, check_free, folder_of
from understudy.programs.version import ShowVersion
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.log import configure
from understudy.runtime.network import ListenError
from understudy.runtime.os_failure import os_failure
from understudy.runtime.program import UsageError, run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.proxy.server import Proxy

_HOW_TO_SEND = """
Send to it with any RocketMQ client; topics are created on first use. Java:
    DefaultMQProducer producer = new DefaultMQProducer("my-group");
    producer.setNamesrvAddr("{address}");
    producer.start();
    producer.send(new Message("TopicTest", "hello".getBytes()));
{grpc}Look around:
    .venv/bin/mqadmin clusterList -n {address}
    .venv/bin/mqadmin sendMessage -n {address} -t TopicTest -p hello
{led}{console}Data: {folder}    Stop: Ctrl-C
"""
_HOW_TO_USE_GRPC = """\
gRPC clients (5.x): endpoints {host}:{port}; their topics are made beforehand:
    .venv/bin/mqadmin updateTopic -n {address} -c DefaultCluster -t TopicTest
"""
_IN_THE_BROWSER = """\
In the browser: {address}
"""
_HOW_TO_FAIL_OVER = """\
Three replicas of broker-a, led by the controller at {controller}. See who is master, and take it away:
    .venv/bin/mqadmin getSyncStateSet -a {controller} -b broker-a
    .venv/bin/mqadmin removeBroker -c {host}:{container} -b DefaultCluster:broker-a:ID
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``understudy up``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    parser = argparse.ArgumentParser(prog="understudy up", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--led",
        action="store_true",
        help="one group of three replicas that a controller leads, in the place of two masters: if its master is lost "
        "another one takes sends",
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="where messages are kept (default: ./data, with --led ./data/led)"
    )
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
        "--controller-port", type=int, default=9878, help="port of the controller, with --led (default: 9878)"
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
            folder_of(arguments.data, led=arguments.led),
            arguments.host,
            arguments.namesrv_port,
            arguments.container_port,
            arguments.broker_port,
            0 if proxy_options.missing_libraries() else arguments.proxy_port,
            arguments.console_port,
            arguments.led,
            arguments.controller_port,
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


def _led_hint(places: Places) -> str:
    if not places.led:
        return ""
    return _HOW_TO_FAIL_OVER.format(controller=places.controller, host=places.host, container=places.container_port)


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
    config, _ = config_of(keys, up_servers.COMMAND_LINE)
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


async def _run_name_server(
    name_server: NameServer, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    """Run it until *scope* is cancelled, whatever ends around it."""
    with scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(name_server.run)
            scope.shield = True
            task_status.started()


async def _serve(world: World, places: Places, live: bool, page: ConsoleOptions) -> None:
    options = up_servers.container_options(world.disk, places)
    controller = up_servers.controller_of(world, places)
    name_server = up_servers.name_server_of(world, places, controller)
    async with trio.open_nursery() as outer:
        # It outlives the container: brokers say goodbye while there is somebody to hear it.
        until_they_are_gone = trio.CancelScope()
        await outer.start(_run_name_server, name_server, until_they_are_gone)
        try:
            command_line.boot_line(f"The Name Server boot success. serializeType=JSON, address {places.name_server}")
            if controller is not None:
                await up_servers.wait_until_it_leads(controller)
            machine = up_servers.machine_of(places)
            container = BrokerContainer(world, options, machine=machine, on_boot=command_line.boot_line)
            async with trio.open_nursery() as nursery:
                await _serve_brokers(nursery, world, places, container, page)
                await (show_live_table if live else show_plain_lines)(world.clock, container)
        finally:
            until_they_are_gone.cancel()


async def _serve_brokers(
    nursery: trio.Nursery, world: World, places: Places, container: BrokerContainer, page: ConsoleOptions
) -> None:
    """Start container, brokers, proxy and page, and say how they are used."""
    await nursery.start(container.run)
    for name in places.brokers:
        keys = up_servers.broker_keys(world.disk, places, name)
        await container.add_broker(keys, source=keys.source)
    if places.proxy_port:
        await nursery.start(_run_proxy, world, places, container)
    console = await _start_console(nursery, world, places, page)
    command_line.boot_line(
        _HOW_TO_SEND.format(
            address=places.name_server,
            folder=places.folder,
            grpc=_grpc_hint(places),
            led=_led_hint(places),
            console=console,
        )
    )
