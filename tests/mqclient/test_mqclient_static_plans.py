"""Plans for static topics: queues spread evenly, few moved, and nothing ever contradicted."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from understudy.format.static_topics import MappingError, successor
from understudy.mqclient.admin.static_plans import (
    BLOCK,
    Brokers,
    BrokerTopic,
    Plan,
    chains_of,
    create,
    decided,
    remap,
    round_up,
    undecided_queues,
    with_bystanders,
    with_known,
)
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.route import parse_route

NAMES = ("a", "b", "c", "d")
targets = some.sets(some.sampled_from(NAMES), min_size=1)


def ends_of(plan: Plan, messages: int) -> dict[int, int]:
    return {global_id: messages + global_id for global_id in undecided_queues(plan)}


def leaders(plan: Plan) -> Counter[str]:
    return Counter(items[-1].broker_name for items in chains_of(plan.topic, plan.brokers).values())


def taken(known: Brokers, plan: Plan) -> Brokers:
    """Return the topics of brokers that had *known* and were given *plan*, each as it accepts mappings."""
    return {
        name: BrokerTopic(each.settings, successor(known[name].mapping if name in known else None, each.mapping))
        for name, each in plan.brokers.items()
    }


@settings(max_examples=40)
@given(some.integers(1, 12), targets, some.lists(some.tuples(targets, some.integers(0, 30_000)), max_size=4))
def test_any_series_of_moves_is_accepted_by_every_broker_and_spread_evenly(
    queues: int, first: set[str], moves: list[tuple[set[str], int]]
) -> None:
    plan = create("t", queues, first, {}, 1_000)
    known = taken({}, plan)
    assert max(leaders(plan).values()) - min(leaders(plan)[name] for name in first) <= 1
    for goal, messages in moves:
        before = chains_of("t", known)
        plan = with_bystanders(remap("t", goal, known, 1_000), NAMES)
        led = leaders(plan)
        assert led.keys() <= goal
        assert max(led.values()) - min(led[name] for name in goal) <= 1
        # no more move than must
        kept = Counter(items[-1].broker_name for global_id, items in before.items() if items[-1].broker_name in goal)
        stayed = sum(1 for global_id, items in chains_of("t", plan.brokers).items() if items == before[global_id])
        assert stayed == sum(min(kept[name], led[name]) for name in goal)
        # first the undecided plan is taken, then the decided one, also twice
        known = taken(known, plan)
        settled = decided(plan, ends_of(plan, messages))
        known = taken(taken(known, settled), settled)
        for global_id, items in chains_of("t", known).items():
            assert items[-1].decided
            if items != before[global_id]:
                assert items[-2].end_offset == messages + global_id
                assert items[-1].logic_offset % BLOCK == 0
                assert items[-1].logic_offset - items[-2].last_logic_offset > BLOCK // 2
        # a plan that is carried out anew finds what was decided
        assert with_known(plan, known) == settled
        assert Plan.from_json(settled.to_json()) == settled
    more_queues = create("t", queues + 3, {"a"}, known, 1_000)
    assert sum(leaders(more_queues).values()) == queues + 3
    taken(known, more_queues)


@pytest.mark.parametrize(("offset", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (10_000, 20_000)])
def test_a_moved_queue_goes_on_at_the_next_block_or_the_one_behind(offset: int, begin: int) -> None:
    assert round_up(offset) == begin


def test_a_topic_does_not_get_fewer_queues_nor_the_same_again() -> None:
    known = taken({}, create("t", 4, ["a"], {}, 1_000))
    for queues in (3, 4):
        with pytest.raises(MappingError, match="can only grow"):
            create("t", queues, ["a"], known, 2_000)


def test_a_move_that_was_not_finished_is_not_followed_by_another() -> None:
    known = taken({}, create("t", 2, ["a"], {}, 1_000))
    plan = remap("t", ["b"], known, 2_000)
    with pytest.raises(MappingError, match="not finished"):
        remap("t", ["a"], taken(known, plan), 3_000)


def test_brokers_that_do_not_agree_are_named() -> None:
    known = taken({}, create("t", 2, ["a", "b"], {}, 1_000))
    newer = {**known, "a": create("t", 4, ["a"], known, 2_000).brokers["a"]}
    with pytest.raises(MappingError, match="agree on the epoch of t: a 2000, b 1000"):
        chains_of("t", newer)
    without = {"a": known["a"]}
    with pytest.raises(MappingError, match="2 queues, but these are led"):
        chains_of("t", without)
    huge = {
        name: attrs.evolve(each, mapping=attrs.evolve(each.mapping, total_queues=1 << 40))
        for name, each in known.items()
    }
    with pytest.raises(MappingError, match="1099511627776 queues, but these are led"):
        chains_of("t", huge)
    small = {name: BrokerTopic(TopicSettings("t", 0, 0), each.mapping) for name, each in known.items()}
    with pytest.raises(MappingError, match="has no queue 0"):
        chains_of("t", small)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "brokerConfigMap"),
        ({"topic": "t", "epoch": 1, "brokerConfigMap": {"a": {"topicName": "t"}}}, "no static topic"),
        ({"topic": "t", "epoch": 1, "brokerConfigMap": {}, "brokerToMapIn": ["a"]}, "has no a"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(value: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Plan.from_json(value)


def test_consumers_name_logical_queues_alike_whoever_leads_them_and_producers_by_their_leader() -> None:
    def told(name: str, epoch: int, ids: dict[str, int]) -> dict[str, object]:
        return {"bname": name, "epoch": epoch, "scope": "__global__", "totalQueues": 3, "currIdMap": ids}

    route = parse_route(
        "t",
        {
            "brokerDatas": [
                {"brokerName": "a", "cluster": "C", "brokerAddrs": {"0": "h:1"}},
                {"brokerName": "b", "cluster": "C", "brokerAddrs": {"1": "h:2"}},
            ],
            "queueDatas": [{"brokerName": name, "readQueueNums": 5, "writeQueueNums": 5, "perm": 6} for name in "ab"],
            # queue 1 has moved to b, and a does not know yet
            "topicQueueMappingByBroker": {"a": told("a", 7, {"0": 0, "1": 1}), "b": told("b", 8, {"1": 4, "2": 0})},
        },
    )
    assert route.leaders == {0: "a", 1: "b", 2: "b"}
    assert route.read_queues == tuple(MessageQueue("t", "__syslo__global__", number) for number in range(3))
    assert route.write_queues == (MessageQueue("t", "a", 0),)  # b has no master
