"""A disk that is full or slow when a log must be cut: nothing goes that must stay, and the broker follows at last."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import ALL, SYNC, Group, open_group

from understudy.broker.role import Role
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

FULL_SECONDS = 20
WAITING = {"slaveTimeout": "500", "haMaxTimeSlaveNotCatchup": "60000"}


async def must_cut(group: Group) -> None:
    """Have broker 1 hold one message that its successor, broker 2, never had; it does not follow it yet."""
    old = group.brokers[1]
    await group.in_step()
    assert await group.send(old, b"kept") == 0
    cluster = group.cluster
    cluster.network.partition({cluster.address("c1")}, {cluster.address("c2"), cluster.address("c3")})
    group.master = 0
    assert await group.send(old, b"lost") == 12
    del group.brokers[1]
    new = await group.elect(2)
    assert await group.send(new, b"new") == 0
    group.brokers[1] = old
    cluster.network.heal()
    await old.change_role(Role("SLAVE", 1, group.epoch, "elected another"))


@pytest.mark.parametrize("keys", [ALL, ALL | SYNC], ids=["later", "at once"])
def test_a_full_disk_keeps_a_log_that_must_be_cut_until_there_is_room(
    keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, keys | WAITING) as group:
            disk = group.cluster.host("c1").disk
            await must_cut(group)
            old, new = group.brokers[1], group.brokers[2]
            end = old.store.max_physical_offset
            disk.used_bytes = disk.total_bytes
            caplog.clear()
            group.let_follow(1, new)
            await trio.sleep(FULL_SECONDS)
            # then what it has stays, what is confirmed is read, and each try says why it came to nothing
            assert old.store.max_physical_offset == end
            assert b"lost" in bytes(old.store.slice(0, end))
            assert group.bodies(old) == [b"kept"]
            whys = [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()]
            assert whys and all("No space left on device" in why for why in whys)
            assert len(whys) < FULL_SECONDS
            slave = old.replication.slave
            assert slave is not None and "No space left on device" in slave.progress().refusal
            # when there is room again
            disk.used_bytes = 0
            await group.in_step()
            assert [group.bodies(broker) for broker in group.brokers.values()] == [[b"kept", b"new"]] * 3

    run_seed(scenario, 5)


@pytest.mark.covers("R217", "HA-03")
@pytest.mark.parametrize("leads", [2, 3, 1])
def test_a_cut_that_another_election_stops_takes_nothing_that_comes_later(leads: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL | WAITING) as group:
            disk = group.cluster.host("c1").disk
            await must_cut(group)
            old, new = group.brokers[1], group.brokers[2]
            # given a slave whose disk is slow when it cuts its log
            end, disk.sync_seconds = old.store.max_physical_offset, 0.5
            group.let_follow(1, new)
            await until(lambda: disk.exists("/data/store/log.truncate") and old.store.max_physical_offset < end, 30)
            # when another master is elected meanwhile, and all have its messages
            disk.sync_seconds = 0.0
            master = await group.elect(leads)
            assert await group.send(master, b"newer") == 0
            await group.in_step()
            logs = group.logs()
            # then a start finds them
            group.master = 0
            await group.stop(1)
            back = await group.start(1)
            assert group.logs()[-1] == logs[0]
            assert b"newer" in bytes(back.store.slice(0, 1 << 20))

    run_seed(scenario, 5)
