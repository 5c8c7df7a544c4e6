"""``mqcontroller``: a controller as a program of its own (ControllerStartup.java)."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

import trio

from understudy.controller.configuration import ControllerConfig, check, read_config, show
from understudy.controller.file_warnings import unused_keys
from understudy.controller.log_file import open_log_file
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.security import SecurityError
from understudy.controller.server import Controller
from understudy.programs import command_line
from understudy.programs.tls_file import with_tls_file
from understudy.programs.version import ShowVersion
from understudy.runtime.disk import DiskLockedError, RealDisk
from understudy.runtime.log import configure, get_logger
from understudy.runtime.network import ListenError
from understudy.runtime.program import UsageError, first_cause, one_line, run_server
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.property_file import HOME_VARIABLE, read_properties_file
from understudy.runtime.world import real_world
from understudy.security.settings import SecuritySettings, read_security
from understudy.security.tls import idle_keys

log = get_logger("controller.main")

_IMPORTANT = (
    "controllerDLegerGroup",
    "controllerDLegerPeers",
    "controllerDLegerSelfId",
    "controllerStorePath",
    "enableElectUncleanMaster",
    "notifyBrokerRoleChanged",
)
_WRONG = (ConfigError, FatalError, SecurityError, ListenError, DiskLockedError, UsageError, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 after SIGTERM or SIGINT, 1 after one line about what is wrong."""
    options = _parser().parse_args(arguments)
    try:
        config, values = _config(options.config_file)
        if options.print_all or options.print_important:
            lines = show(config).splitlines()
            command_line.show(
                "\n".join(line for line in lines if options.print_all or line.partition("=")[0] in _IMPORTANT)
            )
            return 0
        _check(config, values)
        security = read_security(values)
    except ConfigError as error:
        return _fail(error)
    configure(os.environ.get("UNDERSTUDY_LOG_LEVEL", "INFO"))
    try:
        run_server(_serve, config, security)
    except BaseExceptionGroup as group:
        wrong = group.subgroup(_WRONG)
        if wrong is None:
            raise
        return _fail(first_cause(wrong))
    except _WRONG as error:
        return _fail(error)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqcontroller", description="Controller: elects masters of broker groups.")
    parser.add_argument("-c", "--configFile", dest="config_file", metavar="FILE", help="controller properties file")
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="accepted as by the reference; not needed")
    parser.add_argument(
        "-p", "--printConfigItem", dest="print_all", action="store_true", help="print every setting and exit"
    )
    parser.add_argument(
        "-m", "--printImportantConfig", dest="print_important", action="store_true", help="print the main settings"
    )
    parser.add_argument("--version", action=ShowVersion)
    return parser


def _config(path: str | None) -> tuple[ControllerConfig, Properties]:
    """Read the settings and print a warning line for each key that is unknown or without effect."""
    if path is None:
        return ControllerConfig(), Properties({}, "no configuration file")
    values = with_tls_file(read_properties_file(RealDisk(), path, os.environ.get(HOME_VARIABLE)))
    config = read_config(values)
    for warning in (*unused_keys(values, config), *idle_keys(values)):
        print(f"warning: {warning}", file=sys.stderr)
    return config, values


def _check(config: ControllerConfig, values: Properties) -> None:
    try:
        check(config)
    except ConfigError as error:
        raise values.locate(error) from None


async def _serve(config: ControllerConfig, security: SecuritySettings) -> None:
    world = real_world()
    world.load.limit(config)
    controller = Controller(world, config, security)
    controller.more_metrics.append(world.load.families)
    async with open_log_file(world.disk, world.clock, config):
        try:
            await _until_signalled(controller)
        except* _WRONG as errors:
            log.error("the controller stops", reason=one_line(first_cause(errors)))
            raise


async def _until_signalled(controller: Controller) -> None:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            address = await nursery.start(controller.run)
            command_line.boot_line(f"The Controller Server boot success. serializeType=JSON, address {address}")
            async for number in signals:
                log.info("stopping", signal=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()


def _fail(error: BaseException) -> int:
    print(f"mqcontroller: {one_line(error)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
