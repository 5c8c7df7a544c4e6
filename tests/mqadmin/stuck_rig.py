"""A broker of whose deferred queues the first message cannot go where it belongs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from mqadmin_rig import shell

from understudy.broker import inner, redelivery
from understudy.broker.broker import Broker
from understudy.format.names import pop_retry_topic
from understudy.format.record import decode_records
from understudy.mqclient.message import Message
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected, PutStatus
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.cluster import SimCluster

TOPIC, GROUP = "orders", "readers"
RETRY = pop_retry_topic(GROUP, TOPIC)
ASKS = {"delay": {"DELAY": "1"}, "timer": {"TIMER_DELAY_MS": "2000"}, "pop": {}}
SYSTEM = "rmq_sys_", "SCHEDULE_"


def refuse_poison(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """Return the bodies that no log takes for a consumer from now on, as if they were too long; it may be changed."""
    bodies = {b"poison"}
    append = inner.append

    def refuse(store: MessageStore, message: inner.InnerMessage) -> Appended:
        if message.body in bodies and not message.topic.startswith(SYSTEM):
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "it is poison")
        return append(store, message)

    monkeypatch.setattr(redelivery, "append", refuse)
    return bodies


def bodies_of(broker: Broker, kind: str) -> list[bytes]:
    """Return what came where consumers get it."""
    found = list[bytes]()
    for topic, queue_id in sorted(broker.store.queues()):
        if topic == (RETRY if kind == "pop" else TOPIC):
            got = broker.store.get(topic, queue_id, 0, 32, 1 << 20)
            found += [record.body for part in got.parts for record in decode_records(part)]
    return found


async def poison_in_front(cluster: SimCluster, kind: str, bodies: Sequence[bytes] = (b"poison", b"good")) -> Broker:
    """Leave a message that nothing takes, and good ones behind it; return their broker."""
    broker = cluster.brokers("c1")["broker-a"]
    async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
        for body in bodies:
            message = Message(TOPIC, body, {**ASKS[kind], "KEYS": "k", "TAGS": "a"}, 7)
            await producer.send(message, queue=MessageQueue(TOPIC, "broker-a", 0))
            if kind == "pop":  # each has a check point of its own, in the same revive queue
                broker.pops.log._turn = 0
                wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "broker-a", invisible_ms=10_000, hold_ms=0)
                assert len(await pop(producer.session, wanted)) == 1
    await trio.sleep(30)
    return broker


async def rows_of(cluster: SimCluster, kind: str) -> dict[str, dict[str, Any]]:
    """Return the rows of what is stuck, by their places as a decision names them."""
    (answer,) = json.loads(await shell(cluster, f"stuckWork -e -t {kind}", as_json=True))
    found = dict[str, dict[str, Any]]()
    for row in answer["rows"]:
        assert (row["stuck"], row["topic"], row["kind"]) == (True, TOPIC, kind)
        queue, offset = (part.rpartition(" ")[2] for part in row["place"].split(", "))
        found[f"{queue}:{offset}"] = row
    return found


async def place_of_poison(cluster: SimCluster, kind: str) -> str:
    first, _ = await rows_of(cluster, kind)
    return first


async def start(cluster: SimCluster) -> str:
    """Start one broker; return its address."""
    await cluster.start_name_server("n1")
    await cluster.start_container("c1", [{"brokerName": "broker-a"}])
    return cluster.brokers("c1")["broker-a"].identity.address


async def start_apart(cluster: SimCluster) -> tuple[Ring, Broker]:
    """Start two groups whose slaves live apart from masters, the first with a topic; return them and its slave."""
    shape = Ring(2, 1, apart=True)
    await shape.start(cluster)
    master, slave = shape.broker_of(cluster, "g0", 0), shape.broker_of(cluster, "g0", 1)
    assert master is not None
    assert slave is not None
    await shell(cluster, f"updateTopic -b {master.identity.address} -t {TOPIC}")
    await trio.sleep(10)
    return shape, slave
