"""What an administrator does to offsets on purpose outlives the master that was told: deleted groups, and resets."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from slave_rig import Pair, open_pair, run

from understudy.broker.broker import Broker
from understudy.broker.offsets import OffsetTable
from understudy.format.json_dialect import dumps, loads
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.errors import RemotingError
from understudy.testkit.first_pull import first_pull
from understudy.testkit.waiting import until

ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}


async def reset(pair: Pair, offset: int, broker: Broker | None = None) -> None:
    ext = {"topic": "orders", "group": "readers", "timestamp": "0", "queueId": "0", "offset": str(offset)}
    answer = await pair.ask(broker or pair.master, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    assert answer.code == 0, answer.remark


async def pull(pair: Pair, broker: Broker, offset: int) -> Command:
    return await pair.ask(broker, RequestCode.PULL_MESSAGE, {**first_pull("orders"), "queueOffset": str(offset)})


async def delete_group(pair: Pair) -> None:
    ext = {"groupName": "readers", "cleanOffset": "true"}
    assert (await pair.ask(pair.master, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0


def at(broker: Broker) -> int:
    return broker.offsets.query("readers", "orders", 0)


async def acts(slave: Broker) -> None:
    await until(lambda: "schedule" in slave.services.running(), 20)


async def back(pair: Pair) -> None:
    """Restart the master; return when it serves and connections of its former life are gone."""
    await pair.cluster.restart("c1")
    with suppress(RemotingError):
        await pair.ask(pair.master, RequestCode.GET_BROKER_RUNTIME_INFO)


# --- groups --------------------------------------------------------------------------------------------------------


def test_the_offsets_of_a_deleted_group_go_at_the_slave_too() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(10, 3)
            await delete_group(pair)
            await until(lambda: at(pair.slave) == -1, 5)
            # and what a new group of that name commits follows
            await pair.commit(3)
            await until(lambda: at(pair.slave) == 3, 5)

    run(scenario)


@pytest.mark.parametrize("master_restarts", [False, True])
def test_a_slave_that_slept_through_it_forgets_the_former_group(master_restarts: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(10, 3)
            await trio.sleep(2)  # durable at the slave
            await pair.cluster.kill("c2")
            await delete_group(pair)
            if master_restarts:
                await trio.sleep(2)
                await pair.cluster.kill("c1", power=True)
                await pair.cluster.restart("c1")
            await pair.cluster.restart("c2")
            assert at(pair.slave) == 3
            await until(lambda: at(pair.slave) == -1, 20)

    run(scenario)


def test_a_returning_master_takes_no_offsets_of_a_deleted_group_from_a_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(10, 3)
            # given a slave that was cut off while the group was deleted
            pair.cluster.partition(["c1"], ["c2"])
            await delete_group(pair)
            await trio.sleep(2)
            await pair.cluster.kill("c1")
            await trio.sleep(5)
            pair.cluster.heal()
            assert at(pair.slave) == 3
            # when the master comes back through it
            await pair.cluster.restart("c1")
            await until(lambda: not pair.master.registration.isolated, 20)
            # then the group stays deleted, everywhere
            assert at(pair.master) == -1
            await until(lambda: at(pair.slave) == -1, 5)

    run(scenario)


def test_a_group_that_was_deleted_at_the_acting_slave_is_deleted_when_the_master_is_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(10, 3)
            await trio.sleep(2)
            await pair.cluster.kill("c1")
            await acts(pair.slave)
            ext = {"groupName": "readers", "cleanOffset": "true"}
            assert (await pair.ask(pair.slave, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)).code == 0
            await pair.cluster.restart("c1")
            await until(lambda: not pair.master.registration.isolated, 20)
            assert at(pair.master) == -1

    run(scenario)


# --- resets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
def test_an_answered_reset_is_told_after_the_master_has_died(power: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(40, 8)
            await trio.sleep(12)  # the log is durable
            await reset(pair, 2)
            await pair.cluster.kill("c1", power=power)
            await back(pair)
            # a consumer that still commits what it had is not heard, and learns of the reset with its next pull
            await pair.commit(9)
            assert at(pair.master) == 2
            answer = await pull(pair, pair.master, 9)
            assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
            # and once only, whatever happens then
            await trio.sleep(2)
            await pair.cluster.kill("c1", power=True)
            await back(pair)
            assert (await pull(pair, pair.master, 2)).code == 0

    run(scenario)


def test_the_acting_slave_tells_of_a_reset_that_its_master_answered_and_the_master_does_not_repeat_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(40, 8)
            await reset(pair, 2)
            await until(lambda: at(pair.slave) == 2, 5)
            await pair.cluster.kill("c1")
            await acts(pair.slave)
            answer = await pull(pair, pair.slave, 9)
            assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "2")
            await pair.commit(5, broker=pair.slave)
            # when the master is back
            await pair.cluster.restart("c1")
            await until(lambda: not pair.master.registration.isolated, 20)
            # then it goes on where the group has come since
            assert at(pair.master) == 5
            assert (await pull(pair, pair.master, 5)).code == 0

    run(scenario)


def test_a_reset_that_a_consumer_has_learnt_is_not_told_again_by_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(40, 8)
            await reset(pair, 2)
            await until(lambda: pair.slave.offsets.reset != {}, 5)
            assert (await pull(pair, pair.master, 9)).code == ResponseCode.PULL_OFFSET_MOVED
            await until(lambda: pair.slave.offsets.reset == {}, 5)
            await pair.cluster.kill("c1")
            await acts(pair.slave)
            assert (await pull(pair, pair.slave, 2)).code == 0

    run(scenario)


Step = tuple[str, int]


@given(st.lists(st.tuples(st.sampled_from(["reset", "learn", "copy"]), st.integers(0, 9)), max_size=12))
def test_a_slave_that_copies_knows_which_resets_wait_and_never_waits_for_one_that_was_learnt(steps: list[Step]) -> None:
    now = [0]
    master, slave = OffsetTable(lambda: now[0]), OffsetTable(lambda: now[0])

    def copy() -> None:
        content = loads(dumps(master.to_json()))
        stamps, pending = (
            {key: {int(q): n for q, n in rows.items()} for key, rows in content.get(name, {}).items()}
            for name in ("resetStampTable", "pendingResetTable")
        )
        slave.learn_resets(stamps, pending)
        slave.take(master.committed, stamps, master.version)

    for what, offset in steps:
        now[0] += 1
        if what == "reset":
            master.assign_reset("g", "t", offset % 2, offset)
        elif what == "learn":
            master.take_reset("g", "t", offset % 2)
        else:
            copy()
    copy()
    assert slave.reset == master.reset
    assert slave.committed == master.committed
