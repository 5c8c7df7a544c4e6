"""Views that differ, masters that hear nobody, connections that are only half there, clocks that jump."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from container_ring import HOSTS, TOPIC, acting, delivered, open_ring, records, run, send_delayed, send_raw

from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

# --- a master that hears nobody ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut", "cut-off-servers", "cut-out", "cut-in", "pause", "suspend"])
def test_a_master_that_was_not_heard_repeats_delayed_messages_of_a_moment_only(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given delayed messages that fall due all the time while the master of g0 is away
            due = {key: at + 10 for key, at in (await send_delayed(ring, 40, 3, pause_seconds=0.2)).items()}
            due |= {key: at + 30 for key, at in (await send_delayed(ring, 10, 4)).items()}
            began = acted = trio.current_time()
            accident = Accident(ring.cluster, Fault(kind, "c1"), HOSTS)
            await accident.begin()
            # when it is away for longer than its timeout, and comes back
            if kind != "cut-in":
                acted += await until(lambda: len(acting(ring)) == 1, 12)
            await trio.sleep(15)
            await accident.end()
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 30)
            await trio.sleep(30)
            # then every message was delivered, by both only what fell due before the master could know better
            assert set(due) == set(delivered(ring))
            repeated = [due[key] for key, count in delivered(ring).items() if count > 1]
            assert max(delivered(ring).values()) <= 2
            assert all(at - began <= 3.5 or abs(at - acted) <= 1 for at in repeated), (began, acted, repeated)

    run(scenario)


def test_a_master_that_hears_nobody_takes_sends_and_leaves_delayed_messages_for_later() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            cut = Accident(ring.cluster, Fault("cut", "c1"), HOSTS)
            await cut.begin()
            await until(lambda: "schedule" not in master.services.running(), 10)
            # given a master that is cut off, known to clients that still reach it: it says why it holds messages back
            info = await ring.info(master)
            assert (info["brokerActive"], "cut off" in info["brokerActiveReason"]) == ("false", True)
            # when they send to it, though no slave answers any more
            assert await send_raw(ring, master, b"first", "") == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert await send_raw(ring, master, b"plain", "") == ResponseCode.SUCCESS
            assert await send_raw(ring, master, b"late", "DELAY\x011\x02") == ResponseCode.SUCCESS
            # then it stores what is sent, and the delayed message is delivered once the others hear it again: by it, or
            # by the slave that still acts when it gets its copy
            await trio.sleep(5)

            def stored() -> list[bytes]:
                return [record.body for group in GROUPS for record in records(ring.broker(group, 0))]

            assert [b"first", b"plain"] == stored()
            await cut.end()
            await until(lambda: len(stored()) == 3, 30)
            await until(lambda: "schedule" in master.services.running(), 10)
            await trio.sleep(10)
            assert [b"first", b"late", b"plain"] == sorted(stored())

    run(scenario)


def test_a_master_that_only_the_name_servers_have_lost_delivers_nothing_beside_its_acting_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            serving = master.replication.master
            assert serving is not None
            # given delayed messages, and a master that is cut off from the name servers alone: its slaves hear it
            due = await send_delayed(ring, 40, 4, pause_seconds=0.1)
            cut = Accident(ring.cluster, Fault("cut-off-servers", "c1"), HOSTS)
            await cut.begin()
            await until(lambda: acting(ring) == [slave], 15)
            # when a slave acts, it follows the master no longer, and the master knows
            assert "replication from the master" not in slave.services.running()
            await until(lambda: "schedule" not in master.services.running(), 1)
            assert serving.connection_count == 1
            assert "cut off" in (await ring.info(master))["brokerActiveReason"]
            # then what falls due in all that time is delivered once
            await trio.sleep(35)
            assert Counter(due.keys()) == delivered(ring)
            # and when the name servers hear the master again, it is followed and delivers as before
            await cut.end()
            await until(lambda: acting(ring) == [] and serving.connection_count == 2, 30)
            await until(lambda: not master.registration.isolated, 30)
            assert await send_raw(ring, master, b"later", "DELAY\x011\x02UNIQ_KEY\x01later\x02") == ResponseCode.SUCCESS
            await trio.sleep(5)
            assert Counter([*due, "later"]) == delivered(ring)

    run(scenario)


def test_a_master_that_name_servers_have_lost_sees_a_slave_leave_while_another_one_comes() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            # given a master that is cut off from the name servers when they show it one slave only
            await ring.cluster.kill("c3")
            await until(lambda: master.member_group.members is not None and len(master.member_group.members) == 2, 15)
            due = await send_delayed(ring, 40, 4, pause_seconds=0.1)
            cut = Accident(ring.cluster, Fault("cut-off-servers", "c1"), HOSTS)
            await cut.begin()
            # when the other slave copies from it again before the first one acts
            await ring.cluster.restart("c3")
            await until(lambda: acting(ring) == [slave], 15)
            assert master.replication.master is not None
            assert master.replication.master.connection_count == 1
            # then it delivers nothing beside the one that acts
            await until(lambda: "schedule" not in master.services.running(), 1)
            await trio.sleep(35)
            assert Counter(due.keys()) == delivered(ring)
            await cut.end()
            await until(lambda: acting(ring) == [], 30)

    run(scenario)


# --- name servers that see different things ------------------------------------------------------------------------


def view_of(cluster: SimCluster, server: str) -> list[int]:
    name_server = cluster.host(server).name_server
    assert name_server is not None
    return sorted(name_server.table.groups["g0"].members)


@pytest.mark.parametrize("lost", ["n1", "n2"])
def test_a_master_that_one_of_two_name_servers_still_sees_is_not_acted_for(lost: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, name_servers=("n1", "n2")) as ring:
            cluster = ring.cluster
            # given a master that one name server does not hear any more
            keys = await send_delayed(ring, 20, 3, pause_seconds=0.2)
            cut = Accident(cluster, Fault("cut-off-servers", "c1"), ("c1", lost), (lost,))
            await cut.begin()
            await until(lambda: view_of(cluster, lost) == [1, 2], 15)
            both = 0
            for _ in range(200):
                await trio.sleep(0.1)
                both = max(both, len(acting(ring)))
            # then no slave acts, and delayed messages come once
            assert both == 0
            assert Counter(keys.keys()) == delivered(ring)
            # when it dies, its first slave acts at once: both name servers agree now
            await cluster.kill("c1")
            took = await until(lambda: acting(ring) == [ring.broker("g0", 1)], 5)
            assert took < 1.5
            # and when it is back, both see it
            await cut.end()
            await cluster.restart("c1")
            await until(lambda: view_of(cluster, "n1") == view_of(cluster, "n2") == [0, 1, 2], 30)
            await until(lambda: acting(ring) == [], 5)

    run(scenario)


def test_two_actors_in_two_halves_repeat_and_lose_nothing_and_end_with_the_partition() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, name_servers=("n1", "n2")) as ring:
            cluster, master = ring.cluster, ring.broker("g0", 0)
            keys = await send_delayed(ring, 20, 3, pause_seconds=0.2)
            await trio.sleep(1)
            # given a network in two halves, each with a name server
            cluster.partition(["c1", "n1"], ["c2", "c3", "n2"])
            await until(lambda: len(acting(ring)) == 1, 15)
            await trio.sleep(15)
            # then in each half exactly one broker acts, and a message is delivered at most once by each
            assert "schedule" in master.services.running()
            assert (view_of(cluster, "n1"), view_of(cluster, "n2")) == ([0], [1, 2])
            # when it heals
            cluster.heal()
            await until(lambda: view_of(cluster, "n1") == view_of(cluster, "n2") == [0, 1, 2], 30)
            await until(lambda: acting(ring) == [], 5)
            await trio.sleep(15)
            # then nothing is missing and nothing came more than once from each half
            assert set(keys) == set(delivered(ring))
            assert max(delivered(ring).values()) <= 2

    run(scenario)


# --- half a connection ---------------------------------------------------------------------------------------------


@pytest.mark.covers("HA-12")
def test_a_slave_whose_machine_lost_its_power_counts_only_until_house_keeping() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"haHousekeepingInterval": "6000"}) as ring:
            serving = ring.broker("g0", 0).replication.master
            assert serving is not None
            assert (serving.connection_count, serving.in_sync_count()) == (2, 3)
            # when a slave's machine dies without a word
            await ring.cluster.kill("c2", power=True)
            await trio.sleep(0.5)
            assert serving.connection_count == 2
            # then it stops to count when it was silent for too long
            took = await until(lambda: serving.connection_count == 1, 10)
            assert took < 6.5
            assert serving.in_sync_count() == 2
            # and counts again when it is back
            await ring.cluster.restart("c2")
            await until(lambda: serving.in_sync_count() == 3, 20)

    run(scenario)


# --- pulls ---------------------------------------------------------------------------------------------------------


def test_a_pull_beyond_the_end_of_a_slave_waits_for_whoever_can_answer_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring, open_client(ring.cluster.client_world("pulling")) as client:
            slave = ring.broker("g0", 1)
            ext = {
                "consumerGroup": "readers",
                "topic": TOPIC,
                "queueId": "0",
                "queueOffset": "7",
                "maxMsgNums": "32",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "10000",
                "subscription": "*",
                "subVersion": "0",
                "expressionType": "TAG",
            }
            await ring.producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
            slave.groups.get("readers")
            await trio.sleep(1)

            async def pull() -> float:
                began = trio.current_time()
                command = request(RequestCode.PULL_MESSAGE, ext)
                answer = await client.invoke(slave.identity.address, command, 15_000)
                assert (answer.code, answer.remark) == (20, "OFFSET_OVERFLOW_BADLY")
                return trio.current_time() - began

            # while there is a master the client is sent back to it after a moment, not at once and not late
            assert 0.09 < await pull() < 0.3
            # without one it waits until the time it gave has passed
            await ring.cluster.kill("c1")
            await until(lambda: acting(ring) == [slave], 5)
            assert 9 < await pull() < 11

    run(scenario)


# --- clocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "jump_ms"),
    [
        *(("the master", jump_ms) for jump_ms in (3_000, -3_000, 60_000, -60_000)),
        *(("the acting slave", jump_ms) for jump_ms in (3_000, -60_000)),
    ],
)
def test_a_jumping_clock_makes_delayed_messages_early_by_no_more_than_its_jump_and_loses_none(
    who: str, jump_ms: int
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given messages of ten and thirty seconds
            levels = {3: 10.0, 4: 30.0}
            due = {}
            for level, seconds in levels.items():
                due |= {key: at + seconds for key, at in (await send_delayed(ring, 10, level)).items()}
            await trio.sleep(1)
            if who == "the acting slave":
                await ring.cluster.kill("c1")
                await until(lambda: len(acting(ring)) == 1, 5)
            # when a clock jumps
            ring.cluster.host("c1" if who == "the master" else "c2").clock.jump(jump_ms)
            arrived: dict[str, float] = {}
            with trio.move_on_after(130):
                while len(arrived) < len(due):
                    await trio.sleep(0.5)
                    for key in delivered(ring):
                        arrived.setdefault(key, trio.current_time())
            # then all arrive, early by the jump at most, and late by it or by their delay at most
            assert set(due) == set(arrived)
            early = max(due[key] - at for key, at in arrived.items())
            late = max(at - due[key] for key, at in arrived.items())
            assert early <= max(jump_ms, 0) / 1000 + 1e-6  # moments are sums of floats
            assert late <= (min(abs(jump_ms) / 1000, max(levels.values()) + 2) if jump_ms < 0 else 0) + 5

    run(scenario)
