"""The client's decisions without any I/O: allocation, windows, routes, health, ids, subscriptions."""

from __future__ import annotations

import random
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.java_hash import java_hash
from understudy.format.json_dialect import loads
from understudy.format.unique_id import UniqueIds, time_of
from understudy.mqclient.allocation import AVERAGELY, BY_CIRCLE, CONSISTENT_HASH, Strategy, by_config, change
from understudy.mqclient.broker_health import BrokerHealth, QueueChooser
from understudy.mqclient.client_requests import parse_reset
from understudy.mqclient.errors import InvalidMessageError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.queue import MessageQueue, check_group, check_topic
from understudy.mqclient.route import for_new_topic, parse_route
from understudy.mqclient.session import fields, split_addresses
from understudy.mqclient.subscription import subscription
from understudy.mqclient.window import Window, WindowLimits

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def received(offset: int, body: bytes = b"x") -> ReceivedMessage:
    return ReceivedMessage("T", body, {}, 0, "b", 0, offset, 0, 0, 0, "", 0, "", 0, 0, 0, 100, "T")


# --- allocation ------------------------------------------------------------------------------------------------


def test_shares_are_those_of_the_real_tool() -> None:
    # Captured from 5.4.0: mqadmin allocateMQ -t PushTopic -i 10.0.0.1,10.0.0.2 gives each member two queues. Within a
    # member the real tool prints them in the order of its hash map.
    members = ["10.0.0.1", "10.0.0.2"]
    assert AVERAGELY.allocate("10.0.0.1", QUEUES, members) == QUEUES[:2]
    assert AVERAGELY.allocate("10.0.0.2", QUEUES, members) == QUEUES[2:]


@pytest.mark.parametrize("strategy", [AVERAGELY, BY_CIRCLE, CONSISTENT_HASH], ids=lambda strategy: strategy.name)
@given(count=st.integers(0, 40), members=st.sets(st.text("abc@1", min_size=1, max_size=6), min_size=1, max_size=9))
def test_every_queue_has_exactly_one_owner(strategy: Strategy, count: int, members: set[str]) -> None:
    queues = [MessageQueue("T", f"broker-{number % 3}", number) for number in range(count)]
    ordered = sorted(members)
    shares = [strategy.allocate(member, queues, ordered) for member in ordered]
    assert sorted(queues) == sorted(queue for share in shares for queue in share)
    if strategy is not CONSISTENT_HASH:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("strategy", [AVERAGELY, BY_CIRCLE, CONSISTENT_HASH], ids=lambda strategy: strategy.name)
def test_a_stranger_gets_nothing(strategy: Strategy) -> None:
    assert strategy.allocate("stranger", QUEUES, ["a", "b"]) == []


def test_circle_deals_in_turn() -> None:
    assert BY_CIRCLE.allocate("b", QUEUES, ["a", "b", "c"]) == [QUEUES[1]]
    assert BY_CIRCLE.allocate("a", QUEUES, ["a", "b", "c"]) == [QUEUES[0], QUEUES[3]]


@given(st.sets(st.text("abcdef", min_size=1, max_size=5), min_size=2, max_size=8))
def test_consistent_hash_moves_only_the_leavers_queues(members: set[str]) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(30)]
    ordered = sorted(members)
    leaver, rest = ordered[0], ordered[1:]
    for member in rest:
        before = CONSISTENT_HASH.allocate(member, queues, ordered)
        after = CONSISTENT_HASH.allocate(member, queues, rest)
        assert set(before) <= set(after), leaver


def test_config_takes_what_is_there() -> None:
    strategy = by_config({"T": [QUEUES[2], MessageQueue("T", "gone", 0)]})
    assert strategy.allocate("me", QUEUES, ["others"]) == [QUEUES[2]]


def test_change_names_what_to_give_and_take() -> None:
    difference = change({QUEUES[0], QUEUES[1]}, [QUEUES[1], QUEUES[2]])
    assert (difference.revoked, difference.taken) == ((QUEUES[0],), (QUEUES[2],))


# --- windows ---------------------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.integers(0, 12))
def test_progress_never_passes_an_unfinished_message(order: list[int], finished: int) -> None:
    window = Window()
    window.add(received(offset) for offset in range(12))
    for offset in order[:finished]:
        window.finish([received(offset)])
    left = sorted(order[finished:])
    assert window.committable == (left[0] if left else 12)
    assert (len(window), window.size_bytes) == (len(left), len(left))


STEPS = st.tuples(st.sampled_from(["add", "finish", "highest"]), st.lists(st.integers(0, 9), max_size=6))


@given(st.lists(STEPS, max_size=20))
def test_a_window_is_what_was_added_and_not_finished_in_the_order_of_offsets(
    steps: list[tuple[str, list[int]]],
) -> None:
    window, unfinished, following = Window(), set[int](), -1
    for kind, offsets in steps:
        if kind == "add":
            fresh = [each.queue_offset for each in window.add([received(offset) for offset in offsets])]
            assert sorted(fresh) == sorted(set(offsets) - unfinished)
            unfinished |= set(offsets)
            following = max([following, *(offset + 1 for offset in fresh)])
        elif kind == "finish":
            unfinished -= set(offsets)
            assert window.finish([received(offset) for offset in offsets]) == min(unfinished, default=following)
        else:  # which tidies up
            assert window.highest == max(unfinished, default=0)
        assert window.lowest == min(unfinished, default=0)
        assert [each.queue_offset for each in window.take(3)] == sorted(unfinished)[:3]
        assert len(window) == window.size_bytes == len(unfinished)


def test_a_repeated_pull_adds_nothing() -> None:
    window = Window()
    assert len(window.add([received(5), received(6)])) == 2
    assert window.add([received(5), received(6)]) == []
    assert (len(window), window.lowest, window.highest) == (2, 5, 6)


def test_an_empty_window_commits_nothing() -> None:
    assert Window().finish([received(3)]) == -1


@pytest.mark.parametrize(
    ("limits", "ordered", "why"),
    [
        (WindowLimits(messages=2), False, "3 unfinished messages"),
        (WindowLimits(size_bytes=2), False, "3 unfinished bytes"),
        (WindowLimits(span=50), False, "offsets 0 to 100 unfinished"),
        (WindowLimits(span=50), True, None),
        (WindowLimits(), False, None),
    ],
)
def test_full_windows_say_why(limits: WindowLimits, ordered: bool, why: str | None) -> None:
    window = Window()
    window.add([received(0), received(1), received(100)])
    assert window.full(limits, ordered=ordered) == why


# --- routes ----------------------------------------------------------------------------------------------------

ROUTE = {
    "brokerDatas": [
        {"brokerName": "broker-a", "cluster": "C", "brokerAddrs": {"0": "h:1", "1": "h:2"}},
        {"brokerName": "broker-b", "cluster": "C", "brokerAddrs": {"1": "h:3"}},
    ],
    "queueDatas": [
        {"brokerName": "broker-b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
        {"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6, "topicSynFlag": 1},
    ],
}


def test_only_masters_are_written_to() -> None:
    route = parse_route("T", ROUTE)
    assert route.write_queues == tuple(MessageQueue("T", "broker-a", number) for number in range(3))
    assert route.read_queues == (
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-a", 1),
        MessageQueue("T", "broker-b", 0),
    )
    assert route.brokers["broker-b"].any_address() == "h:3"
    assert route.queue_groups[0].topic_sys_flag == 1


def test_permissions_hide_queues() -> None:
    read_only = {**ROUTE, "queueDatas": [{**ROUTE["queueDatas"][1], "perm": 4}]}
    assert parse_route("T", read_only).write_queues == ()
    write_only = {**ROUTE, "queueDatas": [{**ROUTE["queueDatas"][1], "perm": 2}]}
    assert parse_route("T", write_only).read_queues == ()


def test_order_configuration_names_the_queues() -> None:
    route = parse_route("T", {**ROUTE, "orderTopicConf": "broker-a:1;broker-b:2"})
    assert [(queue.broker_name, queue.queue_id) for queue in route.write_queues] == [
        ("broker-a", 0),
        ("broker-b", 0),
        ("broker-b", 1),
    ]


def test_new_topics_get_few_queues() -> None:
    route = for_new_topic("New", parse_route("TBW102", ROUTE), 2)
    assert route.write_queues == (MessageQueue("New", "broker-a", 0), MessageQueue("New", "broker-a", 1))


# --- health ----------------------------------------------------------------------------------------------------


def test_a_failed_broker_is_avoided_for_a_while() -> None:
    health, chooser = BrokerHealth(), QueueChooser(0)
    queues = [MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)]
    health.failed("a", now=100.0)
    assert {chooser.choose(queues, health, 101.0, None).broker_name for _ in range(4)} == {"b"}
    assert {chooser.choose(queues, health, 111.0, None).broker_name for _ in range(4)} == {"a", "b"}


def test_when_all_are_in_trouble_another_than_the_last_is_tried() -> None:
    health, chooser = BrokerHealth(), QueueChooser(0)
    queues = [MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)]
    for name in "ab":
        health.failed(name, 0.0)
    assert chooser.choose(queues, health, 1.0, "a").broker_name == "b"
    assert chooser.choose(queues[:1], health, 1.0, "a").broker_name == "a"


@pytest.mark.parametrize(("took_ms", "avoided_seconds"), [(10, 0), (600, 0), (2000, 2), (3500, 5), (20_000, 10)])
def test_slow_brokers_are_avoided_the_longer_the_slower(took_ms: float, avoided_seconds: float) -> None:
    health = BrokerHealth()
    health.sent("a", took_ms, now=0.0)
    assert health.available("a", avoided_seconds)
    assert health.available("a", max(0, avoided_seconds - 0.5)) == (avoided_seconds == 0)


def test_queues_are_taken_in_turn() -> None:
    chooser = QueueChooser(2)
    taken = [chooser.choose(QUEUES, BrokerHealth(), 0.0, None).queue_id for _ in range(5)]
    assert taken == [2, 3, 0, 1, 2]


# --- names, ids, subscriptions -----------------------------------------------------------------------------------


def test_ids_are_unique_and_tell_their_time() -> None:
    ids = UniqueIds.of_producer(random.Random(1))
    now_ms = round(datetime(2026, 3, 15, 12).timestamp() * 1000)
    made = [ids.next(now_ms + number) for number in range(1000)]
    assert len(set(made)) == 1000
    assert all(len(text) == 32 for text in made)
    assert time_of(made[7], now_ms + 5000) == now_ms + 7


def test_ids_of_last_month_are_placed_there() -> None:
    ids = UniqueIds.of_producer(random.Random(1))
    made_ms = round(datetime(2026, 2, 27, 23, 59).timestamp() * 1000)
    later_ms = round(datetime(2026, 3, 1, 1).timestamp() * 1000)
    assert time_of(ids.next(made_ms), later_ms) == made_ms
    assert time_of("not an id", later_ms) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("TagA", 2598919), ("TagB", 2598920), ("", 0), ("标签", 26631 * 31 + 31614)]
)
def test_tags_hash_as_in_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("expression", "tags"), [("*", ()), ("", ()), ("TagA", ("TagA",)), (" TagA || TagB||TagA ", ("TagA", "TagB"))]
)
def test_expressions_name_tags(expression: str, tags: tuple[str, ...]) -> None:
    wanted = subscription("T", expression, 1)
    assert wanted.tags == tags
    assert wanted.accepts("TagA")
    assert wanted.accepts("other") == (not tags)


def test_an_expression_without_tag_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="names no tag"):
        subscription("T", " || ", 1)


@pytest.mark.parametrize("name", ["", "bad topic", "ü", "x" * 128])
def test_illegal_topics_are_refused(name: str) -> None:
    with pytest.raises(InvalidMessageError):
        check_topic(name)


def test_retry_topics_and_groups_have_limits_of_their_own() -> None:
    check_topic("%RETRY%" + "g" * 240)
    check_group("g" * 120)
    with pytest.raises(InvalidMessageError, match="120 are allowed"):
        check_group("g" * 121)


def test_header_fields_are_strings() -> None:
    assert fields({"a": True, "b": None, "c": 3, "d": "x"}) == {"a": "true", "c": "3", "d": "x"}


@pytest.mark.parametrize("given_as", ["h:1;h:2", "h:1,h:2", ["h:1", " h:2 "], ["h:1;h:2", ""]])
def test_addresses_come_in_several_forms(given_as: str | list[str]) -> None:
    assert split_addresses(given_as) == ["h:1", "h:2"]


def test_resets_come_in_two_forms() -> None:
    queue = MessageQueue("T", "b", 1)
    as_map = b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
    as_list = b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":1,"topic":"T"}]}'
    assert parse_reset(loads(as_map), "T") == parse_reset(loads(as_list), "T") == {queue: 5}
