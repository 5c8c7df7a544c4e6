"""Being known: brokers that name servers have dropped, masters that start later, and what name servers hear."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import GROUP, SLAVE, open_listening_name_server, open_pair, run

from understudy.format.json_dialect import loads
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

# --- being known ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_a_broker_dropped_by_the_name_server_is_back_at_once(compatible: str) -> None:
    async def scenario(source: random.Random) -> None:
        keys = {
            "enableSlaveActingMaster": "true",
            "skipPreOnline": "true",
            "compatibleWithOldNameSrv": compatible,
        }
        async with open_pair(source, keys, keys) as pair:
            server = pair.cluster.host("n1").name_server
            assert server is not None
            await until(lambda: pair.slave.member_group.members is not None, 10)
            await trio.sleep(5)  # far from the regular registrations
            gone = {
                "brokerName": "broker-a",
                "brokerAddr": pair.master.identity.address,
                "clusterName": "DefaultCluster",
                "brokerId": "0",
            }

            async def members() -> set[int]:
                ext = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
                answer = await pair.client.invoke(
                    pair.cluster.name_servers, request(RequestCode.GET_BROKER_MEMBER_GROUP, ext), 3_000
                )
                return {int(each) for each in loads(answer.body)["brokerMemberGroup"]["brokerAddrs"]}

            assert {0, 1} == await members()
            await pair.client.invoke(pair.cluster.name_servers, request(RequestCode.UNREGISTER_BROKER, gone), 3_000)
            began = trio.current_time()
            with trio.fail_after(10):
                while await members() != {0, 1}:  # noqa: ASYNC110 - virtual time
                    await trio.sleep(0.05)
            assert trio.current_time() - began < 2.5

    run(scenario)


def test_a_slave_finds_a_master_that_starts_later() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c2", [SLAVE])
            await trio.sleep(2)
            await cluster.start_container("c1", [GROUP])
            slave = cluster.brokers("c2")["broker-a"].replication.slave
            master = cluster.brokers("c1")["broker-a"].replication.master
            assert slave is not None and master is not None
            assert await until(lambda: master.connection_count == 1, 10) < 6
            assert slave.master_address == cluster.brokers("c1")["broker-a"].identity.ha_address

    run(scenario)


# --- what name servers hear ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compatible", "expected"),
    [
        pytest.param("true", {103, 322, 105}, marks=pytest.mark.covers("R90", "R91")),
        pytest.param("false", {103, 904, 901}, marks=pytest.mark.covers("R31", "R32", "R39", "R94")),
    ],
)
def test_heartbeats_and_member_questions_of_both_times(compatible: str, expected: set[int]) -> None:
    async def scenario(source: random.Random) -> None:
        heard: list[tuple[float, Command]] = []

        def hear(command: Command) -> None:
            heard.append((trio.current_time(), command))

        async with (
            SimCluster(source) as cluster,
            open_listening_name_server(cluster, "n1", hear) as name_server,
        ):
            keys = {
                "enableSlaveActingMaster": "true",
                "skipPreOnline": "true",
                "compatibleWithOldNameSrv": compatible,
                "namesrvAddr": name_server,
            }
            await cluster.start_container("c1", [{**GROUP, **keys}])
            began = trio.current_time()
            await trio.sleep(10)
            codes = [command.code for moment, command in heard if moment > began]
            assert expected == set(codes) | {103}
            beats = [command for _, command in heard if command.code in (322, 904)]
            assert 9 <= len(beats) <= 13
            for beat in beats:
                assert {"clusterName", "brokerAddr", "brokerName"} <= (beat.ext or {}).keys()
                assert b"topic" not in beat.body
                assert beat.code == 322 or not beat.body
            asked = [command.ext for _, command in heard if command.code in (105, 901)]
            assert 9 <= len(asked) <= 13
            if compatible == "true":
                assert {"topic": "rmq_sys_SYNC_BROKER_MEMBER_broker-a"} == asked[0]
            else:
                assert {"clusterName": "DefaultCluster", "brokerName": "broker-a"} == asked[0]
            await cluster.kill("c1")

    run(scenario)
