"""Timer messages across the death and the return of their master: each comes once, none early, none is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, reading, records, run

from understudy.format.record import Record
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.waiting import until

SMALL = {"mappedFileSizeTimerLog": "4096", "recallMessageEnable": "true"}


async def keep(ring: Ring, name: str, delay_ms: int, *, wait: bool = True) -> str:
    """Send a timer message to the master of g0; return its handle."""
    message = Message(TOPIC, name.encode(), {"TIMER_DELAY_MS": str(delay_ms), "WAIT": str(wait).lower()})
    sent = await ring.producer.send(message, queue=MessageQueue(TOPIC, "g0", 0))
    assert sent.recall_handle is not None
    return sent.recall_handle


async def dead_master(ring: Ring, *, power: bool = False) -> None:
    await ring.cluster.kill("c1", power=power)
    slave = ring.broker("g0", 1)
    await until(lambda: "timer" in slave.services.running(), 10)


async def master_back(ring: Ring) -> None:
    await ring.cluster.restart("c1")
    await ring.online()
    slave = ring.broker("g0", 1)
    await until(lambda: "timer" not in slave.services.running(), 10)


def delivered(ring: Ring) -> list[Record]:
    """Return what stands in the topic at all masters: what consumers get, without what they get again."""
    return [record for group in GROUPS for record in records(ring.broker(group, 0))]


def bodies(found: Sequence[Record]) -> Counter[str]:
    return Counter(each.body.decode() for each in found)


def early(found: Sequence[Record]) -> list[str]:
    """Return what was stored for consumers before its second was over."""
    return [each.body.decode() for each in found if each.store_ms < int(each.properties["TIMER_OUT_MS"]) + 1_000]


@pytest.mark.covers("R63", "CT-26")
def test_timers_that_fall_due_meanwhile_come_once_from_the_slave_and_not_again_from_the_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SMALL) as ring, reading(ring) as received:
            # given timer messages for the next half minute, two of them taken back
            handles = [await keep(ring, f"{number}", 500 * number + 1) for number in range(60)]
            for number in (20, 50):
                assert await ring.producer.recall(TOPIC, handles[number])
            await trio.sleep(3)
            assert 0 < len(received) < 10
            # when the master is dead for a third of that time
            await dead_master(ring)
            await trio.sleep(10)
            by_slave = len(received)
            assert 20 < by_slave < 35
            # then its slave has passed the progress on when it is back
            await master_back(ring)
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            assert master.timer.progress.read >= slave.timer.progress.read
            assert master.timer.check().master_queue_offset >= 32
            await trio.sleep(25)
            assert bodies(delivered(ring)) == Counter(f"{number}" for number in range(60) if number not in (20, 50))
            assert early(delivered(ring)) == []
            # and its wheel holds nothing more, nor does that of the slave say that anything is overdue
            assert (master.timer.waiting, master.timer.behind) == (0, 0)
            assert slave.timer.progress.read.second_ms >= master.timer.progress.read.second_ms - 2_000

    run(scenario)


def test_what_the_slave_never_had_comes_when_the_master_is_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SMALL) as ring, reading(ring) as received:
            # given timer messages of which the slaves have no copy
            for number in range(10):
                await keep(ring, f"copied {number}", 8_000)
            await trio.sleep(2)
            for host in ("c2", "c3"):
                ring.cluster.network.cut(ring.cluster.address("c1"), ring.cluster.address(host))
            for number in range(10):
                await keep(ring, f"alone {number}", 1_000 * number + 500, wait=False)
            # when the master dies and the slave delivers what it has, past the seconds of the others
            await ring.cluster.kill("c1")
            for host in ("c2", "c3"):
                ring.cluster.network.mend(ring.cluster.address("c1"), ring.cluster.address(host))
            await until(lambda: "timer" in ring.broker("g0", 1).services.running(), 15)
            await until(lambda: len(received) >= 10, 20)
            await trio.sleep(2)
            copied = Counter(f"copied {number}" for number in range(10))
            assert Counter(each.body.decode() for each in received) == copied
            # then the others come with the master, once
            await master_back(ring)
            await trio.sleep(15)
            assert bodies(delivered(ring)) == copied + Counter(f"alone {number}" for number in range(10))
            assert early(delivered(ring)) == []

    run(scenario)


def test_far_timers_are_handed_on_by_the_slave_and_come_once() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {**SMALL, "timerRollWindowSlot": "10"}
        async with open_ring(source, keys) as ring, reading(ring) as received:
            # given messages that rest on their way, and a master that dies before the first rest ends
            for number in range(10):
                await keep(ring, f"{number}", 20_000 + 500 * number)
            await trio.sleep(2)
            await dead_master(ring)
            await trio.sleep(30)
            # then they came from another group in their second
            assert {each.body.decode() for each in received} == {f"{number}" for number in range(10)}
            # and the master, when it is back, knows of it
            await master_back(ring)
            await trio.sleep(15)
            assert bodies(delivered(ring)) == Counter(f"{number}" for number in range(10))
            assert early(delivered(ring)) == []

    run(scenario)


@pytest.mark.covers("CT-26", "R63")
@pytest.mark.parametrize("alive_seconds", [9, 12, 19])
def test_timers_that_rest_longer_than_the_wheel_are_kept_or_handed_on_once(alive_seconds: int) -> None:
    """Whether they rest when the master dies, or are on their way from the first or the second rest to the next."""

    async def scenario(source: random.Random) -> None:
        keys = {**SMALL, "timerRollWindowSlot": "10"}
        async with open_ring(source, keys) as ring, reading(ring) as received:
            # given messages that rest three or four times on their way
            wanted = {f"{number}" for number in range(20)}
            for number in range(20):
                await keep(ring, f"{number}", 30_000 + 700 * number)
            # when the master dies in the middle, and is back before the first of them is due
            await trio.sleep(alive_seconds)
            await dead_master(ring)
            await trio.sleep(5)
            await master_back(ring)
            assert received == []
            # then those whose rest ended meanwhile come from another group, the others from their own, each once
            handed_on = {
                record.properties["UNIQ_KEY"]
                for group in GROUPS
                if group != "g0"
                for record in records(ring.broker(group, 0), "rmq_sys_wheel_timer")
            }
            await trio.sleep(60)
            assert bodies(delivered(ring)) == Counter(wanted)
            assert early(delivered(ring)) == []
            elsewhere = {
                record.properties["UNIQ_KEY"]
                for group in GROUPS
                if group != "g0"
                for record in records(ring.broker(group, 0))
            }
            assert elsewhere == handed_on
            assert bool(handed_on) == (alive_seconds in (9, 19))
            late = [int(each.properties["TIMER_OUT_MS"]) + 3_000 < each.store_ms for each in delivered(ring)]
            assert not any(late)

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_two_deaths_at_any_time_lose_nothing_and_deliver_nothing_early(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {**SMALL, "flushDiskType": "SYNC_FLUSH"}) as ring, reading(ring):
            sent: set[str] = set()

            async def send() -> None:
                for number in range(40):
                    await keep(ring, f"{number}", source.randrange(1, 15_000))
                    sent.add(f"{number}")
                    await trio.sleep(source.uniform(0, 0.1))

            await send()
            for _ in range(2):
                await trio.sleep(source.uniform(0, 2))
                await dead_master(ring, power=source.random() < 0.5)
                await trio.sleep(source.uniform(0, 4))
                await master_back(ring)
            await trio.sleep(20)
            assert bodies(delivered(ring)).keys() == sent
            assert early(delivered(ring)) == []
            repeated = sum(bodies(delivered(ring)).values()) - len(sent)
            assert repeated <= 4, bodies(
                delivered(ring)
            )  # what was delivered in the moment of a death, before anybody knew

    run(scenario, seed)
