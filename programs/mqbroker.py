"""``mqbroker``: one broker as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.storage import BrokerStartError
from understudy.container.hosted import host_broker
from understudy.programs import command_line
from understudy.remoting.client import open_client
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.network import ListenError
from understudy.runtime.program import run_program
from understudy.runtime.properties import ConfigError
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World
from understudy.security.settings import secure_calls

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
    arguments = command_line.parser("mqbroker", "Runs one broker.").parse_args(argv)
    start = command_line.begin("mqbroker", arguments, BrokerOptions.from_properties, IMPORTANT_KEYS)
    if isinstance(start, int):
        return start
    options, world = start.options, start.world
    command_line.warn_without_name_server(options.broker.namesrv_addr, options.broker.fetch_name_srv_addr_by_dns_lookup)
    return run_program(
        "mqbroker",
        lambda: serve(world, options),
        refusals=(ListenError, DiskLockedError, ConfigError, TableDamagedError, BrokerStartError),
    )


async def serve(world: World, options: BrokerOptions) -> None:
    """Run one broker until cancelled and print the reference's boot line when it is up."""
    async with open_client(world) as client, trio.open_nursery() as nursery:
        secure_calls(client, options.security)
        broker: Broker = await nursery.start(host_broker, world, options, client)
        servers = options.broker.namesrv_addr
        tail = f" and name server is {servers}" if servers else ""
        name, address = broker.identity.name, broker.identity.address
        command_line.boot_line(f"The broker[{name}, {address}] boot success. serializeType=JSON{tail}")


if __name__ == "__main__":
    sys.exit(main())
