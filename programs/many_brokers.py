"""What ``mqbrokercontainer`` does once it is imported: many brokers in one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.programs import command_line, proxy_options
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.proxy.config import ProxyConfig

IMPORTANT_KEYS = ("namesrvAddr", "brokerContainerIP", "brokerConfigPaths", "listenPort", "rocketmqHome")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqbrokercontainer``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    parser = command_line.parser("mqbrokercontainer", "Runs a container of brokers.")
    parser.add_argument(
        "-b", "--brokerConfigPaths", metavar="FILES", help="files of the brokers to start, separated by ':'"
    )
    proxy_options.add_local_options(parser)
    arguments = parser.parse_args(argv)
    paths = arguments.brokerConfigPaths
    own = {} if paths is None else {"-b": {"brokerConfigPaths": paths}}
    start = command_line.begin("mqbrokercontainer", arguments, ContainerOptions.from_properties, IMPORTANT_KEYS, own)
    if isinstance(start, int):
        return start
    container = BrokerContainer(start.world, start.options, on_boot=command_line.boot_line)
    config: ProxyConfig | None = None
    if arguments.enable_proxy:
        try:
            servers = start.options.container.namesrv_addr
            config, warnings = proxy_options.read(arguments.proxyConfigPath, "local", servers)
        except (ConfigError, UsageError) as error:
            print(f"mqbrokercontainer: {error}", file=sys.stderr)
            return EXIT_FAILED
        command_line.warn(warnings)
    return run_program(
        "mqbrokercontainer",
        lambda: serve(start.world, container, config),
        refusals=(ListenError, ConfigError, AddBrokerError, UsageError),
    )


async def serve(world: World, container: BrokerContainer, proxy: ProxyConfig | None) -> None:
    """Run a container until cancelled, and a proxy for its brokers when there are settings for one."""
    if proxy is None:
        await container.run()
        return
    from understudy.programs.local_proxy import run_local_proxy  # few containers have one beside their brokers

    async with trio.open_nursery() as nursery:
        await nursery.start(container.run)
        await nursery.start(run_local_proxy, world, proxy, lambda: [each.broker for each in container.brokers()])
