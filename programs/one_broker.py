"""What ``mqbroker`` does once it is imported: one broker as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.storage import BrokerStartError
from understudy.container.hosted import host_broker
from understudy.programs import command_line, proxy_options
from understudy.remoting.client import open_client
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World
from understudy.security.settings import secure_calls

if TYPE_CHECKING:
    from understudy.proxy.config import ProxyConfig

IMPORTANT_KEYS = (
    "namesrvAddr",
    "brokerIP1",
    "brokerName",
    "brokerClusterName",
    "brokerId",
    "brokerRole",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "rejectTransactionMessage",
    "fetchNamesrvAddrByAddressServer",
    "fetchNameSrvAddrByDnsLookup",
    "transactionTimeOut",
    "transactionCheckMax",
    "transactionCheckInterval",
    "listenPort",
    "storePathRootDir",
    "storePathCommitLog",
    "flushIntervalCommitLog",
    "commitIntervalCommitLog",
    "flushCommitLogTimed",
    "deleteWhen",
    "fileReservedTime",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "accessMessageInMemoryMaxRatio",
    "messageIndexEnable",
    "messageIndexSafe",
    "haMasterAddress",
    "flushDiskType",
    "cleanFileForciblyEnable",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqbroker``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    parser = command_line.parser("mqbroker", "Runs one broker.")
    proxy_options.add_local_options(parser)
    arguments = parser.parse_args(argv)
    start = command_line.begin("mqbroker", arguments, BrokerOptions.from_properties, IMPORTANT_KEYS)
    if isinstance(start, int):
        return start
    options, world = start.options, start.world
    command_line.warn_without_name_server(options.broker.namesrv_addr, options.broker.fetch_name_srv_addr_by_dns_lookup)
    config: ProxyConfig | None = None
    if arguments.enable_proxy:
        try:
            config, warnings = proxy_options.read(arguments.proxyConfigPath, "local", options.broker.namesrv_addr)
        except (ConfigError, UsageError) as error:
            print(f"mqbroker: {error}", file=sys.stderr)
            return EXIT_FAILED
        command_line.warn(warnings)
    return run_program(
        "mqbroker",
        lambda: serve(world, options, config),
        refusals=(ListenError, DiskLockedError, ConfigError, TableDamagedError, BrokerStartError, UsageError),
    )


async def serve(world: World, options: BrokerOptions, proxy: ProxyConfig | None = None) -> None:
    """Run one broker until cancelled and print the reference's boot line when it is up.

    Args:
        world: clock, network, disk and randomness.
        options: of the broker.
        proxy: settings of a proxy beside it; ``None`` for none.
    """
    async with open_client(world) as client, trio.open_nursery() as nursery:
        secure_calls(client, options.security)
        broker: Broker = await nursery.start(host_broker, world, options, client)
        servers = options.broker.namesrv_addr
        tail = f" and name server is {servers}" if servers else ""
        name, address = broker.identity.name, broker.identity.address
        command_line.boot_line(f"The broker[{name}, {address}] boot success. serializeType=JSON{tail}")
        if proxy is not None:
            from understudy.programs.local_proxy import run_local_proxy  # few brokers have one beside them

            await nursery.start(run_local_proxy, world, proxy, lambda: [broker])
