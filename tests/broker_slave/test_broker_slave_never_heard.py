"""A master that was elected before it had copied the table of topics has not deleted what it never heard of."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
import trio
from slave_rig import Pair, bodies, change_topics_answer, open_pair, run

from understudy.broker.lost_topics import young
from understudy.format.data_version import DataVersion
from understudy.runtime.pace import run_steps
from understudy.testkit.waiting import until


async def answers(pair: Pair, counter: int, *, topic: bool) -> None:
    """Have the master answer as one of the reference does, of its own version, and wait until the slave took it."""
    version = attrs.evolve(pair.master.topics.version, counter=1_000 + counter)

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        table = dict(answer["topicConfigTable"])
        if not topic:
            table.pop("orders", None)
        return {"topicConfigTable": table, "dataVersion": version.to_json()}

    change_topics_answer(pair.master, change)
    await until(lambda: pair.slave.topics.version == version, 20)


async def came_back(pair: Pair) -> None:
    """Have the slave begin anew with a master that lacks the topic."""
    await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 3, 10)
    await trio.sleep(12)  # durable at the slave
    await pair.cluster.kill("c2")
    change_topics_answer(pair.master, lambda answer: {"topicConfigTable": {}, "dataVersion": DataVersion().to_json()})
    await pair.cluster.restart("c2")
    await answers(pair, 1, topic=False)


def test_a_new_topic_stays_with_its_messages_until_who_knew_it_deletes_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(20)
            await pair.commit(3)
            # given a slave with a new topic, and a master that has never heard of it
            await came_back(pair)
            # then topic, messages and what was consumed stay, also after another change there
            await answers(pair, 2, topic=False)
            await trio.sleep(10)
            assert "orders" in pair.slave.topics.rows
            assert len(bodies(pair.slave)) == 20
            assert pair.slave.offsets.query("readers", "orders", 0) == 3
            # when that master hears of it, and deletes it afterwards
            await answers(pair, 3, topic=True)
            await answers(pair, 4, topic=False)
            # then it goes
            await until(lambda: "orders" not in pair.slave.topics.rows, 10)
            await until(lambda: bodies(pair.slave) == [], 10)

    run(scenario)


def test_a_topic_of_which_everybody_must_have_heard_goes() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(10)
            await trio.sleep(61)
            await pair.send(10)
            await pair.commit(3)
            await came_back(pair)
            await until(lambda: "orders" not in pair.slave.topics.rows, 10)
            await until(lambda: bodies(pair.slave) == [], 10)

    run(scenario)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ({("t", 0): (10, 60_009)}, {"t"}),
        ({("t", 0): (10, 60_010)}, set()),
        ({("t", 0): (10, 20), ("t", 1): (60_010, 60_011)}, set()),
        ({("t", 0): (10, 20), ("t", 1): (-1, -1)}, {"t"}),
        ({("t", 0): (-1, -1)}, set()),
        ({("other", 0): (10, 20)}, set()),
    ],
    ids=["nearly a minute", "a minute", "queues together", "one is empty", "no message", "nobody asks"],
)
def test_a_topic_is_young_whose_messages_came_within_a_minute(
    spans: dict[tuple[str, int], tuple[int, int]], expected: set[str]
) -> None:
    assert run_steps(young(list(spans), {"t"}, lambda topic, queue_id: spans[topic, queue_id])) == expected
