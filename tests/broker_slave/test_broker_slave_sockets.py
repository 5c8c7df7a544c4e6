"""A replica group over real sockets and real files: copies, tables, status, and a slave that is ahead."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.broker.broker import Broker
from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.container.hosted import BrokerIdentity
from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.background import open_background
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

SYNC = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}


def slave_keys(cluster: LocalCluster, broker_id: int = 1) -> dict[str, str]:
    folder = f"{cluster._folder}/slave-{broker_id}"
    return {
        "brokerRole": "SLAVE",
        "brokerId": str(broker_id),
        "storePathRootDir": folder,
        "storePathCommitLog": f"{folder}/commitlog",
        "slaveReadEnable": "true",
    }


async def status_of(broker: Broker) -> Any:
    async with open_client(real_world()) as client:
        answer = await client.invoke(broker.identity.address, request(RequestCode.GET_BROKER_HA_STATUS), 5_000)
    assert answer.code == 0
    return loads(answer.body)


@pytest.mark.covers("R112")
async def test_a_master_with_two_slaves() -> None:
    async with LocalCluster(0) as cluster:
        master = await cluster.add_broker("broker-a", SYNC)
        slaves = [await cluster.add_broker("broker-a", slave_keys(cluster, number)) for number in (1, 2)]
        async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
            await until(
                lambda: master.replication.master is not None and master.replication.master.connection_count == 2
            )
            for number in range(30):
                result = await producer.send(Message("orders", b"n%d" % number), timeout_ms=10_000)
                assert "SEND_OK" == result.status.value
        master.groups.get("readers")
        master.offsets.commit("readers", "orders", 0, 5)
        end = master.store.max_physical_offset
        for slave in slaves:
            await until(lambda: slave.store.max_physical_offset == end)  # noqa: B023
            await until(lambda: slave.offsets.query("readers", "orders", 0) == 5)  # noqa: B023
            assert bytes(slave.store.slice(0, end)) == bytes(master.store.slice(0, end))
            await until(lambda: slave.topics.get("orders") == master.topics.get("orders"))  # noqa: B023
        await until(lambda: master.replication.copied(3) == end)
        status = await status_of(master)
        assert [end, end] == [each["slaveAckOffset"] for each in status["haConnectionInfo"]]
        assert 2 == status["inSyncSlaveNums"]


async def test_a_slave_that_is_ahead_is_cut_off_and_counts_for_nothing() -> None:
    async with LocalCluster(0) as cluster:
        # given a slave with more than its master has: the master's store was lost
        lost = f"{cluster._folder}/lost"
        first = await cluster.add_broker(
            "broker-a", {"storePathRootDir": lost, "storePathCommitLog": f"{lost}/commitlog"} | SYNC
        )
        slave = await cluster.add_broker("broker-a", slave_keys(cluster))
        async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
            await until(lambda: first.replication.master is not None and first.replication.master.connection_count == 1)
            for number in range(10):
                await producer.send(Message("orders", b"n%d" % number), timeout_ms=10_000)
        await until(lambda: slave.store.max_physical_offset == first.store.max_physical_offset)
        kept = bytes(slave.store.slice(0, slave.store.max_physical_offset))
        (hosted,) = [each for each in cluster.container.brokers() if each.is_master]
        assert await cluster.container.remove_broker(hosted.identity)
        # when an empty master comes in its place
        fresh = await cluster.add_broker("broker-a", SYNC)
        follower = slave.replication.slave
        assert follower is not None
        follower.set_master(fresh.identity.ha_address)
        # then the slave is not counted, not one byte of it is touched, and it says why nothing moves
        await until(lambda: "refuses a slave whose log ends at" in follower.progress().refusal)
        assert 1 == fresh.replication.master.in_sync_count()  # type: ignore[union-attr]
        assert 0 == fresh.replication.copied(2)
        assert [] == (await status_of(fresh))["haConnectionInfo"]
        assert kept == bytes(slave.store.slice(0, slave.store.max_physical_offset))


@pytest.mark.parametrize("compatible", ["true", "false"])
async def test_a_second_broker_with_the_same_name_and_id_does_not_start_and_the_first_keeps_serving(
    compatible: str,
) -> None:
    async with LocalCluster(0) as cluster:
        keys = {"compatibleWithOldNameSrv": compatible}
        first = await cluster.add_broker("broker-a", keys)
        await first.registration.settled()
        options, _ = ContainerOptions.from_properties(
            {"listenPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": cluster.namesrv_address}
        )
        other = BrokerContainer(real_world(), options)
        folder = f"{cluster._folder}/twin"
        twin = {
            **keys,
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "storePathRootDir": folder,
            "storePathCommitLog": f"{folder}/commitlog",
        }
        async with open_background() as nursery:
            await nursery.start(other.run)
            with pytest.raises(AddBrokerError, match=f"is alive at {first.identity.address}"):
                await other.add_broker(twin)
            async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
                result = await producer.send(Message("orders", b"first"), timeout_ms=10_000)
            assert "SEND_OK" == result.status.value
            assert first.store.max_queue_offset("orders", result.queue.queue_id) == 1
            # but whoever takes the place of a dead one is welcome
            await cluster.container.remove_broker(BrokerIdentity("DefaultCluster", "broker-a", 0))
            assert (await other.add_broker(twin)).identity.name == "broker-a"
            nursery.cancel_scope.cancel()
