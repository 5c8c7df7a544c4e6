"""Controllers, brokers (stubs) and faults, in virtual time: who becomes master, when, and who is told."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock

from understudy.controller.requests import EXPLAIN_MASTER, QUORUM_FACTS
from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.testkit.quorum.controllers import ControllersResult, SimControllers
from understudy.testkit.quorum.controllers_history import run_controllers_seed
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.waiting import until


@asynccontextmanager
async def cluster_of(groups: dict[str, int], *, size: int = 3, unclean: bool = False) -> AsyncIterator[SimControllers]:
    outcome = ControllersResult(0)
    async with trio.open_nursery() as nursery:
        cluster = SimControllers(random.Random(1), nursery, outcome, groups, size)
        cluster.unclean = unclean
        cluster.start()
        for group, count in groups.items():
            await cluster.wait_in_sync(group, count)
        yield cluster
        assert outcome.violations == []
        nursery.cancel_scope.cancel()


async def ask(cluster: SimControllers, name: str, code: int, ext: dict[str, str] | None = None) -> Command:
    async with open_client(cluster.brokers[next(iter(cluster.brokers))].world) as client:
        return await client.invoke(f"{name}:{API_PORT}", request(code, ext), 3000)


async def new_master(cluster: SimControllers, group: str, epoch: int, seconds: float = 20) -> float:
    """Wait for a master with a greater epoch; return how long it took."""
    began = trio.current_time()
    with trio.fail_after(seconds):
        while True:
            metadata = cluster.metadata()
            facts = None if metadata is None else metadata.groups.get(group)
            if facts is not None and facts.master_id is not None and facts.master_epoch > epoch:
                return trio.current_time() - began
            await trio.sleep(0.005)


def epoch_of(cluster: SimControllers, group: str) -> int:
    metadata = cluster.metadata()
    assert metadata is not None
    return metadata.groups[group].master_epoch


@pytest.mark.covers("R164", "R165", "R167", "R169", "R313", "CC-02")
async def test_a_killed_master_is_replaced_at_once_and_the_group_is_told(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        master, epoch = cluster.master_host("a"), epoch_of(cluster, "a")
        other = next(host for host in cluster.brokers.values() if host is not master)
        await master.kill()
        took = await new_master(cluster, "a", epoch)
        assert took < 0.5  # the closed connection tells, not the timeout of 2 s
        assert other.broker is not None
        await until(lambda: other.broker is not None and other.broker.is_master, 0.5)
        assert [change.how for change in other.broker.changes][-1] == "pushed"
        master.start()
        await cluster.wait_in_sync("a", 2)
        assert cluster.master_host("a") is other


@pytest.mark.covers("R200", "R305", "CC-01", "CC-15")
async def test_a_silent_master_is_replaced_after_its_timeout(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        master, epoch = cluster.master_host("a"), epoch_of(cluster, "a")
        others = [name for name in [*cluster.names, *cluster.brokers] if name != master.name]
        cluster.network.partition([master.name], others)
        took = await new_master(cluster, "a", epoch)
        assert 1.5 < took < 3.0


@pytest.mark.covers("R306", "R307", "R328")
async def test_only_the_groups_of_a_dead_master_change(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2, "b": 2, "alone": 1}) as cluster:
        epochs = {group: epoch_of(cluster, group) for group in ("a", "b", "alone")}
        slave = next(h for n, h in cluster.brokers.items() if n.startswith("b-") and h is not cluster.master_host("b"))
        await slave.kill()
        await cluster.master_host("alone").kill()
        await cluster.master_host("a").kill()
        await new_master(cluster, "a", epochs["a"])
        await trio.sleep(5)
        metadata = cluster.metadata()
        assert metadata is not None
        assert metadata.groups["b"].master_epoch == epochs["b"]
        assert metadata.groups["b"].sync_state_set == [metadata.groups["b"].master_id]
        assert metadata.groups["alone"].master_id is None


@pytest.mark.covers("R334", "R186", "CC-04")
async def test_a_group_without_master_gets_one_when_a_member_of_the_set_returns(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        first = cluster.master_host("a")
        slave = next(host for host in cluster.brokers.values() if host is not first)
        await slave.kill()
        await cluster.wait_in_sync("a", 1)
        await first.kill()
        await trio.sleep(4)
        slave.start()  # not in the set: must stay a slave without master
        await trio.sleep(5)
        metadata = cluster.metadata()
        assert metadata is not None
        assert metadata.groups["a"].master_id is None
        active = await cluster.wait_active()
        explained = await ask(cluster, active.name, EXPLAIN_MASTER, {"brokerName": "a"})
        assert b"not in the sync state set: it may lack acknowledged messages" in explained.body
        first.start()
        await cluster.wait_in_sync("a", 2)
        assert cluster.master_host("a") is first


@pytest.mark.covers("R185", "R310")
async def test_unclean_election_promotes_whoever_lives(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}, unclean=True) as cluster:
        first = cluster.master_host("a")
        slave = next(host for host in cluster.brokers.values() if host is not first)
        await slave.kill()
        await cluster.wait_in_sync("a", 1)
        epoch = epoch_of(cluster, "a")
        await first.kill()
        slave.start()
        await new_master(cluster, "a", epoch)
        assert cluster.master_host("a") is slave


@pytest.mark.covers("R127", "R161", "R204", "R244", "R338", "R340", "R163")
async def test_a_new_active_controller_knows_everything_and_elects_nobody_wrongly(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 3, "b": 2}) as cluster:
        before = cluster.metadata()
        active = await cluster.wait_active()
        assert before is not None
        snapshot = before.snapshot()
        await active.kill(power=True)
        follower = await cluster.wait_active()
        assert follower.controller is not None
        assert follower.controller.metadata.snapshot() == snapshot
        await trio.sleep(10)
        assert follower.controller.metadata.snapshot() == snapshot


@pytest.mark.covers("R339", "R341", "R335")
async def test_a_master_that_dies_with_the_active_controller_is_replaced_by_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of({"a": 3}) as cluster:
        active, master, epoch = await cluster.wait_active(), cluster.master_host("a"), epoch_of(cluster, "a")
        await master.kill()
        await active.kill(power=False)
        took = await new_master(cluster, "a", epoch)
        assert took < 3
        assert cluster.master_host("a") is not master


@pytest.mark.covers("R312")
async def test_a_deposed_controller_decides_nothing(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        active, epoch = await cluster.wait_active(), epoch_of(cluster, "a")
        rest = [name for name in [*cluster.names, *cluster.brokers] if name != active.name]
        cluster.network.partition([active.name], rest)
        await trio.sleep(2)
        assert not active.leads
        await cluster.master_host("a").kill()
        await new_master(cluster, "a", epoch)
        cluster.network.heal()
        await trio.sleep(3)
        answers = {name: await ask(cluster, name, 1005) for name in cluster.names}
        assert sum((answer.ext or {})["isLeader"] == "true" for answer in answers.values()) == 1
        assert len({(answer.ext or {})["controllerLeaderId"] for answer in answers.values()}) == 1


@pytest.mark.covers("R124", "R205", "R128")
async def test_without_majority_there_are_no_elections_and_brokers_keep_their_roles(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        active = await cluster.wait_active()
        roles = {name: host.broker.is_master for name, host in cluster.brokers.items() if host.broker is not None}
        for host in cluster.controllers.values():
            if host is not active:
                await host.kill(power=True)
        await trio.sleep(5)
        refused = await ask(cluster, active.name, 1004, {"brokerName": "a"})
        assert (refused.code, refused.remark) == (2007, "The controller is not in leader state")
        facts = await ask(cluster, active.name, QUORUM_FACTS)
        assert b"#Leader\tunknown" in facts.body
        assert {n: h.broker.is_master for n, h in cluster.brokers.items() if h.broker is not None} == roles


@pytest.mark.covers("R132", "R258")
async def test_roles_and_epochs_survive_the_loss_of_power_of_all_controllers(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        before = cluster.metadata()
        assert before is not None
        snapshot = before.snapshot()
        for host in cluster.controllers.values():
            await host.kill(power=True)
        for host in cluster.controllers.values():
            host.start()
        await cluster.wait_active()
        await trio.sleep(8)
        after = cluster.metadata()
        assert after is not None
        assert after.snapshot() == snapshot


@pytest.mark.covers("R168", "R188")
async def test_brokers_learn_their_role_without_notifications_too(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        for host in cluster.controllers.values():
            async with open_client(cluster.brokers["a-1"].world) as client:
                silent = request(1009, None, b"notifyBrokerRoleChanged=false")
                assert (await client.invoke(f"{host.name}:{API_PORT}", silent, 3000)).code == 0
        master, epoch = cluster.master_host("a"), epoch_of(cluster, "a")
        other = next(host for host in cluster.brokers.values() if host is not master)
        await master.kill()
        await new_master(cluster, "a", epoch)
        await until(lambda: other.broker is not None and other.broker.is_master, 3)
        assert other.broker is not None
        assert other.broker.changes[-1].how in ("polled", "elected")


@pytest.mark.covers("R166", "R343", "CC-11")
async def test_an_operator_moves_the_role(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        master = cluster.master_host("a")
        other = next(host for host in cluster.brokers.values() if host is not master)
        assert other.broker is not None
        active = await cluster.wait_active()
        fields = {
            "clusterName": "C",
            "brokerName": "a",
            "brokerId": str(other.broker.broker_id),
            "designateElect": "true",
        }
        answer = await ask(cluster, active.name, 1002, fields)
        assert (answer.code, (answer.ext or {})["masterAddress"]) == (0, other.settings.address)
        again = await ask(cluster, active.name, 1002, fields)
        assert again.code == 2011
        await until(lambda: other.broker is not None and other.broker.is_master, 2)


@pytest.mark.covers("R128")
async def test_one_controller_alone_does_failover_too(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}, size=1) as cluster:
        master, epoch = cluster.master_host("a"), epoch_of(cluster, "a")
        await master.kill()
        assert await new_master(cluster, "a", epoch) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_random_histories_have_one_master_per_epoch_and_recover(seed: int) -> None:
    assert run_controllers_seed(seed, 8.0).violations == []


@pytest.mark.covers("R124", "R267")
async def test_the_last_controller_names_no_dead_leader(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 2}) as cluster:
        active = await cluster.wait_active()
        last = next(host for host in cluster.controllers.values() if host is not active)
        known = await ask(cluster, last.name, 1005)
        assert (known.ext or {})["controllerLeaderId"] == active.name
        for host in cluster.controllers.values():
            if host is not last:
                await host.kill(power=True)
        await trio.sleep(2)
        answer = await ask(cluster, last.name, 1005)
        assert (answer.ext or {})["isLeader"] == "false"
        assert "controllerLeaderId" not in (answer.ext or {})
        refused = await ask(cluster, last.name, 1004, {"brokerName": "a"})
        assert (refused.code, "controllerLeaderAddress" in (refused.ext or {})) == (2007, False)
        assert b"#Leader\tunknown" in (await ask(cluster, last.name, QUORUM_FACTS)).body


@pytest.mark.covers("R345", "R348")
async def test_replicas_are_removed_and_added_while_controllers_crash(autojump_clock: MockClock) -> None:
    async with cluster_of({"a": 3}) as cluster:
        master = cluster.master_host("a")
        gone = next(host for host in cluster.brokers.values() if host is not master)
        assert gone.broker is not None
        gone_id = gone.broker.broker_id
        await gone.kill()
        await cluster.wait_in_sync("a", 2)
        fields = {"brokerName": "a", "clusterName": "C", "brokerControllerIdsToClean": str(gone_id)}

        # the active controller dies while it removes the replica: whether it did is not known
        active = await cluster.wait_active()
        async with trio.open_nursery() as nursery:

            async def remove() -> None:
                with suppress(RemotingError):
                    await ask(cluster, active.name, 1011, fields)

            nursery.start_soon(remove)
            await trio.sleep(0.003)
            await active.kill(power=True)
        follower = await cluster.wait_active()
        # when the removal is repeated, then the replica is gone, the others are not, and the master stays
        assert (await ask(cluster, follower.name, 1011, fields)).code == 0
        metadata = cluster.metadata()
        assert metadata is not None
        group = metadata.groups["a"]
        assert gone_id not in group.replicas
        assert len(group.replicas) == 2
        assert group.master_id == next(i for i, r in group.replicas.items() if r.address == master.settings.address)

        # a new replica takes its place, and the next active controller dies meanwhile: it joins all the same
        active.start()
        gone.broker_id = None
        gone.start()
        await trio.sleep(0.05)
        await (await cluster.wait_active()).kill(power=False)
        await cluster.wait_in_sync("a", 3)
        assert cluster.master_host("a") is master
