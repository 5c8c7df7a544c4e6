"""Messages that come back when others have their places in the queues are put at the ends of those once more."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import TOPIC, Pair, content, open_filled_pair

from understudy.broker.broker import Broker
from understudy.container.preonline import holes
from understudy.container.preonline.handshake import Member
from understudy.format import names
from understudy.format.record import decode_records
from understudy.mqclient.message import Message
from understudy.remoting.client import open_client
from understudy.store.holes import Holes
from understudy.store.repair import Repair, Repairs
from understudy.testkit.waiting import until

LOST, NEW = [b"lost %d" % number * 200 for number in range(4)], b"new"


async def whole(pair: Pair) -> None:
    """Wait until everything is back, where readers find it, and copied."""
    await until(lambda: pair.master.store.hole is None and not pair.master.store.came_back(), 60)
    await until(lambda: content(pair.slave) == content(pair.master), 30)


async def lose_the_end_of_a_queue_and_go_on(pair: Pair, count: int = 1) -> int:
    """Lose the last *count* messages of a queue while the slave is away, and let another one take the first place."""
    queue, other = (await pair.producer.queues(TOPIC))[:2]
    hole = pair.master.store.max_physical_offset
    for body in LOST[:count]:
        await pair.producer.send(Message(TOPIC, body, {"KEYS": "k"}), queue=queue)
    after = pair.master.store.max_physical_offset
    await pair.producer.send(Message(TOPIC, b"kept"), queue=other)
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
    await trio.sleep(15)
    await pair.serve_without(hole, after, spared=100)
    async with open_client(pair.cluster.client_world("later")) as pair.client:
        assert await send_raw(pair, pair.master, NEW, "", queue_id=queue.queue_id) == 0
    assert pair.master.store.hole == hole
    return queue.queue_id


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("acts", ["false", "true"])
def test_a_message_that_comes_back_late_is_read_behind_those_that_came_meanwhile(acts: str, count: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster=acts) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, count)
            # when the slave that has the lost message is back
            await pair.cluster.restart("c2")
            await whole(pair)
            # then they are the last ones of their queue, once, and all others are where they were
            for broker in (pair.master, pair.slave):
                found = [each for each in records(broker) if each.queue_id == queue_id]
                assert [each.body for each in found[-1 - count :]] == [NEW, *LOST[:count]]
                assert len(records(broker)) == 12 + 2 + count
                assert found[-1].properties["KEYS"] == "k"

    run(scenario)


def test_it_is_put_again_once_when_the_master_gets_it_back_in_a_later_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair)
            await trio.sleep(15)
            await pair.cluster.stop("c1")
            await pair.cluster.restart("c2")
            await pair.cluster.restart("c1")
            await pair.online()
            for _ in range(2):
                assert pair.master.store.hole is None
                found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
                assert found[-2:] == [NEW, LOST[0]]
                assert found.count(LOST[0]) == 1
                await until(lambda: content(pair.slave) == content(pair.master), 30)
                await pair.cluster.stop("c1")
                await pair.cluster.restart("c1")
                await pair.online()

    run(scenario)


def check_found_once(pair: Pair, queue_id: int) -> None:
    """Check that what was lost is the last message of its queue, and is there once."""
    for broker in (pair.master, pair.slave):
        found = [each.body for each in records(broker) if each.queue_id == queue_id]
        assert found[-2:] == [NEW, LOST[0]]
        assert found.count(LOST[0]) == 1


def test_a_master_that_dies_between_writing_and_entering_it_puts_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair)
            reached = trio.Event()

            async def hang(repairs: Repairs, work: Repair) -> None:
                reached.set()
                await trio.sleep_forever()

            with monkeypatch.context() as patched:
                patched.setattr(Repairs, "enter", hang)
                await pair.cluster.restart("c2")
                await reached.wait()
                await pair.cluster.kill("c1")
            await pair.cluster.restart("c1")
            await pair.online()
            await whole(pair)
            check_found_once(pair, queue_id)

    run(scenario)


def test_a_disk_that_refuses_once_to_have_it_entered_delays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false") as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair)
            begin, refused = Holes.begin_again, list[int]()

            async def refuse(holes: Holes, start: int) -> None:
                if not refused:
                    refused.append(start)
                    raise OSError("no space left on device")
                await begin(holes, start)

            monkeypatch.setattr(Holes, "begin_again", refuse)
            await pair.cluster.restart("c2")
            await whole(pair)
            assert refused
            check_found_once(pair, queue_id)

    run(scenario)


def test_what_is_refused_is_put_again_when_the_store_takes_messages() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false") as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair)
            pair.master.store.set_writable(False, "the disk is full")
            await pair.cluster.restart("c2")
            await until(lambda: pair.master.store.hole is None, 60)
            await trio.sleep(60)
            assert pair.master.store.came_back()
            assert LOST[0] not in [each.body for each in records(pair.master)]
            pair.master.store.set_writable(True, "the disk is full")
            await until(lambda: not pair.master.store.came_back(), 60)
            await whole(pair)
            check_found_once(pair, queue_id)

    run(scenario)


def test_what_a_return_had_no_time_to_enter_is_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, preOnlineMaxWaitMillis="20000") as pair:
            queue, other = (await pair.producer.queues(TOPIC))[:2]
            hole = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, LOST[0]), queue=queue)
            for _ in range(12):
                await pair.producer.send(Message(TOPIC, source.randbytes(12_000)), queue=other)
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.lose([hole], length=900)
            # given a slave whose second answer, while it is written, takes longer than the master waits
            read, of_the_hole, slow = holes.read_log, 0, True

            async def read_slowly(broker: Broker, member: Member, offset: int, **named: Any) -> Any:
                nonlocal of_the_hole, slow
                of_the_hole += offset == hole
                if offset != hole and of_the_hole == 2 and slow:
                    slow = False
                    await trio.sleep(25)
                return await read(broker, member, offset, **named)

            monkeypatch.setattr(holes, "read_log", read_slowly)
            await pair.cluster.restart("c1")
            await pair.online()
            assert not slow
            # when it is gone before it is asked again, and another message gets the place
            await pair.cluster.kill("c2")
            assert pair.master.store.hole == hole
            await until(lambda: pair.master.store.writable and not pair.master.replication.takes_nothing_yet, 10)
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, NEW, "", queue_id=queue.queue_id) == 0
            await pair.cluster.restart("c2")
            await whole(pair)
            check_found_once(pair, queue.queue_id)

    run(scenario)


def test_what_the_levels_passed_while_it_was_missing_is_delivered_and_nothing_twice() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false") as pair:
            hole = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, b"early", {"DELAY": "1"}))
            await pair.producer.send(Message(TOPIC, b"late", {"DELAY": "5"}))
            after = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, b"kept", {"DELAY": "5"}))
            await pair.producer.send(Message(TOPIC, b"kept too", {"DELAY": "1"}))
            await trio.sleep(15)
            assert [each.body for each in records(pair.master)].count(b"early") == 1
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await pair.cluster.kill("c2")
            await pair.lose([hole], length=after - hole - 20)
            # given a level that goes on behind what is missing
            await pair.cluster.restart("c1")
            await pair.online()
            await until(lambda: b"kept" in [each.body for each in records(pair.master)], 90)
            assert pair.master.store.hole == hole
            await pair.cluster.restart("c2")
            await whole(pair)
            bodies = [each.body for each in records(pair.slave)]
            assert [bodies.count(each) for each in (b"early", b"late", b"kept")] == [1, 1, 1]

    run(scenario)


def test_a_half_message_that_was_passed_while_it_was_missing_stands_at_the_end_of_its_queue() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false", transactionCheckInterval="60000") as pair:
            hole = pair.master.store.max_physical_offset
            half = {"TRAN_MSG": "true", "PGROUP": "writers", "UNIQ_KEY": "k1"}
            properties = "".join(f"{name}\x01{value}\x02" for name, value in half.items())
            assert await send_raw(pair, pair.master, b"half", properties, flags=4) == 0
            after = pair.master.store.max_physical_offset
            others = {**half, "UNIQ_KEY": "k2"}
            properties = "".join(f"{name}\x01{value}\x02" for name, value in others.items())
            assert await send_raw(pair, pair.master, b"half too", properties, flags=4) == 0
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.cluster.kill("c2")
            await pair.lose([hole], length=after - hole - 20)
            await pair.cluster.restart("c1")
            await pair.online()

            def passed() -> bool:
                return pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > 0

            await until(passed, 300)
            assert pair.master.store.hole == hole
            await pair.cluster.restart("c2")
            await whole(pair)
            end = pair.master.store.max_queue_offset(names.HALF_TOPIC, 0)
            got = pair.master.store.get(names.HALF_TOPIC, 0, 0, 32, 1 << 20)
            keys = [each.properties["UNIQ_KEY"] for part in got.parts for each in decode_records(part)]
            assert keys[-1] == "k1"
            assert len(keys) == end

    run(scenario)
