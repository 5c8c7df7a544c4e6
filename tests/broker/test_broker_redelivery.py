"""A master's log as the place of due messages: when one of them counts as put."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.inner import InnerMessage
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.redelivery import AT_ONCE, OwnLog
from understudy.store.status import Appended, PutRejected, PutStatus
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.turns import in_each_turn


class FakeLog:
    """A log whose messages have ten bytes, and that takes as many as there is room for."""

    def __init__(self) -> None:
        self.end = self.flushed = 0
        self.room = 100
        self.disk = trio.Event()

    def append(self, topic: str, *rest: object, **more: object) -> Appended:
        if self.end >= 10 * self.room:
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
        self.end += 10
        return Appended(self.end - 10, 10, 0)

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        with trio.move_on_after(timeout_ms / 1000):
            await self.disk.wait()
            self.flushed = self.end
        return self.flushed >= offset


class FakeReplication:
    def __init__(self) -> None:
        self.copies: int | None = 1
        self.has = 0
        self.copies_changed: list[Any] = []

    def copies_in_reach(self) -> int | None:
        return self.copies

    def copied(self, copies: int) -> int:
        return 1 << 62 if copies <= 1 else self.has

    def tell(self, *, copies: int | None = None, has: int | None = None) -> None:
        self.copies = self.copies if copies is None else copies
        self.has = self.has if has is None else has
        for callback in self.copies_changed:
            callback()


def message(properties: bytes = b"") -> InnerMessage:
    return InnerMessage("T", 0, b"body", properties, 0, b"")


class Rig:
    def __init__(self, **keys: str) -> None:
        self.store, self.replication = FakeLog(), FakeReplication()
        settings = cast(MessageStoreConfig, SimpleNamespace(slave_timeout=3_000, sync_flush_timeout=5_000, **keys))
        self.log = OwnLog(VirtualClock(), cast(Any, self.store), cast(Any, self.replication), settings)
        self.statuses: list[PutStatus] | None = None

    async def put(self, *messages: InnerMessage) -> None:
        self.statuses = await self.log.put(messages)


async def test_without_anything_to_wait_for_it_is_put_at_once() -> None:
    rig = Rig(flush_disk_type="ASYNC_FLUSH")
    await rig.put(message(), message())
    assert rig.statuses == [PutStatus.PUT_OK] * 2


async def test_what_the_log_refuses_and_all_behind_it_is_not_put() -> None:
    rig = Rig(flush_disk_type="ASYNC_FLUSH")
    rig.store.room = 1
    await rig.put(message(), message(), message())
    assert rig.statuses == [PutStatus.PUT_OK, *[PutStatus.SERVICE_NOT_AVAILABLE] * 2]


async def test_a_slow_disk_is_waited_for_beyond_the_time_of_a_send(autojump_clock: MockClock) -> None:
    rig = Rig(flush_disk_type="SYNC_FLUSH")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.put, message())
        await trio.sleep(12)
        assert rig.statuses is None
        rig.store.disk.set()
    assert rig.statuses == [PutStatus.PUT_OK]


async def test_copies_are_waited_for_until_the_slave_that_owes_them_is_gone(autojump_clock: MockClock) -> None:
    rig = Rig(flush_disk_type="ASYNC_FLUSH")
    rig.replication.copies = 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.put, message())
        nursery.start_soon(rig.put, message())  # another queue at the same time
        await wait_all_tasks_blocked()
        rig.replication.tell(has=5)
        await trio.sleep(30)
        assert rig.statuses is None
        before = trio.current_time()
        rig.replication.tell(copies=2, has=20)
    assert before == trio.current_time()  # at once, not at the next look
    assert rig.statuses == [PutStatus.PUT_OK]


async def test_a_master_that_was_replaced_waits_no_longer_and_nothing_counts_as_put(autojump_clock: MockClock) -> None:
    rig = Rig(flush_disk_type="ASYNC_FLUSH")
    rig.replication.copies = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.put, message(), message())
        await wait_all_tasks_blocked()
        before = trio.current_time()
        rig.log.give_up()
    assert before == trio.current_time()
    assert rig.statuses == [PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH] * 2
    # once it is master again it waits as before
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.put, message())
        await trio.sleep(30)
        rig.replication.tell(has=30)
    assert rig.statuses == [PutStatus.PUT_OK]


async def test_too_few_replicas_refuse_what_its_sender_wanted_to_be_copied_and_nothing_else() -> None:
    rig = Rig(flush_disk_type="ASYNC_FLUSH")
    rig.replication.copies = None
    await rig.put(message(b"WAIT\x01false\x02"), message(b"WAIT\x01true\x02"))
    assert rig.statuses == [PutStatus.PUT_OK, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH]
    assert rig.store.end == 10


async def test_a_long_run_of_messages_is_put_in_pieces_and_in_order() -> None:
    log, counts = FakeLog(), list[int]()
    log.room = 10_000
    own = OwnLog(VirtualClock(), cast(Any, log), cast(Any, FakeReplication()), MessageStoreConfig())

    async with in_each_turn(lambda: counts.append(log.end // 10)):
        await trio.lowlevel.checkpoint()
        assert await own.put([message()] * 10 * AT_ONCE) == [PutStatus.PUT_OK] * 10 * AT_ONCE
    steps = [later - sooner for sooner, later in pairwise(counts)]
    assert len(counts) >= 10
    assert max(steps) <= 2 * AT_ONCE  # in one turn it may come first, and last in the one before


async def test_a_long_run_ends_where_its_broker_may_not_store_any_more() -> None:
    log = FakeLog()
    log.room = 10_000
    own = OwnLog(VirtualClock(), cast(Any, log), cast(Any, FakeReplication()), MessageStoreConfig())
    statuses = await own.put([message()] * 3 * AT_ONCE, lambda: log.end < 10 * AT_ONCE)
    put = log.end // 10
    assert AT_ONCE <= put <= 2 * AT_ONCE
    assert statuses == [PutStatus.PUT_OK] * put + [PutStatus.SERVICE_NOT_AVAILABLE] * (3 * AT_ONCE - put)
