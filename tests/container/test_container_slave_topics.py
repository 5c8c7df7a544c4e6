"""Topics while a master is away: what a slave may not change, and what a master finds again in its log."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, open_ring, records, run, send_raw

from understudy.broker.lost_topics import lost_rows
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import dumps
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until


@pytest.mark.parametrize("acts", [False, True], ids=["beside its master", "acting"])
def test_a_slave_takes_no_change_of_topics_and_loses_no_message_by_one(acts: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            slave = ring.broker("g0", 1)
            await ring.producer.send(Message(TOPIC, b"kept"), queue=MessageQueue(TOPIC, "g0", 0))
            await until(lambda: len(records(slave)) == 1, 5)
            if acts:
                await ring.cluster.kill("c1")
                await until(lambda: "schedule" in slave.services.running(), 5)
            # when an operator wants to make, change or delete a topic there
            rows = {"topicConfigList": [{"topicName": "other", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}]}
            for code, ext, body in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("other"), b""),
                (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, dumps(rows)),
                (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, b""),
            ):
                answer = await ring.ask(slave, code, ext, body)
                # then it is refused, with the place where it is done
                assert answer.code == ResponseCode.NO_PERMISSION
                assert "slave of g0" in (answer.remark or "")
                assert ("not there now" if acts else ring.broker("g0", 0).identity.address) in (answer.remark or "")
            # and nothing has changed
            assert (TOPIC in slave.topics.rows, "other" in slave.topics.rows) == (True, False)
            assert [record.body for record in records(slave)] == [b"kept"]

    run(scenario)


def test_a_topic_made_by_a_send_just_before_a_loss_of_power_keeps_its_messages() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"flushDiskType": "SYNC_FLUSH"}) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)

            # given a topic that a send has made, and a master whose power goes before the row is saved
            async def never(name: str) -> None:
                await trio.sleep_forever()

            master.persistence.save = never  # type: ignore[method-assign]
            assert await send_raw(ring, master, b"x", "", topic="fresh") == 0
            await ring.cluster.kill("c1", power=True)
            await until(lambda: "schedule" in slave.services.running(), 60)
            assert [record.body for record in records(slave, "fresh")] == [b"x"]
            # when the master is back and its slave has its tables again
            await ring.cluster.restart("c1")
            await ring.online()
            await trio.sleep(5)
            # then both serve the message
            for broker in (ring.broker("g0", 0), slave):
                assert broker.topics.rows["fresh"].read_queue_nums >= 1
                assert [record.body for record in records(broker, "fresh")] == [b"x"]

    run(scenario)


@pytest.mark.parametrize(
    ("stored_ms", "found"),
    [
        ({0: 110, 2: 150}, [TopicConfig("fresh", 3, 3)]),
        ({0: 90, 2: 150}, []),  # deleted at 100, its queues are still there
        ({0: -1, 2: -1}, []),  # nothing can be said
    ],
)
def test_only_a_topic_younger_than_the_saved_table_is_made_anew(
    stored_ms: dict[int, int], found: list[TopicConfig]
) -> None:
    queues = [("fresh", number) for number in stored_ms] + [("known", 0)]
    rows = {"known": TopicConfig("known")}
    assert found == lost_rows(queues, rows, 100, lambda topic, queue_id: stored_ms[queue_id])
    assert lost_rows(queues, rows, 0, lambda topic, queue_id: stored_ms[queue_id]) == []
