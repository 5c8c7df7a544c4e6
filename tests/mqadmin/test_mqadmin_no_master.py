"""`mqadmin whyNoMaster`: which rule keeps each replica from being elected, and what is safe to do."""

from __future__ import annotations

import io
import json
import random

import pytest
import trio

from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.no_master import Replica, next_step, replicas_of, verdict
from understudy.mqadmin.options import parse
from understudy.mqclient.errors import ClientError
from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

DEAD = Replica(1, "10.0.0.1:10911", in_sync=True, alive=False)
SILENT = Replica(1, "10.0.0.1:10911", in_sync=True, alive=False, epoch=3, max_offset=500)
ABLE = Replica(2, "10.0.0.2:10911", in_sync=True, alive=True, epoch=3, max_offset=400)
BEHIND = Replica(3, "10.0.0.3:10911", in_sync=False, alive=True, epoch=2, max_offset=300)
FAR_BEHIND = Replica(4, "10.0.0.4:10911", in_sync=False, alive=True, epoch=1, max_offset=900)


@pytest.mark.parametrize(
    ("replicas", "master_id", "step"),
    [
        ([DEAD, ABLE], 2, "nothing: broker 2 (10.0.0.2:10911) is master"),
        (
            [DEAD, ABLE],
            None,
            "wait for some seconds; if it stays so: mqadmin electMaster -a CONTROLLER -c CLUSTER -bn g -b 2",
        ),
        (
            [SILENT],
            1,
            "let broker 1 (10.0.0.1:10911) reach the controllers: look at its controllerAddr, and at the network",
        ),
        ([DEAD], None, "start broker 1 (10.0.0.1:10911): nobody else surely has every acknowledged message"),
        ([DEAD, BEHIND, FAR_BEHIND], None, "then broker 3 (10.0.0.3:10911) is elected (epoch 2, 300 bytes), and what"),
        ([BEHIND], None, "no member of the sync-state set is registered any more. Only if that is lost for good"),
        ([], None, "start a broker of this group: the first one to come is master"),
    ],
    ids=["a living master", "able", "cut off", "dead", "others are behind", "cleaned", "new"],
)
def test_the_smallest_safe_step(replicas: list[Replica], master_id: int | None, step: str) -> None:
    assert step in next_step("g", master_id, replicas)


def test_each_replica_has_its_rule() -> None:
    assert verdict(BEHIND, None).startswith("refused: not in the sync-state set")
    assert verdict(SILENT, 1) == "was master, and its heartbeats do not arrive"
    assert verdict(SILENT, None) == "refused: it runs, but its heartbeats do not reach the controllers"
    assert verdict(DEAD, None) == "refused: in the sync-state set, but it does not run"
    assert (verdict(ABLE, None), verdict(ABLE, 2)) == ("may be elected", "is master")
    row = {"brokerId": 2, "brokerAddress": "a:1", "alive": True}
    assert replicas_of({"notInSyncReplicas": [row]}) == [Replica(2, "a:1", in_sync=False, alive=True)]


async def why(group: LedGroup, *, as_json: bool = False) -> str:
    controllers = ";".join(f"{group.cluster.address(name)}:{API_PORT}" for name in CONTROLLERS)
    return await run(group, "whyNoMaster", "-b", "g", controllers=controllers, as_json=as_json)


async def run(group: LedGroup, name: str, *options: str, controllers: str = "", as_json: bool = False) -> str:
    """Return what command *name* of mqadmin prints, asked of *controllers*, by default of the first one."""
    stream, command = io.StringIO(), load_commands()[name]
    addresses = controllers or f"{group.cluster.address(CONTROLLERS[0])}:{API_PORT}"
    values = parse(command.all_options, ["-a", addresses, *options])
    await run_command(command, values, "", Output(as_json, stream), group.cluster.client_world("operator"))
    return stream.getvalue()


def test_a_group_that_lost_its_last_member_in_sync() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
            first = await group.ready(3)
            assert "#NextStep\tnothing: broker" in await why(group)
            others = [name for name in BROKERS if name != first]
            for name in others:
                await group.kill(name)
            await until(lambda: group.members() == [first], 10)
            await group.kill(first)
            await group.start_broker(others[0])
            await until(lambda: (facts := group.facts()) is not None and facts.master_id is None, 10)
            told = await why(group)
            assert "#Master\tnone\n" in told
            assert (
                f"{group.cluster.address(first)}:10911\tno answer\trefused: in the sync-state set, but it does not run"
                in told
            )
            assert "refused: not in the sync-state set, so it may lack acknowledged messages" in told
            assert "#NextStep\tstart broker " in told
            found = json.loads(await why(group, as_json=True))
            assert sorted(found["rules"]) == ["1", "2", "3"]
            for name in CONTROLLERS[:2]:
                await group.kill(name)
            await trio.sleep(3)
            with pytest.raises(ClientError, match="a majority of them must run and reach each other"):
                await why(group)

    run_seed(scenario, 4)


def test_members_that_have_lost_their_memory_wait_for_one_that_is_lost_for_good_until_it_is_taken_out() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
            await group.ready(3)
            # given all hosts lost their power, and one does not come back
            for name in BROKERS:
                await group.kill(name, power=True)
            await trio.sleep(5)
            lost, *back = BROKERS
            for name in back:
                await group.start_broker(name)
            await trio.sleep(10)
            ids = {name: replica_id(group, name) for name in BROKERS}
            told = await why(group)
            assert told.count("refused: its memory is lost") == 2
            assert f"#NextStep\tstart broker {ids[lost]} (" in told
            step = f"mqadmin cleanBrokerMetadata -a CONTROLLER -bn g -b '{ids[lost]}'"
            assert step in told
            assert "electMaster" not in told
            elected = ("electMaster", "-bn", "g", "-c", "DefaultCluster", "-b", str(ids[back[0]]))
            with pytest.raises(ClientError, match=f"new master: broker {ids[back[0]]}: its memory is lost"):
                await run(group, *elected)
            # when the operator does what it says
            await run(group, "cleanBrokerMetadata", "-bn", "g", "-b", str(ids[lost]))
            # then one of the others leads
            await until(lambda: group.master() in back, 10)
            assert "#NextStep\tnothing: broker" in await why(group)

    run_seed(scenario, 4)


def replica_id(group: LedGroup, name: str) -> int:
    """Return the persistent id of the broker of host *name*, as the controllers know it."""
    facts = group.facts()
    assert facts is not None
    return next(one for one in facts.replicas if group.host_of(one) == name)
