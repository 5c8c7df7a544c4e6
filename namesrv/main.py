"""``mqnamesrv``: the name server as a program (NamesrvStartup.java)."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import attrs
import trio

from understudy.namesrv.config import NamesrvConfig, read_config, show
from understudy.namesrv.metrics import collect, read_settings
from understudy.namesrv.server import EmbeddedController, NameServer
from understudy.runtime.disk import RealDisk
from understudy.runtime.log import configure, get_logger
from understudy.runtime.metrics_endpoint import MetricsEndpoint
from understudy.runtime.network import ListenError
from understudy.runtime.program import first_cause, one_line
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.property_file import HOME_VARIABLE, read_properties_file
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World, real_world

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 after SIGTERM or SIGINT, 1 after one line about what is wrong."""
    options = _parser().parse_args(arguments)
    try:
        config, values = _config(options.config_file)
    except (ConfigError, OSError) as error:
        return _fail(error)
    if options.print_all or options.print_important:
        lines = show(config).splitlines()
        print("\n".join(line for line in lines if options.print_all or line.partition("=")[0] in _IMPORTANT))
        return 0
    configure(os.environ.get("UNDERSTUDY_LOG_LEVEL", "INFO"))
    if not config.rocketmq_home:
        log.info("ROCKETMQ_HOME is not set; only a relative path of a configuration file would be looked for there")
    try:
        trio.run(_serve, config, values)
    except BaseExceptionGroup as group:
        wrong = group.subgroup((ListenError, TableDamagedError, ConfigError, OSError))
        if wrong is None:
            raise
        return _fail(first_cause(wrong))
    except (ListenError, TableDamagedError, ConfigError, OSError) as error:
        return _fail(error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqnamesrv", description="Name server of a RocketMQ cluster.")
    parser.add_argument("-c", "--configFile", dest="config_file", metavar="FILE", help="name server properties file")
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="LIST", help="accepted as by the reference; a name server asks no other one"
    )
    parser.add_argument(
        "-p", "--printConfigItem", dest="print_all", action="store_true", help="print every setting and exit"
    )
    parser.add_argument(
        "-m", "--printImportantConfig", dest="print_important", action="store_true", help="print the main settings"
    )
    return parser


def _config(path: str | None) -> tuple[NamesrvConfig, Properties]:
    """Read the settings and print a warning line for each key that is unknown or without effect."""
    if path is None:
        return NamesrvConfig(), Properties({}, "defaults")
    values = read_properties_file(RealDisk(), path, os.environ.get(HOME_VARIABLE))
    # Settings changed over the network go back into the file they came from, as in the reference.
    base = attrs.evolve(NamesrvConfig(), config_store_path=os.path.abspath(values.source))
    config, warnings = read_config(values, base)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return config, values


async def _serve(config: NamesrvConfig, values: Properties) -> None:
    world = real_world()
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            controller = _controller(world, values) if config.enable_controller_in_namesrv else None
            server = NameServer(world, config, controller=controller)
            if controller is not None:
                controller.show_also(lambda: collect(server.table))  # both serve one file's keys: one port
            else:
                await _serve_metrics(world, values, server, nursery)
            host, port = await nursery.start(server.run)
            print(f"The Name Server boot success. serializeType=JSON, address {host}:{port}", flush=True)
            async for number in signals:
                log.info("stopping", signal=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()


async def _serve_metrics(world: World, values: Properties, server: NameServer, nursery: trio.Nursery) -> None:
    settings, warning = read_settings(values)
    if warning:
        log.warning(warning)
    if settings is not None:
        endpoint = MetricsEndpoint(world, settings, lambda: collect(server.table))
        await endpoint.bind()
        nursery.start_soon(endpoint.run)


def _controller(world: World, values: Properties) -> EmbeddedController:
    """Make the controller that shares this process; its room is above this one, so it is looked up by name."""
    embed = importlib.import_module("understudy.controller.embed")
    controller: EmbeddedController = embed.open_controller(world, values)
    return controller


def _fail(error: BaseException) -> int:
    print(f"mqnamesrv: {one_line(error)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
