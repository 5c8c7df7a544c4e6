"""What came back to a master and is put again comes once: not what was done, and not twice when something fails."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import KEYS, TOPIC, Pair, open_filled_pair
from test_container_put_again import LOST, lose_the_end_of_a_queue_and_go_on

from understudy.broker.history_keeper import HistoryKeeper
from understudy.container.put_again import Putting
from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.pace import Pace
from understudy.store.holes import Holes
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

SERVING = {"enableSlaveActingMaster": "false"}


async def back(pair: Pair, seconds: float = 1200) -> None:
    await until(lambda: pair.master.store.hole is None and not pair.master.store.came_back(), seconds)


async def copied(pair: Pair) -> None:
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
    await trio.sleep(15)


def delayed(key: str, level: int) -> str:
    return f"UNIQ_KEY\x01{key}\x02DELAY\x01{level}\x02"


def half(key: str) -> str:
    return f"TRAN_MSG\x01true\x02PGROUP\x01writers\x02UNIQ_KEY\x01{key}\x02"


async def end_half(pair: Pair, key: str, *, commit: bool) -> None:
    (found,) = [each for each in records(pair.master, names.HALF_TOPIC) if each.properties["UNIQ_KEY"] == key]
    header = {
        "producerGroup": "writers",
        "topic": TOPIC,
        "tranStateTableOffset": str(found.queue_offset),
        "commitLogOffset": str(found.physical_offset),
        "commitOrRollback": "8" if commit else "12",
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }
    assert (await pair.ask(pair.master, RequestCode.END_TRANSACTION, header)).code == 0


@asynccontextmanager
async def open_pair_beside_h(source: random.Random) -> AsyncIterator[Pair]:
    """A pair, and *h*, a master of another group at the slave's host, to which a slave that acts takes messages."""
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        h = {**KEYS, "brokerName": "h", "totalReplicas": "1", **SERVING, "brokerId": "0"}
        await cluster.start_container("c1", [{**KEYS, "brokerId": "0", "brokerRole": "SYNC_MASTER"}])
        brokers = [{**KEYS, "brokerId": "1", "brokerRole": "SLAVE"}, {**h, "brokerRole": "ASYNC_MASTER"}]
        await cluster.start_container("c2", brokers)
        world = cluster.client_world()
        async with open_client(world) as client, open_producer(world, cluster.name_servers, "w") as producer:
            pair = Pair(cluster, client, producer)
            await pair.online()
            for each in (pair.master, cluster.brokers("c2")["h"]):
                asked = await pair.ask(each, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
                assert asked.code == 0
            await trio.sleep(5)
            yield pair


def test_what_the_acting_slave_delivered_elsewhere_is_not_delivered_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair_beside_h(source) as pair:
            cluster, other = pair.cluster, pair.cluster.brokers("c2")["h"]
            hole = pair.master.store.max_physical_offset
            assert await send_raw(pair, pair.master, b"first", delayed("k0", 5)) == 0
            after = pair.master.store.max_physical_offset
            assert await send_raw(pair, pair.master, b"second", delayed("k1", 5)) == 0
            await copied(pair)
            # given a message that the master has lost, and its slave has delivered
            await pair.lose([hole], length=after - hole - 20)
            await until(lambda: len(records(other)) == 2, 120)
            await trio.sleep(5)
            await cluster.restart("c1")
            assert pair.master.store.hole == hole
            await pair.online()
            await trio.sleep(30)
            assert pair.master.store.hole is None
            assert records(pair.master) == []

    run(scenario)


def test_what_rots_long_after_it_was_worked_off_is_left_alone() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, messageIndexEnable="false") as pair:
            places = [pair.master.store.max_physical_offset]
            assert await send_raw(pair, pair.master, b"H" * 900, half("k1"), flags=4) == 0
            await end_half(pair, "k1", commit=False)
            places.append(pair.master.store.max_physical_offset)
            assert await send_raw(pair, pair.master, b"D" * 900, delayed("k5", 1)) == 0
            await pair.producer.send(Message(TOPIC, b"after"))

            def passed() -> bool:
                return pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > 0

            await until(passed, 300)
            await trio.sleep(60)
            # given damage that is found when both were passed
            await pair.cluster.stop("c1")
            disk = pair.cluster.host("c1").disk
            for place in places:
                start = place - place % (1 << 16)
                at = place - start + 300
                path = f"/data/g-0/commitlog/{start:020d}"
                disk.damage(path, lambda data, at=at: data[:at] + b"rot" + data[at + 3 :])  # type: ignore[misc]
            await pair.cluster.restart("c1")
            await pair.online()
            pair.master.store.start_scrub()
            await until(lambda: pair.master.store.hole is not None, 30)
            await back(pair)
            await trio.sleep(30)
            assert [each.body for each in records(pair.master)].count(b"D" * 900) == 1
            assert len(records(pair.master, names.HALF_TOPIC)) == 1

    run(scenario)


def test_a_disk_that_refuses_the_note_makes_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, 4)
            placed, refused = Holes.placed, 0

            async def refuse(holes: Holes, *rest: Any) -> None:
                nonlocal refused
                refused += 1
                if refused <= 4:
                    raise OSError("no space left on device")
                await placed(holes, *rest)

            monkeypatch.setattr(Holes, "placed", refuse)
            await pair.cluster.restart("c2")
            await back(pair, 2000)
            found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
            assert [found.count(each) for each in LOST] == [1, 1, 1, 1]
            assert refused > 4

    run(scenario)


@pytest.mark.parametrize("power", [False, True])
def test_a_master_that_dies_before_the_note_puts_nothing_twice(monkeypatch: pytest.MonkeyPatch, power: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, 4)
            reached = trio.Event()

            async def hang(holes: Holes, *rest: Any) -> None:
                reached.set()
                await trio.sleep(5)
                raise OSError("gone")

            with monkeypatch.context() as patched:
                patched.setattr(Holes, "placed", hang)
                await pair.cluster.restart("c2")
                await reached.wait()
                await pair.cluster.kill("c1", power=power)
            await pair.cluster.restart("c1")
            await pair.online()
            await back(pair)
            found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
            assert [found.count(each) for each in LOST] == [1, 1, 1, 1]

    run(scenario)


def test_one_message_that_is_refused_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        lost = [b"a" * 3000, b"b" * 300, b"c" * 300]
        monkeypatch.setattr("test_container_put_again.LOST", lost)
        async with open_filled_pair(source, **SERVING) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, 3)

            async def allow(most: int) -> None:
                command = request(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=%d\n" % most)
                async with open_client(pair.cluster.client_world(f"most-{most}")) as client:
                    assert (await client.invoke(pair.master.identity.address, command, 5000)).code == 0

            def counts() -> list[int]:
                found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
                return [found.count(each) for each in lost]

            await allow(2000)
            await pair.cluster.restart("c2")
            await until(lambda: counts() == [0, 1, 1], 60)
            await trio.sleep(60)
            assert len(pair.master.store.came_back()) == 1
            # when it may be as long
            await allow(1 << 22)
            await back(pair, 2000)
            assert counts() == [1, 1, 1]

    run(scenario)


@pytest.mark.parametrize("kind", ["delayed", "half"])
def test_what_was_done_before_it_was_lost_is_not_put_again_behind_what_took_its_place(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, transactionCheckInterval="60000") as pair:
            flags = 0 if kind == "delayed" else 4
            if kind == "half":
                assert await send_raw(pair, pair.master, b"older", half("k0"), flags=4) == 0
            hole = pair.master.store.max_physical_offset
            text = delayed("k1", 1) if kind == "delayed" else half("k1")
            assert await send_raw(pair, pair.master, b"D" * 900, text, flags=flags) == 0
            after = pair.master.store.max_physical_offset
            if kind == "half":
                await end_half(pair, "k1", commit=True)

            def delivered() -> int:
                return [each.body for each in records(pair.master)].count(b"D" * 900)

            await until(lambda: delivered() == 1, 10)
            await copied(pair)
            await pair.serve_without(hole, after)
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                text = delayed("k2", 1) if kind == "delayed" else half("k2")
                assert await send_raw(pair, pair.master, b"new", text, flags=flags) == 0
            await pair.cluster.restart("c2")
            await back(pair)
            await trio.sleep(10)
            assert delivered() == 1
            keys = [each.properties["UNIQ_KEY"] for each in records(pair.master, names.HALF_TOPIC)]
            assert "k1" not in keys

    run(scenario)


def test_a_slave_that_was_told_waits_as_long_as_its_master_puts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            puts, ends = trio.Event(), trio.Event()
            run_putting = Putting.run

            async def put_slowly(putting: Putting, pace: Pace) -> None:
                puts.set()
                while not ends.is_set():
                    await trio.sleep(0.005)
                    await pace.breathe()
                await run_putting(putting, pace)

            monkeypatch.setattr(Putting, "run", put_slowly)
            # given a master that has much to look through before it is online
            await pair.lose([pair.starts[3] + 2_000])
            await until(lambda: "schedule" in pair.slave.services.running(), 60)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pair.cluster.restart, "c1")
                await puts.wait()
                # then its slave does not act once more
                try:
                    for _ in range(40):
                        await trio.sleep(1)
                        assert "schedule" not in pair.slave.services.running()
                finally:
                    ends.set()
            await pair.online()
            assert pair.slave.session.rules.reason.startswith("the master")

    run(scenario)


def test_a_slave_acts_again_while_the_disk_of_its_returning_master_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            go_on, refused = HistoryKeeper.go_on, trio.Event()

            async def refuse(keeper: HistoryKeeper) -> None:
                refused.set()
                raise OSError(errno.ENOSPC, "no space")

            # given a master that has told its slave of its return, and cannot write any more
            await pair.lose([])
            await until(lambda: "schedule" in pair.slave.services.running(), 60)
            monkeypatch.setattr(HistoryKeeper, "go_on", refuse)
            await pair.cluster.restart("c1")
            await refused.wait()
            assert "schedule" not in pair.slave.services.running()
            # then the slave does not wait for it
            await until(lambda: "schedule" in pair.slave.services.running(), 60)
            # and is relieved once it can
            monkeypatch.setattr(HistoryKeeper, "go_on", go_on)
            await pair.online()
            await until(lambda: "schedule" not in pair.slave.services.running(), 60)
            assert await send_raw(pair, pair.master, b"after", "") == 0

    run(scenario)
