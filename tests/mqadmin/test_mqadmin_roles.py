"""What operators see of roles and of a give-back: `brokerRoster` and `preOnlineReport` in virtual time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from mqadmin_rig import shell

from understudy.broker.admin import roles
from understudy.mqclient.errors import BrokerError
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.drills.ring import broker_of, start_ring
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

TOPIC = "orders"


def ready(cluster: SimCluster) -> bool:
    for broker_id in range(3):
        broker = broker_of(cluster, "g0", broker_id)
        if broker is None or broker.registration.isolated or len(broker.member_group.members or {}) < 3:
            return False
        if broker.role.is_slave and not broker.slave_sync.synced:
            return False
    return True


async def commit(cluster: SimCluster, broker_id: int, offset: int, group: str = "readers") -> None:
    broker = broker_of(cluster, "g0", broker_id)
    assert broker is not None
    broker.groups.get(group)
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    if broker_id == 0:
        broker.offsets.commit(group, TOPIC, 0, offset)  # as if messages had been there
    async with open_client(cluster.client_world("reader")) as client:
        if broker_id == 0:
            create_command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
            assert (await client.invoke(broker.identity.address, create_command, 5_000)).code == 0
            return
        answer = await client.invoke(broker.identity.address, request(RequestCode.UPDATE_CONSUMER_OFFSET, ext), 5_000)
        assert answer.code == 0, answer.remark


async def failover(cluster: SimCluster) -> tuple[str, str]:
    """Play one up to the moment when the slave acts; return the addresses of master and slave."""
    await start_ring(cluster)
    await until(lambda: ready(cluster), 60)
    await commit(cluster, 0, 3)
    await trio.sleep(4)
    master, slave = broker_of(cluster, "g0", 0), broker_of(cluster, "g0", 1)
    assert master is not None
    assert slave is not None
    await cluster.kill("c1")
    await until(lambda: "schedule" in slave.services.running(), 60)
    return master.identity.address, slave.identity.address


def run(scenario: Callable[[random.Random], Any]) -> None:
    run_seed(scenario, 3)


def test_the_roster_tells_what_runs_what_does_not_and_why() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a slave that acts
            _, slave = await failover(cluster)
            # when
            printed = await shell(cluster, f"brokerRoster -b {slave}")
            roster = json.loads(await shell(cluster, f"brokerRoster -b {slave}", as_json=True))
            # then
            assert "g0 1, active" in printed
            container = cluster.host("c2").container
            assert container is not None
            assert f"#Container\t{container.address}" in printed
            services = {row["name"]: row for row in roster["services"]}
            assert services["schedule"]["state"] == "running"
            assert services["schedule"]["reason"] == "acting: no master, and the smallest id of the group"
            assert services["metadata sync"]["state"] != "running"
            assert services["metadata sync"]["reason"] == "acting: there is no master to copy"
            assert services["pre-online"]["state"] == "ended"
            assert roster["members"].keys() == {"1", "2"}
            # and the other slave says whom it leaves the work to
            other = broker_of(cluster, "g0", 2)
            assert other is not None
            printed = await shell(cluster, f"brokerRoster -b {other.identity.address}")
            assert "not active (slave 1 has a smaller id)" in printed

    run(scenario)


@pytest.mark.parametrize("page_rows", [1, 10_000])
def test_the_report_shows_before_slave_merged_and_why(page_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "PAGE_ROWS", page_rows)

    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a group that went on at the acting slave
            master, _ = await failover(cluster)
            await commit(cluster, 1, 9)
            await commit(cluster, 1, 2, "others")
            # when the master is back
            await cluster.restart("c1")
            await until(lambda: ready(cluster), 60)
            # then
            printed = await shell(cluster, f"preOnlineReport -b {master}")
            (row,) = [line.split(maxsplit=6) for line in printed.splitlines() if "orders@readers" in line]
            assert ["1", "orders@readers", "0", "3", "9", "9", "the group went on at the acting slave"] == row
            assert "orders@others" in printed
            report = json.loads(await shell(cluster, f"preOnlineReport -b {master} -g readers", as_json=True))
            (row,) = report["rows"]
            assert (row["before"], row["slave"], row["merged"]) == (3, 9, 9)
            assert [each["brokerId"] for each in report["slaves"]] == [1, 2]
            # and still after a restart without a slave to ask
            for name in ("c1", "c2", "c3"):
                await cluster.kill(name)
            await trio.sleep(15)
            await cluster.restart("c1")
            again = broker_of(cluster, "g0", 0)
            assert again is not None
            await until(lambda: not again.registration.isolated, 60)
            assert "orders@readers" in await shell(cluster, f"preOnlineReport -b {master}")

    run(scenario)


def test_a_broker_that_never_came_back_has_no_report() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            address = f"{cluster.address('c1')}:10911"
            with pytest.raises(BrokerError, match="never come back"):
                await shell(cluster, f"preOnlineReport -b {address}")

    run(scenario)
