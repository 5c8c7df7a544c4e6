"""The name server as a process: its settings, how it serves until a signal, one line for what is wrong."""

from __future__ import annotations

import os
import platform
import signal
import sys

import attrs
import trio

from understudy.namesrv.config import NamesrvConfig, read_config, show
from understudy.namesrv.metrics import collect, read_settings
from understudy.namesrv.server import EmbeddedController, NameServer
from understudy.programs import command_line
from understudy.programs.tls_file import with_tls_file
from understudy.runtime.ahead_network import AheadNetwork
from understudy.runtime.listen_ahead import AheadSocket
from understudy.runtime.log import configure, get_logger
from understudy.runtime.metrics import MetricsSettings
from understudy.runtime.network import ListenError
from understudy.runtime.program import UsageError, first_cause, one_line, run_server
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World, real_world
from understudy.security.settings import read_security

log = get_logger("namesrv.main")

_IMPORTANT = (
    "bindAddress",
    "listenPort",
    "kvConfigPath",
    "configStorePath",
    "supportActingMaster",
    "notifyMinBrokerIdChanged",
    "enableControllerInNamesrv",
)


def print_settings(values: Properties | None, *, important: bool) -> int:
    """Print every setting, or the *important* ones; return the exit code.

    Args:
        values: what stands in the file, if there is one.
        important: leave out all but a few.
    """
    try:
        config = _config(values)
    except (ConfigError, OSError) as error:
        return _fail(error)
    lines = show(config).splitlines()
    command_line.show("\n".join(line for line in lines if not important or line.partition("=")[0] in _IMPORTANT))
    return 0


def serve(values: Properties | None, ahead: AheadSocket | None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code: 0 after those, 1 after one line about what is wrong.

    Args:
        values: what stands in the file, if there is one.
        ahead: the port, if it is listened on already.
    """
    try:
        config = _config(values)
        if values is None:
            values = with_tls_file(Properties({}, "defaults"))
    except (ConfigError, OSError) as error:
        return _fail(error)
    configure(os.environ.get("UNDERSTUDY_LOG_LEVEL", "INFO"))
    if not config.rocketmq_home:
        log.info("ROCKETMQ_HOME is not set; only a relative path of a configuration file would be looked for there")
    world = real_world()
    world.load.limit(config)
    if ahead is not None:
        world = attrs.evolve(world, network=AheadNetwork(ahead))
    try:
        run_server(_serve, world, config, values)
    except BaseExceptionGroup as group:
        wrong = group.subgroup((ListenError, TableDamagedError, ConfigError, UsageError, OSError))
        if wrong is None:
            raise
        return _fail(first_cause(wrong))
    except (ListenError, TableDamagedError, ConfigError, UsageError, OSError) as error:
        return _fail(error)
    return 0


def _config(values: Properties | None) -> NamesrvConfig:
    """Read the settings and print a warning line for each key that is unknown or without effect."""
    if values is None:
        return NamesrvConfig()
    # Settings changed over the network go back into the file they came from, as in the reference.
    base = attrs.evolve(NamesrvConfig(), config_store_path=os.path.abspath(values.source))
    config, warnings = read_config(values, base)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return config


async def _serve(world: World, config: NamesrvConfig, values: Properties) -> None:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            controller = _controller(world, values) if config.enable_controller_in_namesrv else None
            server = NameServer(world, config, controller=controller, security=read_security(values))
            if controller is not None:
                controller.show_also(
                    lambda: collect(server.table, server.refused_connections, world.load)
                )  # both serve one file's keys: one port
            else:
                await _serve_metrics(world, config, values, server, nursery)
            host, port = await nursery.start(server.run)
            command_line.boot_line(f"The Name Server boot success. serializeType=JSON, address {host}:{port}")
            async for number in signals:
                log.info("stopping", signal=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()


async def _serve_metrics(
    world: World, config: NamesrvConfig, values: Properties, server: NameServer, nursery: trio.Nursery
) -> None:
    settings, warning = read_settings(values)
    if warning:
        log.warning(warning)
    if settings is not None:
        from understudy.runtime.metrics_export import make_exporter  # few name servers have metrics out

        if not isinstance(settings, MetricsSettings):  # who scrapes knows whom it asks
            labels = {"node_type": "namesrv", "node_id": f"{platform.node()}:{config.listen_port}"}
            settings = attrs.evolve(settings, labels={**labels, **settings.labels})

        exporter = make_exporter(
            world, settings, lambda: collect(server.table, server.refused_connections, world.load), "namesrv-meter"
        )
        await exporter.bind()
        nursery.start_soon(exporter.run)


def _controller(world: World, values: Properties) -> EmbeddedController:
    from understudy.controller.embed import open_controller  # most name servers embed none

    return open_controller(world, values)


def _fail(error: BaseException) -> int:
    print(f"mqnamesrv: {one_line(error)}", file=sys.stderr)
    return 1
