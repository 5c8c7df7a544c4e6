"""Who counts as in sync, as a tool is told that asks for the state of replication."""

from __future__ import annotations

import random
from typing import Any

import pytest
from slave_rig import open_pair, run

from understudy.broker.broker import Broker
from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until


@pytest.mark.covers("HA-13")
def test_a_slave_is_in_sync_below_the_limit_of_the_gap_and_not_at_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(4)
            end = pair.master.store.max_physical_offset
            await until(lambda: pair.master.replication.copied(2) == end, 10)
            # given a slave that hears nothing any more, while the log of its master grows
            pair.cluster.partition(["c1"], ["c2"])
            for number in range(3):
                await pair.producer.send(Message("orders", b"%d" % number))
            gap = pair.master.store.max_physical_offset - end

            async def shown(limit: int) -> dict[str, Any]:
                pair.master.options.store.ha_max_gap_not_in_sync = limit
                return dict(loads((await pair.ask(pair.master, RequestCode.GET_BROKER_HA_STATUS)).body))

            # then a tool sees it in sync as long as less than the limit is missing
            for limit, expected in ((gap + 1, True), (gap, False), (gap - 1, False)):
                status = await shown(limit)
                (slave,) = status["haConnectionInfo"]
                assert (slave["diff"], slave["slaveAckOffset"]) == (gap, end)
                assert (slave["inSync"], status["inSyncSlaveNums"]) == (expected, int(expected))

    run(scenario)


def test_a_master_tells_for_how_many_copies_its_sends_wait() -> None:
    acting = {
        "enableSlaveActingMaster": "true",
        "totalReplicas": "2",
        "inSyncReplicas": "2",
        "enableAutoInSyncReplicas": "true",
    }

    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {**acting, "brokerRole": "SYNC_MASTER"}, acting) as pair:

            async def shown(broker: Broker) -> str | None:
                answer = await pair.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
                found = loads(answer.body)["table"].get("copiesNeeded")
                return None if found is None else str(found)

            await until(lambda: pair.master.replication.copies_needed() == 2, 10)
            assert ("2", None) == (await shown(pair.master), await shown(pair.slave))
            # and when the slave has left, as many as there are; or none is enough, and it says so
            await pair.cluster.kill("c2")
            await until(lambda: pair.master.replication.copies_needed() == 1, 10)
            assert "1" == await shown(pair.master)
            pair.master.options.store.enable_auto_in_sync_replicas = False
            assert "refused" == await shown(pair.master)

    run(scenario)
