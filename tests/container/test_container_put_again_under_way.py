"""Deferred messages come back while who works them off has read past them; decisions that only op messages show."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import Pair, open_filled_pair
from test_container_put_again_done import commit, half_of
from test_container_put_again_once import SERVING, back, copied, delayed, end_half, half

from understudy.broker.redelivery import OwnLog
from understudy.format import names
from understudy.remoting.client import open_client
from understudy.remoting.codes import ResponseCode
from understudy.testkit.waiting import until

CHECKS = {"transactionCheckInterval": "60000", "transactionTimeOut": "6000"}


class SlowLog:
    """Has whoever waits for copies while a hole is open wait until :attr:`ends` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pair: Pair, *, safe: bool = True) -> None:
        self.began, self.ends = trio.Event(), trio.Event()
        until_safe = OwnLog.until_safe

        async def wait(own_log: OwnLog, end: int, to_copy: int) -> bool:
            if pair.master.store.hole is None:
                return await until_safe(own_log, end, to_copy)
            self.began.set()
            await self.ends.wait()
            return safe and await until_safe(own_log, end, to_copy)

        monkeypatch.setattr(OwnLog, "until_safe", wait)


async def lose_the_first_of_two(pair: Pair, first: str, second: str, flags: int) -> None:
    hole = pair.master.store.max_physical_offset
    assert await send_raw(pair, pair.master, b"D" * 900, first, flags=flags) == 0
    after = pair.master.store.max_physical_offset
    assert await send_raw(pair, pair.master, b"K" * 900, second, flags=flags) == 0
    await copied(pair)
    await pair.cluster.kill("c2")
    await pair.lose([hole], length=after - hole - 20)


def delivered(pair: Pair, letter: bytes) -> int:
    return [each.body for each in records(pair.master)].count(letter * 900)


@pytest.mark.parametrize("safe", [True, False])
def test_a_delayed_message_that_a_batch_under_way_has_passed_is_delivered_once(
    monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, messageIndexEnable="false") as pair:
            # Given a level that has read past a lost message, and whose batch waits for copies
            await lose_the_first_of_two(pair, delayed("k1", 6), delayed("k2", 6), 0)
            slow = SlowLog(monkeypatch, pair, safe=safe)
            await pair.cluster.restart("c1")
            await slow.began.wait()
            # When the lost one comes back, and the batch is done, or has to be read again
            await pair.cluster.restart("c2")
            await back(pair)
            slow.ends.set()
            await trio.sleep(300)
            # Then it is delivered, and once
            assert delivered(pair, b"D") == 1
            assert delivered(pair, b"K") >= 1
            assert pair.master.schedule_progress.offsets[6] == 2

    run(scenario)


@pytest.mark.parametrize("safe", [True, False])
def test_a_half_message_that_checks_under_way_have_passed_is_decided_once(
    monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, **CHECKS) as pair:
            # Given a round of checks that has read past a lost half message, and waits for copies
            await lose_the_first_of_two(pair, half("k1"), half("k2"), 4)
            slow = SlowLog(monkeypatch, pair, safe=safe)
            await pair.cluster.restart("c1")
            await slow.began.wait()
            # When the lost one comes back
            await pair.cluster.restart("c2")
            await back(pair)
            found = [each for each in records(pair.master, names.HALF_TOPIC) if each.properties["UNIQ_KEY"] == "k1"]
            # Then it has a copy that is checked, and whichever its producer decides about counts, once
            assert len(found) == 2
            slow.ends.set()
            await trio.sleep(1)
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert [await commit(pair, each) for each in found] == [0, 0]
            assert delivered(pair, b"D") == 1

    run(scenario)


@pytest.mark.parametrize("commits", [False, True])
def test_a_half_message_that_an_op_message_names_is_not_put_again(commits: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, **CHECKS, messageIndexEnable="false") as pair:
            # Given a half message that is decided, of which an op message tells, between two that are open
            assert await send_raw(pair, pair.master, b"open", half("k0"), flags=4) == 0
            hole = pair.master.store.max_physical_offset
            assert await send_raw(pair, pair.master, b"D" * 900, half("k1"), flags=4) == 0
            after = pair.master.store.max_physical_offset
            assert await send_raw(pair, pair.master, b"last", half("k2"), flags=4) == 0
            await end_half(pair, "k1", commit=commits)
            await trio.sleep(5)
            assert len(records(pair.master, names.HALF_OPERATION_TOPIC)) == 1
            await copied(pair)
            # When it is lost and passed
            await pair.cluster.kill("c2")
            await pair.lose([hole], length=after - hole - 20)
            await pair.cluster.restart("c1")
            await pair.online()
            await until(lambda: pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > 1, 300)
            # Then nobody is asked when it comes back, and a decision counts no more
            await pair.cluster.restart("c2")
            await back(pair)
            await trio.sleep(5)
            found = half_of(pair, "k1")
            assert [each.properties["UNIQ_KEY"] for each in records(pair.master, names.HALF_TOPIC)].count("k1") == 1
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                # without an index nothing tells whether it was given up: its sender is told to look
                assert await commit(pair, found) == ResponseCode.SYSTEM_ERROR
            assert delivered(pair, b"D") == int(commits)

    run(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_decision_about_the_old_place_counts_for_the_copy(restarted: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, **CHECKS) as pair:
            # Given a half message that was lost and passed, and is put again
            await lose_the_first_of_two(pair, half("k1"), half("k2"), 4)
            await pair.cluster.restart("c1")
            await pair.online()
            await until(lambda: pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > 1, 300)
            await pair.cluster.restart("c2")
            await back(pair)
            found = [each for each in records(pair.master, names.HALF_TOPIC) if each.properties["UNIQ_KEY"] == "k1"]
            assert len(found) == 2
            if restarted:
                await pair.cluster.stop("c1")
                await pair.cluster.restart("c1")
                await pair.online()
                await until(lambda: pair.master.transactions.opened.is_set(), 10)
            # When its producer decides about both places, then each decision counts for the same message
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await commit(pair, found[0]) == 0
                assert delivered(pair, b"D") == 1
                assert await commit(pair, found[1]) == 0
            assert delivered(pair, b"D") == 1

    run(scenario)
