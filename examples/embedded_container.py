"""A container of brokers inside one's own trio program, with hooks around the start of each broker.

.venv/bin/python examples/embedded_container.py 127.0.0.1:9876 /tmp/brokers
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import trio

from understudy.container.api import Broker, BrokerContainer, BrokerOptions, ContainerOptions, real_world


class Announce:
    """A hook: what it raises before a start refuses the broker, what it raises after one stops it again."""

    name = "announce"

    async def before_start(self, options: BrokerOptions, properties: Mapping[str, str]) -> None:
        if options.broker.broker_cluster_name != "Mine":
            raise ValueError("only brokers of the cluster Mine live here")
        print(f"starting {options.broker.broker_name}")

    async def after_start(self, broker: Broker, properties: Mapping[str, str]) -> None:
        print(f"{broker.identity.name} serves at {broker.identity.address}")


async def main(name_servers: str, folder: str, *, task_status: trio.TaskStatus[BrokerContainer]) -> None:
    options, warnings = ContainerOptions.from_properties({"listenPort": "0", "namesrvAddr": name_servers})
    for warning in warnings:
        print(f"warning: {warning}")
    async with trio.open_nursery() as nursery:
        container = BrokerContainer(real_world(), options, hooks=[Announce()], on_boot=print)
        await nursery.start(container.run)
        for name in ("mine-a", "mine-b"):
            await container.add_broker(
                {
                    "brokerClusterName": "Mine",
                    "brokerName": name,
                    "listenPort": "0",
                    "storePathRootDir": f"{folder}/{name}",
                    "storePathCommitLog": f"{folder}/{name}/commitlog",
                }
            )
        task_status.started(container)
        await trio.sleep_forever()  # the rest of your program; brokers come and go by add_broker and remove_broker


async def program(name_servers: str, folder: str) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(main, name_servers, folder)


if __name__ == "__main__":
    trio.run(program, sys.argv[1], sys.argv[2])
