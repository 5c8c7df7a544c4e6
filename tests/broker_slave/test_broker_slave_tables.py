"""Tables of a slave that must be those of its master: mappings of static topics, and topics that were made anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from slave_rig import Pair, change_topics_answer, open_pair, run

from understudy.broker.broker import Broker
from understudy.broker.offsets import OffsetTable
from understudy.broker.removals import REMOVED_MAX
from understudy.format.json_dialect import dumps, loads
from understudy.remoting.codes import RequestCode
from understudy.remoting.errors import RemotingError
from understudy.runtime.pace import run_steps
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

MAPPINGS = "/data/broker-a-1/config/topicQueueMapping.json"


class StaticTopics:
    """Lets a master answer the mapping of one static topic, as a master of the reference does."""

    def __init__(self, counter: int) -> None:
        self.counter = counter

    def install(self, master: Broker) -> None:
        def with_mappings(body: dict[str, Any]) -> dict[str, Any]:
            mapping = {"topicQueueMappingDetailMap": {"static": {"bname": "broker-a", "epoch": self.counter}}}
            version = {"mappingDataVersion": {"counter": self.counter, "stateVersion": 0, "timestamp": 1}}
            return {**body, **mapping, **version}

        change_topics_answer(master, with_mappings)


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
            nonsense = {
                "mappingDataVersion": {"counter": 9, "stateVersion": 0, "timestamp": 1},
                "topicQueueMappingDetailMap": {"static": 5},
            }
            change_topics_answer(pair.master, lambda body: {**body, **nonsense})
            await pair.send(1, "another")
            await trio.sleep(8)
            assert await mapping_at_slave(pair) == (7, 7)

    run(scenario)


# --- topics that were deleted and made again -----------------------------------------------------------------------


async def delete_and_make_again(pair: Pair, topic: str = "orders") -> None:
    assert (await pair.ask(pair.master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == 0
    answer = await pair.ask(pair.master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 4))
    assert answer.code == 0, answer.remark


async def offset_is(broker: Broker, offset: int) -> None:
    await until(lambda: broker.offsets.query("readers", "orders", 0) == offset, 10)


@pytest.mark.covers("SL-01")
def test_offsets_of_a_topic_made_again_between_two_looks_are_gone_at_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(4)
            await pair.commit(3)
            await offset_is(pair.slave, 3)
            await delete_and_make_again(pair)
            assert pair.master.offsets.query("readers", "orders", 0) == -1
            await offset_is(pair.slave, -1)
            # and what is committed in the new one follows, even when it is what the slave had before
            await pair.commit(3)
            await offset_is(pair.slave, 3)
            assert "orders" in pair.slave.offsets.removed_topics.stamps

    run(scenario)


@pytest.mark.parametrize("master_restarts", [False, True])
def test_a_slave_that_slept_through_it_forgets_the_former_topic(master_restarts: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(4)
            await pair.commit(3)
            await pair.commit(2, queue_id=1)
            await offset_is(pair.slave, 3)
            await trio.sleep(2)  # durable at the slave
            await pair.cluster.kill("c2")
            await delete_and_make_again(pair)
            await pair.commit(1)
            if master_restarts:
                await pair.send(4)
                await trio.sleep(12)  # the messages are durable
                await pair.cluster.kill("c1", power=True)
                await pair.cluster.restart("c1")
            saved = loads(pair.cluster.host("c2").disk.read("/data/broker-a-1/config/consumerOffset.json"))
            assert {int(queue): offset for queue, offset in saved["offsetTable"]["orders@readers"].items()} == {
                0: 3,
                1: 2,
            }
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.offsets.query("readers", "orders", 1) == -1, 20)
            await offset_is(pair.slave, 1)

    run(scenario)


def test_a_returning_master_takes_no_offsets_of_a_former_topic_from_a_slave() -> None:
    async def scenario(source: random.Random) -> None:
        acting = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}
        async with open_pair(source, acting, acting) as pair:
            await pair.send(4)
            await pair.commit(3)
            await pair.commit(2, group="others")
            await offset_is(pair.slave, 3)
            # given a slave that was cut off while a topic was deleted and made again
            pair.cluster.partition(["c1"], ["c2"])
            await delete_and_make_again(pair)
            await pair.commit(1)
            await trio.sleep(2)
            # when the master dies and comes back through the slave
            await pair.cluster.kill("c1")
            await trio.sleep(5)
            pair.cluster.heal()
            await pair.cluster.restart("c1")
            await trio.sleep(15)
            # then the slave's old places are not the master's
            assert pair.master.offsets.query("readers", "orders", 0) == 1
            assert pair.master.offsets.query("others", "orders", 0) == -1
            await offset_is(pair.slave, 1)
            assert pair.slave.offsets.query("others", "orders", 0) == -1

    run(scenario)


def test_the_newest_removals_are_remembered_and_nonsense_is_refused() -> None:
    now = [1_000]
    table = OffsetTable(lambda: now[0])
    for number in range(REMOVED_MAX + 5):
        now[0] += 1
        run_steps(table.remove_topics({f"topic-{number}"}))
    assert (
        len(table.removed_topics.stamps) == REMOVED_MAX
        and "topic-4" not in table.removed_topics.stamps
        and "topic-5" in table.removed_topics.stamps
    )
    # after the clock went back, a removal is still newer than the one before
    now[0] = 500
    newest = max(table.removed_topics.stamps.values())
    run_steps(table.remove_topics({"topic-50"}))
    assert table.removed_topics.stamps["topic-50"] == newest + 1
    run_steps(table.remove_topics({"topic-0"}))
    assert table.removed_topics.stamps["topic-0"] == newest + 2 and len(table.removed_topics.stamps) == REMOVED_MAX
    # and a saved table brings them back
    copy = OffsetTable(lambda: 0)
    copy.merge_json(loads(dumps(table.to_json())))
    assert copy.removed_topics.stamps == table.removed_topics.stamps
    for bad in ({"removedTopicTable": 5}, {"removedTopicTable": {"orders": "soon"}}):
        with pytest.raises(ValueError, match="removedTopicTable"):
            copy.merge_json(bad)


@pytest.mark.parametrize("ahead_ms", [-1_000_000, 0, 1_000_000])
def test_a_removal_that_is_known_does_not_become_news_again(ahead_ms: int) -> None:
    now = [10_000_000]

    def tick() -> int:
        now[0] += 1
        return now[0]

    # given a master that remembers as many removals as it may, and a slave that once acted and removed topics itself
    master, slave = OffsetTable(tick), OffsetTable(lambda: tick() + ahead_ms)
    for number in range(REMOVED_MAX):
        run_steps(master.remove_topics({f"topic-{number}"}))
    for number in range(10):
        run_steps(slave.remove_topics({f"own-{number}"}))
    slave.following = True
    # and topics that were made anew after their removal, with offsets on both
    names = [f"topic-{number}" for number in range(REMOVED_MAX)]
    slave.learn_removed(master.removed_topics.stamps, {})
    for name in names:
        master.commit("readers", name, 0, 5)
        slave.commit("readers", name, 0, 5)
    for number in range(3):
        # when the master removes another one, and tells what changed since the slave last asked
        known = master.revision
        run_steps(master.remove_topics({f"another-{number}"}))
        partly = loads(dumps(master.to_json(known)))
        assert partly["offsetTable"] == {}
        # then that one is news, and no other offset goes
        assert slave.learn_removed(partly["removedTopicTable"], {}) == ({f"another-{number}"}, set())
        assert [slave.query("readers", name, 0) for name in names] == [5] * REMOVED_MAX
    # and when the slave has become the master, its own slaves learn of what it removes, too
    slave.following = False
    run_steps(slave.remove_topics({"topic-999"}))
    third = OffsetTable(tick)
    third.commit("readers", "topic-999", 0, 7)
    assert (
        "topic-999" in third.learn_removed(slave.removed_topics.stamps, {})[0]
        and len(slave.removed_topics.stamps) == REMOVED_MAX
    )
    assert third.query("readers", "topic-999", 0) == -1


def test_what_only_a_slave_remembers_is_kept_as_far_as_there_is_room() -> None:
    slave = OffsetTable(lambda: 50)
    run_steps(slave.remove_topics({"own"}))
    assert slave.learn_removed({"theirs": 7}, {}) == ({"theirs"}, set())
    assert slave.removed_topics.stamps == {"own": 50, "theirs": 7}
    # an older removal of the same topic is no news, nor is an answer without any
    assert slave.learn_removed({"own": 49}, {}) == slave.learn_removed({}, {}) == (set(), set())
    assert slave.removed_topics.stamps == {"own": 50, "theirs": 7}
    # of more than may be remembered, only the newest count, each time
    many = {f"topic-{number}": 100 + number for number in range(REMOVED_MAX + 5)}
    assert len(slave.learn_removed(many, {})[0]) == REMOVED_MAX and slave.learn_removed(many, {})[0] == set()
