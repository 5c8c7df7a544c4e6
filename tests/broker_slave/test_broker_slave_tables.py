"""Tables of a slave that must be those of its master: mappings of static topics, and topics that were made anew."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import Pair, open_pair, run

from understudy.broker.broker import Broker
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.runtime.json_dialect import dumps, loads
from understudy.testkit.waiting import until

MAPPINGS = "/data/broker-a-1/config/topicQueueMapping.json"


class StaticTopics:
    """Lets a master answer the mapping of one static topic, as a master of the reference does."""

    def __init__(self, counter: int) -> None:
        self.counter = counter

    def install(self, master: Broker) -> None:
        handler = master.server.handler(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert handler is not None

        def with_mappings(connection: Connection, command: Command) -> Command:
            answer = handler(connection, command)
            assert isinstance(answer, Command)
            mapping = {"topicQueueMappingDetailMap": {"static": {"bname": "broker-a", "epoch": self.counter}}}
            version = {"mappingDataVersion": {"counter": self.counter, "stateVersion": 0, "timestamp": 1}}
            answer.body = dumps({**loads(answer.body), **mapping, **version})
            return answer

        master.server.register(RequestCode.GET_ALL_TOPIC_CONFIG, with_mappings)


async def mapping_at_slave(pair: Pair) -> tuple[int, int]:
    try:
        answer = await pair.ask(pair.slave, RequestCode.GET_ALL_TOPIC_CONFIG)
    except RemotingError:  # the connection of its former life, which nobody closed
        answer = await pair.ask(pair.slave, RequestCode.GET_ALL_TOPIC_CONFIG)
    body = loads(answer.body)
    return body["topicQueueMappingDetailMap"].get("static", {}).get("epoch", 0), body["mappingDataVersion"]["counter"]


@pytest.mark.covers("SL-01")
def test_queue_mappings_survive_a_power_loss_of_the_slave_and_stay_newer_than_older_ones() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            StaticTopics(7).install(pair.master)
            await pair.send(1)  # a new topic: the table is asked for again
            await trio.sleep(8)
            assert await mapping_at_slave(pair) == (7, 7)
            # when both lose their power and only the slave returns
            await pair.cluster.kill("c1", power=True)
            await pair.cluster.kill("c2", power=True)
            await pair.cluster.restart("c2")
            # then it has the mappings, in the reference's file
            assert await mapping_at_slave(pair) == (7, 7)
            content = loads(pair.cluster.host("c2").disk.read(MAPPINGS))
            assert content == {
                "dataVersion": {"counter": 7, "stateVersion": 0, "timestamp": 1},
                "topicQueueMappingInfoMap": {"static": {"bname": "broker-a", "epoch": 7}},
            }
            # and a master that knows only older ones does not take them away
            await pair.cluster.restart("c1")
            StaticTopics(6).install(pair.master)
            await pair.send(1, "another")
            await trio.sleep(8)
            assert pair.slave.topics.get("another") is not None
            assert await mapping_at_slave(pair) == (7, 7)

    run(scenario)


def test_a_damaged_file_of_queue_mappings_gives_way_to_its_backup_and_nonsense_is_told() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            topics = StaticTopics(7)
            topics.install(pair.master)
            await pair.send(1)
            await trio.sleep(8)
            topics.counter = 8
            await pair.send(1, "another")
            await trio.sleep(8)
            assert await mapping_at_slave(pair) == (8, 8)
            await pair.cluster.kill("c1")
            await pair.cluster.kill("c2")
            disk = pair.cluster.host("c2").disk
            disk.damage(MAPPINGS, lambda data: data[: len(data) // 2])
            await pair.cluster.restart("c2")
            assert await mapping_at_slave(pair) == (7, 7)
            # and a file that is no table is not taken for an empty one
            await pair.cluster.kill("c2")
            disk.damage(MAPPINGS, lambda data: b'{"topicQueueMappingInfoMap":{"static":5}}')
            with pytest.raises(Exception, match=r"topicQueueMapping\.json.*topics with their mappings are expected"):
                await pair.cluster.restart("c2")

    run(scenario)


def test_mappings_that_are_no_table_are_not_taken() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            StaticTopics(7).install(pair.master)
            await pair.send(1)
            await until(lambda: pair.slave.queue_mappings.version.counter == 7, 20)
            handler = pair.master.server.handler(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert handler is not None

            def nonsense(connection: Connection, command: Command) -> Command:
                answer = handler(connection, command)
                assert isinstance(answer, Command)
                version = {"mappingDataVersion": {"counter": 9, "stateVersion": 0, "timestamp": 1}}
                answer.body = dumps({**loads(answer.body), **version, "topicQueueMappingDetailMap": {"static": 5}})
                return answer

            pair.master.server.register(RequestCode.GET_ALL_TOPIC_CONFIG, nonsense)
            await pair.send(1, "another")
            await trio.sleep(8)
            assert await mapping_at_slave(pair) == (7, 7)

    run(scenario)
