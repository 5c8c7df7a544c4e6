"""Masters that nobody hears, slaves that say nothing, name servers that are gone: who isolates himself, and who not."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, open_ring, run

from understudy.container.role_services import RoleServices
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.waiting import until


@pytest.mark.parametrize("how", ["suspended", "cut off"])
def test_a_master_that_was_away_comes_back_through_pre_online(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 5)
            await trio.sleep(5)
            # given a master that nobody hears for longer than its timeout
            ring.cluster.partition(["c1"], ["c2", "c3", "n1"])
            await until(lambda: "schedule" in slave.services.running(), 30)
            # and commits that its slave takes meanwhile
            await ring.commit(slave, 40)
            # when it goes on where it was
            if how == "suspended":
                ring.cluster.host("c1").clock.jump(20_000)
            ring.cluster.heal()
            await until(lambda: master.registration.isolated, 10)
            await until(lambda: not master.registration.isolated, 30)
            # then it has the commits before anybody could find it, and the slave has stopped
            assert master.offsets.query("readers", TOPIC, 0) == 40
            await until(lambda: "schedule" not in slave.services.running(), 5)
            assert "ms" in (await ring.info(master))["preOnline"]

    run(scenario)


@pytest.mark.parametrize("booted", [(), ("n1",), ("n2",)], ids=["none", "the first", "the other"])
def test_a_master_that_slept_while_its_clock_was_set_back_comes_back_through_pre_online(
    booted: tuple[str, ...],
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, name_servers=("n1", "n2")) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 5)
            await trio.sleep(5)
            # given a master whose machine sleeps, and a slave that acts for it
            ring.cluster.freeze("c1")
            await until(lambda: "schedule" in slave.services.running(), 30)
            await ring.commit(slave, 40)
            await trio.sleep(2)  # name servers hang up once they have dropped every broker of the container
            # when it wakes up with a clock that was set back, so that neither of its clocks has gone on, and a name
            # server that has just booted, and that slaves do not reach, shows nobody
            for name in booted:
                ring.cluster.partition([name], ["c2", "c3"])
                await ring.cluster.kill(name)
                await ring.cluster.restart(name)
            ring.cluster.jump("c1", -60_000)
            ring.cluster.unfreeze("c1", suspended=True)

            def found(name: str) -> bool:
                server = ring.cluster.host(name).name_server
                group = None if server is None else server.table.groups.get("g0")
                return group is not None and 0 in group.members

            await until(lambda: found("n1") or found("n2"), 30)
            # then nobody could find it before it had what the slave had taken
            assert master.offsets.query("readers", TOPIC, 0) == 40
            assert "dropped" in (await ring.info(master))["preOnline"]

    run(scenario)


def test_a_silent_slave_delays_the_return_only_until_it_is_dropped() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.commit(ring.broker("g0", 0), 5)
            await trio.sleep(5)
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in ring.broker("g0", 1).services.running(), 5)
            # given a second slave that knows more than the master, and a first one that has just lost its power
            await ring.cluster.kill("c2", power=True)
            await ring.commit(ring.broker("g0", 2), 30)
            # when the master comes back while the name server still lists the dead slave
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            assert 1 in ring.cluster.host("n1").name_server.table.groups["g0"].members  # type: ignore[union-attr]
            took = await until(lambda: not master.registration.isolated, 40)
            # then it is online soon after that slave was dropped, with what the living one knew
            assert took < 15
            assert master.offsets.query("readers", TOPIC, 0) == 30
            assert isinstance(master.session.rules, RoleServices)
            assert master.session.rules.report is not None
            assert [each.broker_id for each in master.session.rules.report.slaves] == [2]

    run(scenario)


def test_without_any_name_server_masters_go_on_and_come_back_by_themselves() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            # when the only name server is away for longer than every timeout
            await ring.cluster.kill("n1")
            for _ in range(60):
                await trio.sleep(0.5)
                # then the master's delayed messages go on and no slave acts
                assert "schedule" in master.services.running()
                assert "schedule" not in slave.services.running()
            # and everybody is back a few seconds after the name server
            await ring.cluster.restart("n1")
            server = ring.cluster.host("n1").name_server
            assert server is not None

            def complete() -> bool:
                return all(sorted(server.table.groups[name].members) == [0, 1, 2] for name in GROUPS)

            await until(lambda: set(GROUPS) <= set(server.table.groups) and complete(), 15)
            await trio.sleep(10)
            assert complete()
            assert not master.registration.isolated
            assert "schedule" in master.services.running()

    run(scenario)


@pytest.mark.parametrize(
    "periods",
    [
        {"syncBrokerMemberGroupPeriod": "15000"},
        {
            "brokerHeartbeatInterval": "300",
            "brokerNotActiveTimeoutMillis": "1000",
            "syncBrokerMemberGroupPeriod": "300",
        },
    ],
)
def test_no_setting_makes_an_undisturbed_broker_isolate_itself(periods: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, periods) as ring:
            brokers = [ring.broker(group, broker_id) for group in GROUPS for broker_id in range(3)]
            rules = [broker.session.rules for broker in brokers]
            reports = [each.report for each in rules if isinstance(each, RoleServices)]
            await trio.sleep(32)
            assert len(reports) == 9
            assert reports == [each.report for each in rules if isinstance(each, RoleServices)]
            assert not any(broker.registration.isolated for broker in brokers)

    run(scenario)


@pytest.mark.parametrize("where", ["at the acting slave", "at the master"])
def test_a_deliberate_reset_wins_wherever_it_was_made(where: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            for _ in range(60):
                await ring.producer.send(Message(TOPIC, b"read"), queue=MessageQueue(TOPIC, "g0", 0))
            await ring.commit(master, 50)
            await trio.sleep(12)  # the messages are durable
            # given an administrator who sets a group back on one side while the other one goes on
            if where == "at the master":
                ring.cluster.partition(["c1"], ["c2", "c3"])
                master.offsets.assign_reset("readers", TOPIC, 0, 7)
                await trio.sleep(1)
            await ring.cluster.kill("c1", power=True)
            ring.cluster.heal()
            await until(lambda: "schedule" in slave.services.running(), 40)
            await ring.commit(slave, 60)
            if where == "at the acting slave":
                slave.offsets.assign_reset("readers", TOPIC, 0, 7)
            # when the master comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 30)
            # then the group is where the administrator put it, on both sides
            assert master.offsets.query("readers", TOPIC, 0) == 7
            await until(lambda: slave.offsets.committed[f"{TOPIC}@readers"][0] == 7, 10)

    run(scenario)


def test_a_master_that_was_cut_off_delivers_nothing_before_a_name_server_answers() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            # given a master that hears neither its slaves nor a name server
            await ring.cluster.kill("n1")
            ring.cluster.partition(["c1"], ["c2", "c3"])
            await until(lambda: "schedule" not in master.services.running(), 40)
            # when its slaves are heard again, for one of them may have acted
            ring.cluster.heal()
            await trio.sleep(20)
            assert master.replication.master is not None
            assert master.replication.master.connection_count == 2
            assert "schedule" not in master.services.running()
            # then it waits for the name server, and comes back as after any absence
            await ring.cluster.restart("n1")
            await until(lambda: master.registration.isolated, 10)
            await until(lambda: "schedule" in master.services.running(), 20)

    run(scenario)


def test_a_master_whose_slaves_were_lost_just_before_it_was_cut_off_is_cut_off() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            # given a view that shows no slave any more
            await ring.cluster.kill("c2")
            await ring.cluster.kill("c3")
            await until(lambda: set(master.member_group.members or {}) == {0}, 10)
            assert "schedule" in master.services.running()
            # when the master is cut off: one may come back and act for it
            ring.cluster.partition(["c1"], ["c2", "c3", "n1"])
            await until(lambda: "schedule" not in master.services.running(), 20)
            await ring.cluster.restart("c2")
            await until(lambda: "schedule" in ring.broker("g0", 1).services.running(), 20)
            assert "schedule" not in master.services.running()

    run(scenario)


def test_what_a_slave_knows_that_was_dropped_while_its_master_waited_is_taken_over_when_it_is_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.commit(ring.broker("g0", 0), 5)
            await trio.sleep(5)
            # given a slave that acted alone, and is frozen while its master comes back
            await ring.cluster.kill("c3")
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: "schedule" in slave.services.running(), 5)
            await ring.commit(slave, 40)
            ring.cluster.freeze("c2")
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 40)
            assert master.offsets.query("readers", TOPIC, 0) == 5
            # when it goes on
            ring.cluster.unfreeze("c2")
            await until(lambda: master.offsets.query("readers", TOPIC, 0) == 40, 20)

    run(scenario)


def test_what_holds_up_a_return_is_logged_once_and_not_every_second(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given brokers that are started again while no name server is there
            await ring.cluster.kill("n1")
            await ring.cluster.kill("c1")
            caplog.clear()
            await ring.cluster.restart("c1")
            # when that lasts
            await trio.sleep(30)
            # then each of them has said so once, and says so to whoever asks
            master = ring.broker("g0", 0)
            failed = [each.getMessage() for each in caplog.records if "pre-online step failed" in each.getMessage()]
            names = [line.partition("broker=")[2].split()[0] for line in failed]
            here = (master, ring.broker("g2", 1), ring.broker("g1", 2))
            assert sorted(names) == sorted(broker.identity.canonical_name for broker in here)
            assert "no name server answers" in (await ring.info(master))["preOnline"]

    run(scenario)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_frozen_process_goes_through_pre_online_once(caplog: pytest.LogCaptureFixture, suspended: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            ring.cluster.freeze("c1")
            await until(lambda: "schedule" in slave.services.running(), 30)
            await trio.sleep(source.uniform(5, 6))
            ring.cluster.unfreeze("c1", suspended=suspended)
            await until(lambda: master.registration.isolated, 10)
            await until(lambda: not master.registration.isolated, 30)
            await trio.sleep(15)
            told = [each.getMessage().split(" why")[0] for each in caplog.records if "isolated broker" in each.message]
            assert sorted(told) == sorted(
                f"isolated broker={broker.identity.canonical_name}"
                for broker in (master, ring.broker("g2", 1), ring.broker("g1", 2))
            )
            assert "schedule" in master.services.running()

    run(scenario)
