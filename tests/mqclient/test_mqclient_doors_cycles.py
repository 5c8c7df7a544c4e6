"""Clients of both doors that are opened and closed very often leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter

import pytest

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import PushConsumerOptions
from understudy.mqclient.message import message
from understudy.mqclient.pull_consumer import PullConsumerOptions
from understudy.mqclient.transactions import TransactionState
from understudy.testkit.blocking import local_cluster

FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
LISTEN = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


def left(portals: int) -> tuple[int, int, list[str]]:
    """Return how many descriptors and objects of the client there are, and the threads beside *portals* portals."""
    gc.collect()
    kinds = Counter(type(each).__module__ for each in gc.get_objects())
    objects = sum(count for name, count in kinds.items() if name.startswith("understudy."))
    idle_or_the_clusters = ("Trio thread", "sync from understudy.store")
    threads = sorted(each.name for each in threading.enumerate() if not each.name.startswith(idle_or_the_clusters))
    assert threads.count("understudy-portal") == portals
    return len(os.listdir("/proc/self/fd")), objects, threads


async def never_awaited(messages: object, context: object) -> None:
    raise AssertionError("nothing is sent to it")


async def never_checked(half: object) -> TransactionState:
    raise AssertionError("nothing is prepared")


def open_all_blocking(servers: str, times: int) -> None:
    """Open and close every kind of client so many times."""
    for number in range(times):
        with blocking.open_producer(servers, "pg") as producer:
            if number % 10 == 0:
                producer.send(message("Again", b"x"))
        with blocking.open_pull_consumer(servers, "again_pull", FIRST) as consumer:
            if number % 10 == 0:
                consumer.subscribe({"Again": "*"})
        with blocking.open_push_consumer(servers, "again_push", {"Nothing": "*"}, lambda some, of: None, LISTEN):
            pass
        with blocking.open_pop_consumer(servers, "again_pop", {"Nothing": "*"}):
            pass
        with blocking.open_transaction_producer(servers, "again_half", lambda half: TransactionState.COMMIT):
            pass


async def open_all_of_asyncio(servers: str, times: int) -> None:
    """The same with those of asyncio."""
    for number in range(times):
        async with aio.open_producer(servers, "pg") as producer:
            if number % 10 == 0:
                await producer.send(message("Again", b"x"))
        async with aio.open_pull_consumer(servers, "again_pull", FIRST) as consumer:
            if number % 10 == 0:
                await consumer.subscribe({"Again": "*"})
        async with aio.open_push_consumer(servers, "again_push", {"Nothing": "*"}, never_awaited, LISTEN):
            pass
        async with aio.open_pop_consumer(servers, "again_pop", {"Nothing": "*"}):
            pass
        async with aio.open_transaction_producer(servers, "again_half", never_checked):
            pass


@pytest.mark.slow
def test_a_thousand_times_opened_and_closed_leaves_nothing_behind() -> None:
    with local_cluster() as cluster:
        servers = cluster.namesrv_address
        open_all_blocking(servers, 10)
        asyncio.run(open_all_of_asyncio(servers, 10))
        before = left(portals=1)  # that of the cluster
        open_all_blocking(servers, 100)
        asyncio.run(open_all_of_asyncio(servers, 100))
        after = left(portals=1)
    # What the cluster in this process keeps of former clients moves a little; one lost in each cycle would show.
    assert after[0] <= before[0] + 10 and after[1] <= before[1] + 300, (before, after)
    assert after[2] == before[2]


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def open_clusters(times: int) -> None:
    """Open and close a cluster so many times, with one send in each."""
    for _ in range(times):
        with local_cluster() as cluster, blocking.open_producer(cluster.namesrv_address, "pg") as producer:
            assert producer.send(message("Again", b"x")).message_id


@pytest.mark.slow
def test_fifty_clusters_opened_and_closed_leave_nothing_behind() -> None:
    open_clusters(10)
    before, resident = left(portals=0), resident_kib()
    open_clusters(50)
    after, grown_kib = left(portals=0), resident_kib() - resident
    # One object, descriptor or thread of each cluster would make fifty; the least of its stores is a megabyte.
    assert after[0] <= before[0] + 10 and after[1] <= before[1] + 40, (before, after)
    assert after[2] == before[2]
    assert grown_kib < 20 * 1024
