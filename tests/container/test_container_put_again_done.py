"""What a master passed without its lost messages ends where another one goes on; decisions find what was put again."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import TOPIC, Pair, open_filled_pair
from test_container_put_again import LOST, lose_the_end_of_a_queue_and_go_on
from test_container_put_again_once import SERVING, back, copied, delayed, half, open_pair_beside_h

from understudy.broker.role import Role
from understudy.container import put_again
from understudy.format import names
from understudy.format.record import Record
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.runtime import pace
from understudy.store.holes import Holes
from understudy.testkit.waiting import until


def half_of(pair: Pair, key: str) -> Record:
    """Return the newest copy of a half message."""
    return [each for each in records(pair.master, names.HALF_TOPIC) if each.properties["UNIQ_KEY"] == key][-1]


async def commit(pair: Pair, of: Record) -> int:
    header = {
        "producerGroup": "writers",
        "topic": TOPIC,
        "tranStateTableOffset": str(of.queue_offset),
        "commitLogOffset": str(of.physical_offset),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": of.properties["UNIQ_KEY"],
        "transactionId": of.properties["UNIQ_KEY"],
    }
    return (await pair.ask(pair.master, RequestCode.END_TRANSACTION, header)).code


def test_a_decision_that_names_the_old_place_of_what_was_put_again_decides_nothing_else() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, transactionCheckInterval="600000") as pair:
            hole = pair.master.store.max_physical_offset
            assert await send_raw(pair, pair.master, b"H" * 900, half("k1"), flags=4) == 0
            after = pair.master.store.max_physical_offset
            await send_raw(pair, pair.master, b"kept", "")
            old = half_of(pair, "k1")
            await copied(pair)
            await pair.serve_without(hole, after)
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                # given a half message that was put again, for another one has its queue offset
                assert await send_raw(pair, pair.master, b"new", half("k2"), flags=4) == 0
                await pair.cluster.restart("c2")
                await back(pair)
                new, again = half_of(pair, "k2"), half_of(pair, "k1")
                assert new.queue_offset == old.queue_offset != again.queue_offset
                # when its producer decides about it where it was, then it is told that this does not count
                assert await commit(pair, old) != 0
                await trio.sleep(10)
                bodies = [each.body for each in records(pair.master)]
                assert (bodies.count(b"H" * 900), bodies.count(b"new")) == (0, 0)
                # and both can be decided where they are
                assert (await commit(pair, new), await commit(pair, again)) == (0, 0)
                await trio.sleep(10)
                bodies = [each.body for each in records(pair.master)]
                assert (bodies.count(b"H" * 900), bodies.count(b"new")) == (1, 1)

    run(scenario)


async def serve_without(pair: Pair, level: int) -> None:
    """Have the master serve without the first of two messages of *level*, while its slave, which has both, is away."""
    hole = pair.master.store.max_physical_offset
    assert await send_raw(pair, pair.master, b"first" * 100, delayed("k0", level)) == 0
    after = pair.master.store.max_physical_offset
    assert await send_raw(pair, pair.master, b"second", delayed("k1", level)) == 0
    await copied(pair)
    await pair.cluster.kill("c2")
    await pair.lose([hole], length=after - hole - 20)
    await pair.cluster.restart("c1")
    await pair.online()
    await until(lambda: any(each[-1] == 0 for each in pair.master.store.holes.passed), 30)


def test_a_master_that_becomes_a_slave_passes_nothing_any_more() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            await serve_without(pair, 7)
            was = pair.master.schedule_progress.offsets.get(7, 0)
            await pair.master.change_role(Role("SLAVE", 2, 1, "test"))
            await until(lambda: all(each[-1] != 0 for each in pair.master.store.holes.passed), 30)
            # given progress that another master makes, and both roles once more
            pair.master.schedule_progress.update(7, was + 2)
            await pair.master.change_role(Role("SYNC_MASTER", 0, 2, "test"))
            await until(lambda: bool(pair.master.store.holes.passed), 30)
            assert (0, 7, was + 2, 0) in pair.master.store.holes.passed
            assert not [each for each in pair.master.store.holes.passed if each[:2] == (0, 7) and each[2] < was + 2]

    run(scenario)


def test_what_a_slave_delivered_after_its_master_had_served_without_it_is_not_delivered_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair_beside_h(source) as pair:
            cluster = pair.cluster
            # given a master that served without a message, and a slave that has it and acts when it falls due
            await serve_without(pair, 8)
            await cluster.kill("c1")
            await cluster.restart("c2")
            other = cluster.brokers("c2")["h"]
            await until(lambda: len(records(other)) == 2, 300)
            await trio.sleep(5)
            # when the master is back, and gets it back
            await cluster.restart("c1")
            await pair.online()
            await back(pair, 60)
            await trio.sleep(30)
            assert records(pair.master) == []
            assert len(records(other)) == 2

    run(scenario)


def test_what_was_put_again_is_durable_before_that_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, 4)
            placed, reached = Holes.placed, trio.Event()

            async def note(holes: Holes, *rest: Any) -> None:
                await pair.cluster.kill("c2")
                await placed(holes, *rest)
                reached.set()

            with monkeypatch.context() as patched:
                patched.setattr(Holes, "placed", note)
                await pair.cluster.restart("c2")
                await reached.wait()
                await pair.cluster.kill("c1", power=True)
            # when the power is lost right after the note, and the slave with all of it
            pair.cluster.host("c2").disk.wipe()
            await pair.cluster.restart("c1")
            await pair.online()
            found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
            assert [found.count(each) for each in LOST] == [1, 1, 1, 1]

    run(scenario)


def test_others_have_their_turn_between_two_messages_that_are_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = 0, list[int]()
    put = put_again.append

    def counted(*rest: Any) -> Any:
        seen.append(turns)
        return put(*rest)

    async def work() -> None:
        nonlocal turns
        while len(seen) < 4:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            await lose_the_end_of_a_queue_and_go_on(pair, 4)
            await pair.cluster.restart("c2")
            begin = Holes.begin_putting

            async def begun(holes: Holes, end: int) -> None:
                await begin(holes, end)
                nursery.start_soon(work)

            async with trio.open_nursery() as nursery:
                monkeypatch.setattr(Holes, "begin_putting", begun)
                monkeypatch.setattr(Holes, "placed", ended)
                monkeypatch.setattr(put_again, "append", counted)
                monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
                await done.wait()
                nursery.cancel_scope.cancel()

    placed, done = Holes.placed, trio.Event()

    async def ended(holes: Holes, *rest: Any) -> None:
        await placed(holes, *rest)
        done.set()

    run(scenario)
    assert len(seen) == 4
    assert seen[0] < seen[2] and seen[1] < seen[3]  # in which order two tasks have one turn is drawn
