"""`mqadmin stuckWork` says what waits in the brokers of a cluster, and why."""

from __future__ import annotations

import json
import random

import pytest
import trio
from mqadmin_rig import shell

from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.producer import open_producer
from understudy.mqclient.sending import SendResult
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionState, open_transaction_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed


async def undecided(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown(message: Message, sent: SendResult) -> TransactionState:
    return TransactionState.UNKNOWN


async def some_of_each(cluster: SimCluster) -> None:
    """Leave a half message, a popped one, a timer and a delayed one behind; their clients are gone."""
    servers = cluster.name_servers
    async with open_producer(cluster.client_world(), servers, "writers") as producer:
        for properties in ({}, {"DELAY": "5"}, {"TIMER_DELAY_SEC": "90"}):
            await producer.send(Message("orders", b"x", properties))
        wanted = PopRequest("readers", subscription("orders", "*", 1), "broker-a", invisible_ms=60_000, hold_ms=0)
        assert len(await pop(producer.session, wanted)) == 1
    async with open_transaction_producer(cluster.client_world(), servers, "payers", undecided) as payers:
        await payers.send(Message("orders", b"half", {}), unknown)


def test_what_waits_is_listed_and_what_is_stuck_says_why() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            await some_of_each(cluster)
            await trio.sleep(2)
            # given nothing but what waits for its time
            assert "Nothing is stuck." in await shell(cluster, "stuckWork")
            (answer,) = json.loads(await shell(cluster, "stuckWork -a", as_json=True))
            kinds = {row["kind"]: row for row in answer["rows"]}
            assert kinds.keys() == {"half", "timer", "delay"}  # the check point is in the timer yet
            assert kinds["timer"]["count"] == 2
            assert kinds["delay"]["place"] == "delay level 5"
            assert not any(row["stuck"] for row in answer["rows"])
            assert await shell(cluster, "stuckWork -a -t timer") != await shell(cluster, "stuckWork -a -t delay")
            # when the half message is old, and nobody of its group is there
            await trio.sleep(10)
            printed = await shell(cluster, "stuckWork -t half -g payers")
            assert "no producer of payers is connected" in printed
            assert "start a producer of payers" in printed
            assert "Nothing is stuck." in await shell(cluster, "stuckWork -g others")

    run_seed(scenario, 1)


def test_unknown_kinds_and_silent_brokers() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            address = cluster.brokers("c1")["broker-a"].identity.address
            with pytest.raises(BrokerError, match="kind must be one of half, pop, timer, delay, not x"):
                await shell(cluster, f"stuckWork -b {address} -t x")
            await cluster.kill("c1")
            with pytest.raises(ClientError):
                await shell(cluster, f"stuckWork -b {address}")

    run_seed(scenario, 1)
