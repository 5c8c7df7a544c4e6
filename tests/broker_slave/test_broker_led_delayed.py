"""Delayed messages where masters change: each is put once, and none is passed before its copy is safe."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
from test_broker_led_replaced import others
from test_broker_led_replication import ALL, Group, open_group
from test_broker_led_rows import part
from trio.testing import MockClock

from understudy.broker.broker import Broker
from understudy.broker.former_copies import FormerCopies
from understudy.broker.inner import InnerMessage
from understudy.broker.role import Role
from understudy.format.record import decode_record, encode_record
from understudy.remoting.codes import RequestCode
from understudy.store.status import PutStatus, QueryResult
from understudy.testkit.led.group import TOPIC, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

LEVEL = 2
DUE_SECONDS = 6


async def _send_delayed(group: Group, broker: Broker, body: bytes, properties: str = "", born_ms: str = "1") -> None:
    texts = f"DELAY\x01{LEVEL}\x02{properties}"
    values = ("p", "orders", "TBW102", "1", "0", "0", born_ms, "0", texts, "0", "false", "false")
    fields = dict(zip("abcdefghijkm", values, strict=True))
    assert (await group.ask(broker, RequestCode.SEND_MESSAGE_V2, fields, body)).code == 0


@pytest.mark.parametrize("keys", [{}, ALL], ids=["one copy", "all copies"])
def test_what_the_former_master_has_put_is_not_put_again(keys: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, keys) as group:
            first = group.brokers[1]
            await group.in_step()
            bodies = [b"%d" % number for number in range(5)]
            for body in bodies:
                await _send_delayed(group, first, body)
            await until(lambda: group.bodies(first) == bodies, DUE_SECONDS)
            later = [b"later %d" % number for number in range(5)]
            for body in later:
                await _send_delayed(group, first, body)
            await group.in_step()
            # A slave of the real system, or one that is elected soon after the last copies, knows of no progress.
            second = group.brokers[2]
            second.schedule_progress.cut({LEVEL: 0})
            await group.elect(2)
            await until(lambda: len(group.bodies(second)) >= len(bodies + later), DUE_SECONDS)
            await trio.sleep(DUE_SECONDS)
            assert group.bodies(second) == bodies + later
            assert second.schedule_progress.offsets[LEVEL] == len(bodies + later)

    run_seed(scenario, 1)


def test_a_replaced_master_does_not_wait_for_copies_of_what_was_due() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            broker, own_id = group.brokers[first], part(group, first).own_id
            values = ("p", TOPIC, "TBW102", "1", "0", "0", "1", "0", f"DELAY\x01{LEVEL}\x02", "0", "false", "false")
            fields = dict(zip("abcdefghijkm", values, strict=True))
            assert (await group.ask(first, RequestCode.SEND_MESSAGE_V2, fields, b"due")).code == 0
            group.cluster.partition([first], others(first))
            size = broker.store.max_physical_offset
            await until(lambda: broker.store.max_physical_offset > size, DUE_SECONDS)
            began = trio.current_time()
            await broker.change_role(Role("SLAVE", own_id, broker.role.epoch + 1, "another was elected"))
            assert trio.current_time() - began < 0.5
            assert broker.schedule_progress.offsets.get(LEVEL, 0) == 0, "nobody knows whether its copy stays"

    run_seed(scenario, 2)


def test_messages_that_were_sent_again_alike_are_each_put() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {}) as group:
            first, second = group.brokers[1], group.brokers[2]
            same = "UNIQ_KEY\x01same\x02"
            await _send_delayed(group, first, b"one", same)
            await until(lambda: group.bodies(first) == [b"one"], DUE_SECONDS)
            await _send_delayed(group, first, b"one", same, born_ms="2")
            await group.in_step()
            await group.elect(2)
            await until(lambda: group.bodies(second) == [b"one", b"one"], DUE_SECONDS)

    run_seed(scenario, 1)


class _Log:
    """One copy of the message in a log that is not safe yet."""

    def __init__(self, message: InnerMessage) -> None:
        self.record = encode_record(
            message.topic,
            message.queue_id,
            0,
            1000,
            message.body,
            message.properties,
            born_ms=message.born_ms,
            born_host=message.born_host,
        )
        self.safe, self.is_safe = trio.Event(), True
        self.waits_for: list[tuple[int, int]] = []
        self.put_now: list[InnerMessage] = []

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return queue_id == LEVEL - 1

    def query(self, topic: str, key: str, *limits: int) -> QueryResult:
        return QueryResult([memoryview(self.record)], 0, 0)

    async def until_safe(self, end: int, end_to_copy: int) -> bool:
        self.waits_for.append((end, end_to_copy))
        await self.safe.wait()
        return self.is_safe

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        self.put_now += messages
        return [PutStatus.PUT_OK] * len(messages)


def _message(unique: str) -> InnerMessage:
    texts = f"DELAY\x01{LEVEL}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02UNIQ_KEY\x01{unique}"
    return InnerMessage("orders", 0, b"body", texts.encode(), 1, b"\x7f\0\0\1\0\0\0\1")


async def test_progress_waits_until_a_copy_in_the_log_is_safe(autojump_clock: MockClock) -> None:
    delivered, waiting = _message("a"), _message("b")
    log = _Log(delivered)
    former = FormerCopies(cast(Any, log), log, log.until_safe, 18)
    found: list[PutStatus] = []

    async def put() -> None:
        found.extend(await former.put([delivered, waiting]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put)
        await trio.testing.wait_all_tasks_blocked()
        assert (found, log.put_now) == ([], [])
        log.safe.set()
    end = 1000 + decode_record(log.record).size_bytes
    assert log.waits_for == [(end, end)]
    assert found == [PutStatus.PUT_OK] * 2
    assert log.put_now == [waiting]
    assert await former.put([delivered]) == [PutStatus.PUT_OK]  # it came after one that was not put: another message
    assert log.put_now == [waiting, delivered]


async def test_progress_stays_where_nobody_can_say_that_the_copy_is_safe() -> None:
    delivered, waiting = _message("a"), _message("b")
    log = _Log(delivered)
    log.is_safe = False
    log.safe.set()
    former = FormerCopies(cast(Any, log), log, log.until_safe, 18)
    assert await former.put([delivered, waiting]) == [PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH] * 2
    assert log.put_now == []
