"""Pure parts of the administration: attributes, texts of the runtime info, allocation of queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.admin import attributes
from understudy.broker.admin.assignment import average, average_by_circle
from understudy.broker.admin.cluster_queues import readable_queues
from understudy.broker.admin.relays import physical_offset_of
from understudy.broker.admin.runtime import byte_text, java_double, percentile_ms, uptime_text
from understudy.remoting.fields import CommandError


def test_attributes_are_added_changed_and_taken_away() -> None:
    known = attributes.TOPIC_ATTRIBUTES

    created = attributes.alter(known, None, attributes.parse("+message.type=FIFO,+queue.type=SimpleCQ"))
    changed = attributes.alter(known, created, attributes.parse("+message.type=NORMAL"))
    removed = attributes.alter(known, changed, attributes.parse("-message.type"))

    assert created == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert changed["message.type"] == "NORMAL"
    assert removed == {"queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("current", "text", "remark"),
    [
        (None, "message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        (None, "+message.type", "delete attribute format is wrong: +message.type"),
        (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
        (None, "+no.such=1", "unsupported key: no.such"),
        (
            None,
            "+message.type=X",
            "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, NORMAL]",
        ),
        (None, "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        (None, "+reserve.time=x", 'For input string: "x"'),
        (None, "+a+b=1", "kv string format wrong."),
        ({}, "-message.type", "attempt to delete a nonexistent key: message.type"),
        ({}, "+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        (None, "+reserve.time=1,+reserve.time=2", "key duplication: +reserve.time"),
    ],
)
def test_refused_attributes(current: dict[str, str] | None, text: str, remark: str) -> None:
    with pytest.raises(attributes.AttributeRefusedError) as caught:
        attributes.alter(attributes.TOPIC_ATTRIBUTES, current, attributes.parse(text))

    assert str(caught.value) == remark


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.2328327429360209, "0.2328327429360209"),
        (323.71144278606965, "323.71144278606965"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0005, "5.0E-4"),
        (9999999.0, "9999999.0"),
    ],
)
def test_doubles_read_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_lose_nothing(value: float) -> None:
    assert float(java_double(value)) == value


def test_sizes_and_times_for_people() -> None:
    assert byte_text(0) == "0 B"
    assert byte_text(1023) == "1023 B"
    assert byte_text(270_582_939_648) == "252.0 GiB"
    assert uptime_text(1_956_999) == "[ 0 days, 0 hours, 32 minutes, 36 seconds ]"
    assert uptime_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_percentiles() -> None:
    assert percentile_ms((0,) * 13, 0.99) == 0.0
    assert percentile_ms((100,) + (0,) * 12, 0.5) == 0.5
    assert percentile_ms((0, 98, 0, 2) + (0,) * 9, 0.99) == 75.0


QUEUES = [("T", "a", 0), ("T", "a", 1), ("T", "a", 2), ("T", "b", 0), ("T", "b", 1)]


def test_shares_as_the_reference_deals_them() -> None:
    clients = ["c1", "c2", "c3"]

    assert [len(average(client, QUEUES, clients)) for client in clients] == [2, 2, 1]
    assert average("c2", QUEUES, clients) == QUEUES[2:4]
    assert average_by_circle("c2", QUEUES, clients) == [QUEUES[1], QUEUES[4]]
    assert average("stranger", QUEUES, clients) == average_by_circle("stranger", QUEUES, clients) == []


@given(st.integers(1, 40), st.integers(1, 12))
def test_every_queue_has_exactly_one_client(queue_count: int, client_count: int) -> None:
    queues = [("T", "a", queue_id) for queue_id in range(queue_count)]
    clients = [f"c{index:02}" for index in range(client_count)]

    for strategy in (average, average_by_circle):
        shares = [queue for client in clients for queue in strategy(client, queues, clients)]
        assert sorted(shares) == queues


def test_only_readable_queues_are_shared() -> None:
    route = {
        "queueDatas": [
            {"brokerName": "a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 1},
            {"brokerName": "b", "perm": 2, "readQueueNums": 2},
        ]
    }

    assert readable_queues("T", route) == [("T", "a", 0), ("T", "a", 1)]


def test_message_ids() -> None:
    assert physical_offset_of("7F00000100004E8400000000000042A7") == 17063
    assert physical_offset_of("0" * 32 + "00002A9F" + "0000000000000010") == 16
    for bad in ("", "zz", "FD000000000000000000000000000002444C4E0E2F2A6886BC010034AA"):
        with pytest.raises(CommandError):
            physical_offset_of(bad)
