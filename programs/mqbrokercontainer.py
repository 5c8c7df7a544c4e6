"""``mqbrokercontainer``: many brokers in one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.programs import command_line
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.properties import ConfigError

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
    arguments = parser.parse_args(argv)
    try:
        properties = command_line.read_properties(arguments.configFile, arguments.namesrvAddr)
        if arguments.brokerConfigPaths is not None:
            properties = properties.changed({"brokerConfigPaths": arguments.brokerConfigPaths}, "option -b")
        options, warnings = ContainerOptions.from_properties(properties)
        options.path = properties.source if arguments.configFile else None
        if arguments.printConfigItem or arguments.printImportantConfig:
            only = None if arguments.printConfigItem else IMPORTANT_KEYS
            command_line.print_keys(options.properties(), only)
            return 0
        command_line.start_logging()
        world = command_line.server_world()
        world.load.limit(options.server)
    except (UsageError, ConfigError) as error:
        print(f"mqbrokercontainer: {error}", file=sys.stderr)
        return EXIT_FAILED
    command_line.warn(warnings)
    container = BrokerContainer(world, options, on_boot=command_line.boot_line)
    return run_program("mqbrokercontainer", container.run, refusals=(ListenError, ConfigError, AddBrokerError))


if __name__ == "__main__":
    sys.exit(main())
