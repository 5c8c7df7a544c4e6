"""What ``mqproxy`` does: its options, and a proxy until it is stopped (ProxyStartup.java)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from understudy.programs import command_line, proxy_options
from understudy.programs.version import ShowVersion
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.proxy.config import ProxyConfig

_MODES = ("cluster", "local")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqproxy``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    arguments = _parser().parse_args(argv)
    mode = arguments.proxyMode.lower() if arguments.proxyMode else None
    try:
        if mode is not None and mode not in _MODES:
            raise UsageError(f"-pm {mode[:64]}: expected cluster or local")
        if mode == "local":
            return _beside_a_broker(arguments)
        config, warnings = proxy_options.read(arguments.proxyConfigPath, mode, arguments.namesrvAddr)
        if config.proxy_mode.lower() == "local":
            return _beside_a_broker(arguments)
        command_line.start_logging()
        world = command_line.server_world()
    except (UsageError, ConfigError) as error:
        print(f"mqproxy: {error}", file=sys.stderr)
        return EXIT_FAILED
    command_line.warn(warnings)
    return run_program("mqproxy", lambda: serve(world, config), refusals=(ListenError, ConfigError))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mqproxy", description="Serves gRPC clients in front of a cluster.", add_help=False, allow_abbrev=False
    )
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="name servers, host:port separated by ';'")
    parser.add_argument(
        "-pm", "--proxyMode", metavar="MODE", help="cluster: in front of brokers; local: with one in the same process"
    )
    parser.add_argument("-bc", "--brokerConfigPath", metavar="FILE", help="configuration of that broker")
    proxy_options.add_file_option(parser)
    parser.add_argument("-h", "--help", action="help", help="print this and end")
    parser.add_argument("--version", action=ShowVersion)
    return parser


def _beside_a_broker(arguments: argparse.Namespace) -> int:
    """Run a broker with a proxy beside it, as ``mqbroker --enable-proxy`` does."""
    from understudy.programs import mqbroker  # a proxy in front of a cluster knows no broker's code

    options = {"-c": arguments.brokerConfigPath, "-n": arguments.namesrvAddr, "-pc": arguments.proxyConfigPath}
    given = [text for option, value in options.items() if value for text in (option, value)]
    return mqbroker.main(["--enable-proxy", *given])


async def serve(world: World, config: ProxyConfig) -> None:
    """Run a proxy until cancelled and print the reference's boot line when it is up."""
    from understudy.proxy.server import Proxy  # not before it is known that its libraries are there

    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(Proxy(world, config).run)
        command_line.boot_line(f"rocketmq-proxy startup successfully. gRPC address {host}:{port}")
