"""A disk that is full when a log must be cut: nothing goes, one line says why, and with room the broker follows."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import ALL, SYNC, open_group

from understudy.broker.role import Role
from understudy.testkit.sim.determinism import run_seed

FULL_SECONDS = 20


@pytest.mark.parametrize("keys", [ALL, ALL | SYNC], ids=["later", "at once"])
def test_a_full_disk_keeps_a_log_that_must_be_cut_until_there_is_room(
    keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        waiting = {"slaveTimeout": "500", "haMaxTimeSlaveNotCatchup": "60000"}
        async with open_group(source, keys | waiting) as group:
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
            end, disk = old.store.max_physical_offset, cluster.host("c1").disk
            disk.used_bytes = disk.total_bytes
            cluster.network.heal()
            await old.change_role(Role("SLAVE", 1, group.epoch, "elected another"))
            caplog.clear()
            old.replication.follow(new.identity.address, new.identity.ha_address)
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
