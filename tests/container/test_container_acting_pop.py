"""Pops across the death and the return of their master: what nobody acknowledged comes again, nothing else does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import attrs
import pytest
import trio
from acting_pop_rig import (
    GROUP,
    INVISIBLE_MS,
    MESSAGES,
    RETRY,
    came_back,
    dead_master,
    found_anew,
    master_back,
    pop_at_slave,
    pop_from,
    popped_and_half_acknowledged,
)
from container_ring import TOPIC, Ring, cut_between, open_ring, records, run

from understudy.broker.inner import InnerMessage
from understudy.container.escape.local import LocalNeighbour
from understudy.format import names
from understudy.format.properties import format_properties
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, change_invisible, pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.store.status import PutStatus
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.waiting import until


@pytest.mark.parametrize("pause_seconds", [2, 11.5, 12.5])
@pytest.mark.covers("CT-32", "CT-34", "R19")
def test_what_was_popped_comes_again_at_a_master_that_lives(pause_seconds: float) -> None:
    """Whether the check points are in the timer or in the revive topic when the master dies."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given messages that were popped, half of them acknowledged; when their master dies
            left = await popped_and_half_acknowledged(ring)
            await trio.sleep(pause_seconds)
            await dead_master(ring)
            # then the others, and they alone, come again at masters that live
            await trio.sleep(25)
            living = [group for group in GROUPS if group != "g0"]
            found = Counter(
                record.body.decode() for group in living for record in records(ring.broker(group, 0), RETRY)
            )
            before = Counter(record.body.decode() for record in records(ring.broker("g0", 1), RETRY))
            assert found + before == Counter(left)
            # where consumers get them, each once
            got = [each for group in living for each in await pop_from(ring, group, 60_000)]
            assert Counter(each.message.body.decode() for each in got) == found
            for each in got:
                await ack(ring.producer.session, each)
            # and the master that comes back does not bring them again
            await master_back(ring)
            await trio.sleep(30)
            assert came_back(ring) == Counter(left)

    run(scenario)


def test_what_is_due_after_the_return_comes_from_the_master_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            left = await popped_and_half_acknowledged(ring)
            await trio.sleep(2)
            await dead_master(ring)
            await trio.sleep(1)
            await master_back(ring)
            await trio.sleep(40)
            assert came_back(ring) == Counter(left)

    run(scenario)


async def everything_popped(ring: Ring, group: str) -> Counter[str]:
    """Pop from the master of *group* until nothing comes, acknowledge all; return what came."""
    found: Counter[str] = Counter()
    quiet = 0
    while quiet < 12:
        popped = await pop_from(ring, group, 60_000)
        for each in popped:
            await ack(ring.producer.session, each)
        found.update(each.message.body.decode() for each in popped)
        quiet = 0 if popped else quiet + 1
        await trio.sleep(0.1)
    return found


@pytest.mark.parametrize("back_after_seconds", [1, 10.5, 25])
@pytest.mark.covers("CT-31", "CT-32", "R53")
def test_the_acting_slave_hands_out_and_takes_acknowledgements(back_after_seconds: float) -> None:
    """Whether the check points are due after the master's return, at the same time or long before."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given messages of which one half was popped before the master died
            left = await popped_and_half_acknowledged(ring)
            for number in range(MESSAGES, 2 * MESSAGES):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", number % 2))
            early = await pop(
                ring.producer.session,
                PopRequest(
                    GROUP, subscription(TOPIC, "*", 1), "g0", max_messages=8, invisible_ms=INVISIBLE_MS, hold_ms=0
                ),
            )
            assert len(early) == 8
            await trio.sleep(1)
            await dead_master(ring)
            # when the slave is asked for the others, and takes acknowledgements of both
            late = await pop_at_slave(ring, MESSAGES - 8)
            assert len(late) == MESSAGES - 8
            for each in (*early[::2], *late[::2]):
                await ack(ring.producer.session, each)
            await trio.sleep(back_after_seconds)
            await master_back(ring)
            # then also the returned master takes some
            for each in (early[1], late[1]) if back_after_seconds < 5 else ():
                await ack(ring.producer.session, each)
            await trio.sleep(30)
            # and what was acknowledged nowhere comes again, each once, and nothing else does
            expected = left | {each.message.body.decode() for each in (*early[1::2], *late[1::2])}
            if back_after_seconds < 5:
                expected -= {early[1].message.body.decode(), late[1].message.body.decode()}
            assert came_back(ring) == Counter(expected)
            came: Counter[str] = Counter()
            for group in GROUPS:
                came += await everything_popped(ring, group)
            assert came == Counter(expected)

    run(scenario)


@pytest.mark.covers("CT-31")
def test_a_change_of_the_invisible_time_at_the_acting_slave_counts_after_the_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given two messages popped at the master, two at its slave
            for number in range(2):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            popped = await pop_from(ring, "g0")
            for number in range(2, 4):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            await trio.sleep(1)
            await dead_master(ring)
            popped += await pop_at_slave(ring, 2)
            # when the slave is told to wait for one of each for longer, and the master is back
            changed = [await change_invisible(ring.producer.session, each, 60_000) for each in popped[::2]]
            await master_back(ring)
            for each in (*popped[1::2], changed[0]):
                await ack(ring.producer.session, each)
            # then only the one that nobody acknowledged comes again, and only when its new time is over
            await trio.sleep(30)
            assert came_back(ring) == Counter()
            await trio.sleep(40)
            assert came_back(ring) == Counter({changed[1].message.body.decode(): 1})

    run(scenario)


@pytest.mark.covers("PP-15")
def test_what_was_popped_in_order_goes_on_at_the_acting_slave_and_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            for number in range(6):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            wanted = PopRequest(
                GROUP,
                subscription(TOPIC, "*", 1),
                "g0",
                queue_id=0,
                max_messages=2,
                invisible_ms=30_000,
                hold_ms=0,
                in_order=True,
            )
            # given two messages that the master handed out, one of them acknowledged
            first = await pop(ring.producer.session, wanted)
            await ack(ring.producer.session, first[0])
            await trio.sleep(2)
            await dead_master(ring)
            # when the slave takes the other acknowledgement, hands out the next two, and hears of one
            while True:
                try:
                    assert await pop(ring.producer.session, wanted) == []  # still closed
                    break
                except ClientError:
                    await found_anew(ring)
            await ack(ring.producer.session, first[1])
            second = await pop(ring.producer.session, wanted)
            assert [each.message.body for each in second] == [b"2", b"3"]
            await ack(ring.producer.session, second[0])
            await master_back(ring)
            # then the master knows that one of them is with its consumer
            assert await pop(ring.producer.session, wanted) == []
            await ack(ring.producer.session, second[1])
            third = await pop(ring.producer.session, wanted)
            assert [each.message.body for each in third] == [b"4", b"5"]

    run(scenario)


@pytest.mark.covers("CT-31")
def test_a_slave_that_does_not_act_hands_out_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            popped_at = ring.broker("g0", 1)
            ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "8", "invisibleTime": "60000"}
            ext |= {"pollTime": "0", "initMode": "0", "bornTime": "0"}
            answer = await ring.ask(popped_at, RequestCode.POP_MESSAGE, ext)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert popped_at.acting_pops.empty

    run(scenario)


def test_a_check_point_that_the_master_had_delivered_is_not_worked_off_twice() -> None:
    """The slave's copy of the timer may be half a second behind its copy of the log."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given check points that came out of the timer before the master died
            await popped_and_half_acknowledged(ring)
            await trio.sleep(12.5)
            slave = ring.broker("g0", 1)
            assert records(slave, slave.pops.log.topic)
            revive = slave.pops.log.topic
            (entry,) = [
                record
                for record in records(slave, names.TIMER_TOPIC)
                if record.properties["TAGS"] == "ck" and record.properties["REAL_TOPIC"] == revive
            ][:1]
            due = InnerMessage(revive, int(entry.properties["REAL_QID"]), entry.body, b"", entry.born_ms, b"")
            due = attrs.evolve(due, properties=format_properties(entry.properties).encode())
            await dead_master(ring)
            await until(lambda: slave.session.rules.acting, 20)
            # when the slave's timer delivers one of them again, then it goes nowhere
            assert await slave.session.rules.put([due]) == [PutStatus.PUT_OK]
            assert slave.acting_pops.empty

    run(scenario)


def test_a_slave_that_begins_to_act_hands_out_nothing_that_its_log_shows_as_handed_out() -> None:
    """The log is copied at once, offsets twice a second."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await popped_and_half_acknowledged(ring)
            slave = ring.broker("g0", 1)
            await until(lambda: slave.store.max_physical_offset == ring.broker("g0", 0).store.max_physical_offset, 0.2)
            known = [slave.offsets.query(GROUP, TOPIC, queue) for queue in (0, 1)]
            await ring.cluster.kill("c1")
            assert known != [MESSAGES // 2] * 2
            await until(slave.pops.serves, 20)
            assert [slave.offsets.query(GROUP, TOPIC, queue) for queue in (0, 1)] == [MESSAGES // 2] * 2

    run(scenario)


def test_a_slave_that_stands_back_brings_back_nothing_popped_after_it_has_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put, under_way = LocalNeighbour.put, set[int]()

    async def put_slowly(
        self: LocalNeighbour, messages: Sequence[InnerMessage], may: Callable[[], bool]
    ) -> list[PutStatus]:
        if messages[0].topic != RETRY:
            return await put(self, messages, may)
        under_way.add(id(messages))
        try:
            statuses = await put(self, messages, may)
            await trio.sleep(2.5)
            return statuses
        finally:
            under_way.remove(id(messages))

    monkeypatch.setattr(LocalNeighbour, "put", put_slowly)

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a slave that acts, for the smaller one is cut off from the name server
            for number in range(MESSAGES):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", number % 2))
            assert len(await pop_from(ring, "g0", 60_000)) == MESSAGES
            await trio.sleep(2)
            first, second = ring.broker("g0", 1), ring.broker("g0", 2)
            cut_between(ring, "c2", "n1")
            await ring.cluster.kill("c1")
            await until(lambda: "pop revive" in second.services.running(), 40)
            # when that one comes while popped messages are on their way back
            await until(lambda: bool(under_way), 90)
            comes = {"successorId": "1", "successorAddress": first.identity.address}
            answer = await ring.ask(second, RequestCode.EXCHANGE_BROKER_HA_INFO, comes)
            assert (answer.code, under_way) == (0, set())
            # then whatever was on its way had ended when it was answered, and no more follows
            back = records(ring.broker("g2", 0), RETRY)
            assert back
            await trio.sleep(5)
            assert records(ring.broker("g2", 0), RETRY) == back

    run(scenario)
