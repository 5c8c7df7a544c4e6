"""A broker that dies twice while messages wait for their time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import trio
from broker_rig import pulled

from understudy.format.record import Record
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.sim.cluster import FIRST_BROKER_PORT, SimCluster

BROKER = {"brokerName": "broker-a", "flushDiskType": "SYNC_FLUSH"}
MESSAGES = 40


async def send(client: RemotingClient, address: str, number: int, properties: str) -> bool:
    """Send one message; return whether it was acknowledged as safe."""
    header = {"a": "pg", "b": "Later", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": properties}
    try:
        return (await client.invoke(address, request(310, header, b"%d" % number), 3_000)).code == 0
    except RemotingError:
        return False


async def crashes_while_messages_wait(
    source: random.Random, keys: Mapping[str, str], properties_of: Callable[[int], str], power_chance: float
) -> tuple[set[int], list[Record]]:
    """Send :data:`MESSAGES` messages through two crashes.

    Args:
        source: of everything that is drawn.
        keys: further settings of the broker.
        properties_of: returns the properties of a message by its number, which say when it is due: within 20 s.
        power_chance: how likely a crash takes the power; otherwise only the process is killed.

    Returns:
        Which messages were acknowledged, and what arrived.
    """
    async with SimCluster(source) as cluster:
        await cluster.start_container("c1", [BROKER | keys])
        address = f"{cluster.address('c1')}:{FIRST_BROKER_PORT}"
        acknowledged: set[int] = set()
        async with open_client(cluster.client_world()) as client, trio.open_nursery() as nursery:

            async def produce() -> None:
                for number in range(MESSAGES):
                    if await send(client, address, number, properties_of(number)):
                        acknowledged.add(number)
                    await trio.sleep(source.uniform(0, 0.2))

            nursery.start_soon(produce)
            for _ in range(2):
                await trio.sleep(source.uniform(1, 4))
                await cluster.kill("c1", power=source.random() < power_chance)
                await trio.sleep(source.uniform(0, 2))
                await cluster.restart("c1")
            await trio.sleep(30)
            await send(client, address, MESSAGES, "")  # a connection that a killed process had is noticed now
            arrived = await pulled(client, address, "Later")
            return acknowledged, [each for each in arrived if each.body != b"%d" % MESSAGES]
