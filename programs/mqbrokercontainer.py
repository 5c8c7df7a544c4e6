"""``mqbrokercontainer``: many brokers in one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.programs import command_line
from understudy.runtime.network import ListenError
from understudy.runtime.program import run_program
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
    paths = arguments.brokerConfigPaths
    own = {} if paths is None else {"-b": {"brokerConfigPaths": paths}}
    start = command_line.begin("mqbrokercontainer", arguments, ContainerOptions.from_properties, IMPORTANT_KEYS, own)
    if isinstance(start, int):
        return start
    container = BrokerContainer(start.world, start.options, on_boot=command_line.boot_line)
    return run_program("mqbrokercontainer", container.run, refusals=(ListenError, ConfigError, AddBrokerError))


if __name__ == "__main__":
    sys.exit(main())
