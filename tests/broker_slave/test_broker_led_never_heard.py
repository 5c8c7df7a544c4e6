"""A led master that was elected before it had copied the table of topics has not deleted what it never heard of."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
import trio
from slave_rig import change_topics_answer
from test_broker_led_replication import ALL, Group, open_group

from understudy.broker.lost_topics import young
from understudy.runtime.pace import run_steps
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

SENT = 20


async def answers(group: Group, counter: int, *, topic: bool) -> None:
    """Have broker 3, the master from then on, answer as one of the reference does, and wait until 2 took it."""
    master, slave = group.brokers[3], group.brokers[2]
    version = attrs.evolve(master.topics.version, counter=1_000 + counter)

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        table = dict(answer["topicConfigTable"])
        if not topic:
            table.pop("orders", None)
        return {"topicConfigTable": table, "dataVersion": version.to_json()}

    change_topics_answer(master, change)
    if group.master != 3:
        await group.elect(3)
        version = attrs.evolve(master.topics.version, counter=1_000 + counter)
    await until(lambda: slave.topics.version == version, 20)


async def elected(group: Group, pause: float) -> None:
    """Send and commit at the first master, and have one elected that lacks the topic."""
    master, slave = group.brokers[1], group.brokers[2]
    for number in range(SENT):
        assert await group.send(master, b"%d" % number) == 0
        await trio.sleep(pause / SENT)
    await group.in_step()
    master.groups.get("readers")
    master.offsets.commit("readers", "orders", 0, 3)
    await until(lambda: slave.offsets.query("readers", "orders", 0) == 3, 10)
    assert "orders" in slave.topics.rows
    await answers(group, 1, topic=False)


def test_a_new_topic_stays_with_its_messages_until_who_knew_it_deletes_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            slave = group.brokers[2]
            # given a slave with a new topic, and a master that has never heard of it
            await elected(group, 0)
            # then topic, messages and what was consumed stay, also after another change there
            await answers(group, 2, topic=False)
            await trio.sleep(10)
            assert "orders" in slave.topics.rows
            assert len(group.bodies(slave)) == SENT
            assert slave.offsets.query("readers", "orders", 0) == 3
            # when that master hears of it, and deletes it afterwards
            await answers(group, 3, topic=True)
            await answers(group, 4, topic=False)
            # then it goes
            await until(lambda: "orders" not in slave.topics.rows, 10)
            await until(lambda: group.bodies(slave) == [], 10)

    run_seed(scenario, 1)


def test_a_topic_of_which_everybody_must_have_heard_goes() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            slave = group.brokers[2]
            await elected(group, 70)
            await until(lambda: "orders" not in slave.topics.rows, 10)
            await until(lambda: group.bodies(slave) == [], 10)

    run_seed(scenario, 1)


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
