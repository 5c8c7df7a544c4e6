"""Ids of messages: the month is that of the clock on the wall, for clients and brokers alike."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from understudy.format.unique_id import UniqueIds, time_of

MAKERS = {
    "a producer": lambda: UniqueIds.of_producer(random.Random(1)),
    "a broker": lambda: UniqueIds.of_broker("192.0.2.1", random.Random(1)),
    "a broker with an IPv6 address": lambda: UniqueIds.of_broker("2001:db8::1", random.Random(1)),
    "a broker without an address": lambda: UniqueIds.of_broker("a-host", random.Random(1)),
}


@pytest.fixture
def eight_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CST-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.usefixtures("eight_hours_east")
def test_an_id_counts_from_the_beginning_of_the_local_month(maker: str) -> None:
    # given a moment that belongs to March where the process runs, and to February in UTC
    ids = MAKERS[maker]()
    now_ms = round(datetime(2026, 2, 28, 20, tzinfo=UTC).timestamp() * 1000)
    # when ids are made
    made = [ids.next(now_ms + number) for number in range(3)]
    # then they hold the four hours of March, and tools find the moment again
    assert [4 * 3_600_000 + number for number in range(3)] == [int(text[-12:-4], 16) for text in made]
    assert [now_ms + number for number in range(3)] == [time_of(text, now_ms + 5000) for text in made]


def test_ids_of_a_broker_begin_with_its_address() -> None:
    assert UniqueIds.of_broker("192.0.2.1", random.Random(1)).next(0).startswith("C0000201")
    assert 56 == len(UniqueIds.of_broker("2001:db8::1", random.Random(1)).next(0))


def test_ids_of_two_brokers_of_one_host_differ() -> None:
    source = random.Random(1)
    first, second = (UniqueIds.of_broker("192.0.2.1", source).next(0) for _ in range(2))
    assert first != second
