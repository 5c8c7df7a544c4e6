"""Requests of pops and acknowledgements as a client makes them, and what their answers hold."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, cast

from broker_rig import NoNetwork, Rig, open_rig

from understudy.broker.groups import GroupConfig
from understudy.broker.topics import TopicConfig
from understudy.format.receipts import Receipt
from understudy.format.record import Record, decode_records
from understudy.remoting.command import Command
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

POP, ACK, CHANGE, BATCH_ACK = 200050, 200051, 200053, 200151


NOTHING = {"invisibleTime": "0", "popTime": "0", "restNum": "0", "reviveQid": "0"}


def pop_header(topic: str = "T", group: str = "g", **more: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "5000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        **more,
    }


def virtual_world() -> World:
    clock = VirtualClock()
    return World(clock, cast(Any, NoNetwork()), SimDisk(Random(1), now_ms=clock.wall_ms), Random(7))


def open_virtual(keys: dict[str, str] | None = None, world: World | None = None) -> AbstractAsyncContextManager[Rig]:
    """Run a broker in virtual time, on a disk in memory."""
    return open_rig("/store", keys, world=world or virtual_world())


def prepare(rig: Rig, topic: str = "T", queues: int = 2) -> None:
    rig.broker.topics.update([TopicConfig(topic, queues, queues)])
    rig.broker.groups.update([GroupConfig("g")])


def records(answer: Command) -> list[Record]:
    return decode_records(answer.body) if answer.body else []


def receipts(answer: Command, broker_name: str = "broker-a") -> list[tuple[Record, Receipt]]:
    """Return the messages of a pop with their handles, made from the answer as clients do."""
    assert answer.ext is not None
    starts = dict[tuple[str, str], str]()
    for each in filter(None, answer.ext["startOffsetInfo"].split(";")):
        mark, queue_id, start = each.split(" ")
        starts[mark, queue_id] = start
    places = [
        (mark, queue_id, offset)
        for mark, queue_id, offsets in (each.split(" ") for each in answer.ext["msgOffsetInfo"].split(";") if each)
        for offset in offsets.split(",")
    ]
    found = records(answer)
    assert len(found) == len(places)
    times = int(answer.ext["popTime"]), int(answer.ext["invisibleTime"]), int(answer.ext["reviveQid"])
    return [
        (record, Receipt(int(starts[mark, queue_id]), *times, mark, broker_name, int(queue_id), int(offset)))
        for record, (mark, queue_id, offset) in zip(found, places, strict=True)
    ]


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in records(answer)]


def ack_header(receipt: Receipt, topic: str = "T", group: str = "g", **more: str) -> dict[str, str]:
    real = topic if receipt.retry == "0" else f"%RETRY%{group}{'_' if receipt.retry == '1' else '+'}{topic}"
    return {
        "consumerGroup": group,
        "topic": real,
        "queueId": str(receipt.queue_id),
        "offset": str(receipt.offset),
        "extraInfo": receipt.text,
        **more,
    }


async def until_something(rig: Rig, seconds: float = 60, **header: str) -> Command:
    """Pop until there is something, in virtual time."""
    for _ in range(int(seconds)):
        answer = rig.ask(POP, pop_header(**header))
        if answer.code == 0:
            return answer
        await rig.broker.world.clock.sleep(1)
    raise AssertionError("nothing came back")
