"""``mqproxy``: a proxy for gRPC clients as a process of its own (ProxyStartup.java)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import attrs
import trio

from understudy.programs import command_line
from understudy.proxy.config import MODES, ProxyConfig, default_file, read_config
from understudy.proxy.server import Proxy, UnknownClusterError
from understudy.runtime.disk import RealDisk
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.property_file import HOME_VARIABLE
from understudy.runtime.world import World


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqproxy``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    arguments = _parser().parse_args(argv)
    try:
        config, warnings = _config(arguments)
        command_line.start_logging()
        world = command_line.server_world()
    except (UsageError, ConfigError) as error:
        print(f"mqproxy: {error}", file=sys.stderr)
        return EXIT_FAILED
    command_line.warn(warnings)
    return run_program(
        "mqproxy", lambda: serve(world, config), refusals=(ListenError, UnknownClusterError, ConfigError)
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mqproxy", description="Serves gRPC clients in front of a cluster.", add_help=False, allow_abbrev=False
    )
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="name servers, host:port separated by ';'")
    parser.add_argument("-pm", "--proxyMode", metavar="MODE", help="cluster: in front of the brokers of a cluster")
    parser.add_argument("-pc", "--proxyConfigPath", metavar="FILE", help="settings in JSON (conf/rmq-proxy.json)")
    parser.add_argument("-h", "--help", action="help", help="print this and end")
    return parser


def _config(arguments: argparse.Namespace) -> tuple[ProxyConfig, list[str]]:
    """Read the file and put the options on top. Raises :class:`ConfigError`, :class:`UsageError`."""
    environment = dict(os.environ)
    path = arguments.proxyConfigPath or default_file(environment)
    if path is None:
        raise UsageError("no settings: name a file in JSON by -pc, or set RMQ_PROXY_HOME; {} takes every default")
    config, warnings = read_config(RealDisk(), path, environment.get(HOME_VARIABLE))
    if arguments.proxyMode is not None:
        config = attrs.evolve(config, proxy_mode=arguments.proxyMode)
    if arguments.namesrvAddr is not None:
        config = attrs.evolve(config, namesrv_addr=arguments.namesrvAddr)
    if config.proxy_mode.lower() not in MODES:
        raise UsageError(f"-pm {config.proxy_mode[:64]}: expected cluster or local")
    if config.proxy_mode.lower() == "local":
        raise UsageError("-pm local: a proxy beside its broker is not part of this version; use -pm cluster")
    if not config.namesrv_addr:
        raise UsageError("no name server: name it by -n host:port, or as namesrvAddr in the file")
    return config, warnings


async def serve(world: World, config: ProxyConfig) -> None:
    """Run a proxy until cancelled and print the reference's boot line when it is up."""
    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(Proxy(world, config).run)
        command_line.boot_line(f"rocketmq-proxy startup successfully. gRPC address {host}:{port}")


if __name__ == "__main__":
    sys.exit(main())
