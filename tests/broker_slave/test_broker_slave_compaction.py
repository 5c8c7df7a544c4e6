"""A slave has a compaction log of its own, made from its copy of the log."""

from __future__ import annotations

import random

from slave_rig import Pair, open_pair, run

from understudy.broker.broker import Broker
from understudy.format.record import decode_records
from understudy.mqclient.message import Message
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until

TOPIC = "state"
KEYS = {
    "compactionCqMappedFileSize": "460",
    "compactionMappedFileSize": "3000",
    "compactionScheduleInternal": "10000",
}


def left(broker: Broker) -> dict[int, bytes]:
    """Return what a consumer gets at *broker*, by queue offset."""
    found, at = dict[int, bytes](), 0
    while (read := broker.store.get(TOPIC, 0, at, 32, 1 << 20)).count:
        found |= {one.queue_offset: one.body for part in read.parts for one in decode_records(part)}
        at = read.next_begin_offset
    return found


async def change(pair: Pair, numbers: range) -> None:
    for number in numbers:
        await pair.producer.send(Message(TOPIC, b"%d" % number, {"KEYS": f"k{number % 3}"}))


def test_a_slave_compacts_what_it_has_copied_and_keeps_it_through_a_loss_of_power() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, KEYS, KEYS) as pair:
            fields = {
                "topic": TOPIC,
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "defaultTopic": "TBW102",
            }
            more = {"topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+cleanup.policy=COMPACTION"}
            answer = await pair.ask(pair.master, RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more)
            assert answer.code == 0, answer.remark
            await change(pair, range(60))
            await until(lambda: all(0 < len(left(broker)) < 20 for broker in (pair.master, pair.slave)), 60, 1.0)
            assert left(pair.slave) == left(pair.master)
            before = left(pair.slave)
            await pair.cluster.kill("c2", power=True)
            await pair.cluster.restart("c2")
            await change(pair, range(60, 70))
            await until(lambda: max(left(pair.slave), default=0) == 69, 60, 1.0)
            assert {offset: body for offset, body in left(pair.slave).items() if offset < 60} == before

    run(scenario)
