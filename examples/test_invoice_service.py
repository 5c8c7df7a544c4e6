"""The invoice service against a cluster that fails: a whole failover in virtual time, from one seed.

.venv/bin/pytest examples/test_invoice_service.py
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from invoice_service import OPTIONS, run

from understudy.mqclient.api import (
    ClientError,
    ConsumeContext,
    ReceivedMessage,
    SendStatus,
    message,
    open_producer,
    open_push_consumer,
)
from understudy.testkit.history import History, Verdict
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

ORDERS = 30
KEYS = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true", "flushDiskType": "SYNC_FLUSH"}
MASTER = {"brokerName": "broker-a", "brokerRole": "SYNC_MASTER", **KEYS}
SLAVE = {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE", **KEYS}
OTHER = {"brokerName": "broker-b", **KEYS}


async def play(source: random.Random) -> Verdict:
    """Play one run: orders go on while a host loses its power, and every acknowledged one must get its invoice."""
    history = History()
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [MASTER])
        await cluster.start_container("c2", [SLAVE, OTHER])
        world, servers = cluster.client_world("shop"), cluster.name_servers

        async def watch(invoices: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for each in invoices:
                queue = (each.stored_topic, each.broker_name, each.queue_id)
                history.delivered(each.body.decode().removeprefix("invoice for "), "watch", queue, each.queue_offset)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, world, servers)
            async with (
                open_producer(world, servers, "shop") as shop,
                open_push_consumer(world, servers, "watch", {"Invoices": "*"}, watch, OPTIONS),
            ):
                for number in range(ORDERS):
                    if number == ORDERS // 3:
                        await cluster.kill("c1", power=True)
                    if number == 2 * ORDERS // 3:
                        await cluster.restart("c1")
                    key = f"order {number}"
                    try:
                        sent = await shop.send(message("Orders", key.encode()))
                    except ClientError:
                        history.sent(key, key, None, acknowledged=False)
                    else:
                        history.sent(key, key, None, acknowledged=sent.status is SendStatus.OK)
                    await trio.sleep(1)
                await trio.sleep(120)  # of virtual time: whatever comes again comes within that
            nursery.cancel_scope.cancel()
    return history.check(["watch"], ordered=False).require()


@pytest.mark.parametrize("seed", range(3))
def test_every_acknowledged_order_gets_its_invoice(seed: int) -> None:
    assert run_seed(play, seed).sent > ORDERS // 2
