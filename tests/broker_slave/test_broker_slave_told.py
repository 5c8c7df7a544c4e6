"""What clients commit at a slave while its master is there."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import open_pair, run

from understudy.broker.told_offsets import UNKNOWN, ToldOffsets
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.first_pull import first_pull
from understudy.testkit.sim.cluster import LinkQuality
from understudy.testkit.waiting import until

PLACE = ("orders@readers", 0)


def due(told: ToldOffsets, at_master: int) -> list[int]:
    return [offset for _, _, offset in told.due(lambda key, queue_id: at_master)]


def test_the_master_is_told_what_is_further_than_it_knows() -> None:
    for before in (-1, 3, UNKNOWN):
        told = ToldOffsets()
        told.note(*PLACE, 5, before)
        # its own clients may have moved it meanwhile, but not so far
        assert due(told, max(before, 4)) == [5]
        # and until it has taken it, it is told again
        assert due(told, max(before, 4)) == [5]
        told.told(*PLACE, 5)
        assert due(told, 5) == []


def test_a_place_that_is_further_at_the_master_is_left_as_it_is() -> None:
    told = ToldOffsets()
    told.note(*PLACE, 5, 3)
    assert due(told, 6) == []
    assert due(told, 3) == [], "it was forgotten"


def test_a_seek_back_at_the_master_is_not_undone() -> None:
    told = ToldOffsets()
    told.note(*PLACE, 5, 3)
    assert due(told, 1) == []


def test_what_a_client_commits_while_the_master_is_being_told_follows() -> None:
    told = ToldOffsets()
    told.note(*PLACE, 5, 3)
    assert due(told, 3) == [5]
    told.note(*PLACE, 7, 3)
    told.told(*PLACE, 5)
    assert due(told, 5) == [7]


def test_what_the_master_refuses_is_given_up() -> None:
    told = ToldOffsets()
    told.note(*PLACE, 5, 3)
    told.forget(*PLACE)
    assert due(told, 3) == []
    told.note(*PLACE, 5, 3)
    told.clear()
    assert due(told, 3) == []


def test_a_commit_at_a_slave_reaches_its_master_and_no_place_goes_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            # given a slave that has what its master has
            await pair.in_step(40, 3)
            # when a client with an old route commits at the slave, then the master has it soon
            await pair.commit(5, broker=pair.slave)
            await until(lambda: pair.master.offsets.query("readers", "orders", 0) == 5, 5)
            # when the master knows better, then it stays so, at both
            await pair.commit(8)
            await pair.commit(6, broker=pair.slave)
            await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 8, 5)
            assert pair.master.offsets.query("readers", "orders", 0) == 8

    run(scenario)


def test_a_commit_inside_a_pull_at_a_slave_reaches_its_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(40, 3)
            committing = {**first_pull("orders"), "sysFlag": "5", "commitOffset": "5"}
            assert (await pair.ask(pair.slave, RequestCode.PULL_MESSAGE, committing)).code == 0
            await until(lambda: pair.master.offsets.query("readers", "orders", 0) == 5, 5)

    run(scenario)


@pytest.mark.parametrize(
    ("meanwhile", "stands"),
    [
        pytest.param(None, 5, id="the pull's own commit counts"),
        pytest.param(7, 7, id="the group went on"),
        pytest.param(4, 4, id="the group was set back"),
    ],
)
def test_a_commit_inside_a_pull_that_waits_is_as_old_as_the_pull(meanwhile: int | None, stands: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(40, 3)
            # given a master that falls silent, so that a pull at the slave waits for what it says of the group
            pair.cluster.network.cut(pair.cluster.address("c1"), pair.cluster.address("c2"))
            committing = {**first_pull("orders"), "sysFlag": "5", "queueOffset": "5", "commitOffset": "5"}
            answered: list[int] = []

            async def pull() -> None:
                answered.append((await pair.ask(pair.slave, RequestCode.PULL_MESSAGE, committing)).code)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull)
                await trio.sleep(0.3)
                assert pair.slave.offsets.query("readers", "orders", 0) == 3
                assert answered == []
                # when the group commits again before that is over
                if meanwhile is not None:
                    await pair.commit(meanwhile, broker=pair.slave)
            # then the newest commit stands
            assert answered == [ResponseCode.SUCCESS]
            assert pair.slave.offsets.query("readers", "orders", 0) == stands

    run(scenario)


def test_a_commit_at_a_slave_is_not_undone_by_an_older_one_that_the_master_tells_meanwhile() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(40, 3)
            seen = set[int]()
            # given a client that committed at the master a moment before it goes on at the slave
            await pair.commit(4)
            await pair.commit(5, broker=pair.slave)
            # then the slave, which may act before its next look at the master, never says less than it was told
            for _ in range(200):
                seen.add(pair.slave.offsets.query("readers", "orders", 0))
                await trio.sleep(0.01)
            assert seen == {5}
            assert pair.master.offsets.query("readers", "orders", 0) == 5

    run(scenario)


def test_a_reset_at_the_master_is_taken_whatever_was_committed_at_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(40, 3)
            await pair.commit(4)
            pair.master.offsets.assign_reset("readers", "orders", 0, 4)
            await pair.commit(5, broker=pair.slave)
            await until(lambda: pair.slave.offsets.stamps == pair.master.offsets.stamps, 5)
            assert pair.slave.offsets.query("readers", "orders", 0) == 4

    run(scenario)


@pytest.mark.parametrize(
    ("stands", "then"),
    [
        pytest.param(3, 5, id="as the slave saw it"),
        pytest.param(4, 5, id="it moved, but not so far"),
        pytest.param(8, 8, id="it is further"),
        pytest.param(2, 2, id="it went back"),
    ],
)
def test_what_a_slave_passes_on_counts_only_where_the_group_has_not_moved_beside_it(stands: int, then: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(80)
            await pair.commit(stands)
            ext = {
                "consumerGroup": "readers",
                "topic": "orders",
                "queueId": "0",
                "commitOffset": "5",
                "seenOffset": "3",
            }
            assert (await pair.ask(pair.master, RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0
            assert pair.master.offsets.query("readers", "orders", 0) == then

    run(scenario)


def test_a_commit_that_is_on_its_way_over_a_slow_link_does_not_set_back_what_came_to_the_master_meanwhile() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(240, 3)
            slow = LinkQuality(delay_seconds=(0.3, 0.3))
            pair.cluster.network.set_link(pair.cluster.address("c1"), pair.cluster.address("c2"), slow)
            # given a client that commits at the slave, and at the master at any time after it
            for number in range(1, 13):
                offset = 3 + 2 * number
                await pair.commit(offset - 1, broker=pair.slave)
                await trio.sleep(0.1 * number)
                await pair.commit(offset)
                await trio.sleep(3)
                # then both go by the later one
                found = [broker.offsets.query("readers", "orders", 0) for broker in (pair.master, pair.slave)]
                assert found == [offset] * 2, f"{0.1 * number:g} s later"

    run(scenario)
