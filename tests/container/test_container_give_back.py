"""What a returning master must get back in corners of its group: default settings, blind name servers, stuck slaves."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from container_pair import DEFAULTS, ELSEWHERE, Pair, open_pair
from container_ring import TOPIC, acting, cut_between, open_ring, records, run

from understudy.broker.broker import Broker
from understudy.broker.group_memory import FILE_NAME
from understudy.broker.storage import config_path
from understudy.container.role_services import RoleServices
from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request, response
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

# --- default settings ----------------------------------------------------------------------------------------------


async def lose_master(pair: Pair, how: str, *beside_slave: str) -> None:
    """Kill the master, freeze it, or cut it off from its slave and the hosts *beside_slave*."""
    if how == "kill":
        await pair.cluster.kill("m")
    elif how == "freeze":
        pair.cluster.freeze("m")
    else:
        pair.cluster.partition(["m"], ["s", *beside_slave])


async def bring_back(pair: Pair, how: str) -> Broker:
    """End what :func:`lose_master` began; return the master, which knows by then that it was away."""
    if how == "kill":
        await pair.cluster.restart("m")
        return pair.broker("m")
    if how == "freeze":
        pair.cluster.unfreeze("m")
    else:
        pair.cluster.heal()
    await until(lambda: pair.broker("m").registration.isolated, 10)
    return pair.broker("m")


@pytest.mark.parametrize("how", ["kill", "freeze", "cut off"])
def test_at_default_settings_a_returning_master_takes_back_what_its_slave_was_told(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            # given totalReplicas=1, as it stands when nobody sets it, and a slave that acts
            await pair.commit(pair.broker("m"), 5)
            await trio.sleep(5)
            await lose_master(pair, how, "n1")
            await until(pair.acts, 30)
            await pair.commit(pair.broker("s"), 35)
            # when the master is back
            if how != "kill":
                await trio.sleep(10)
            master = await bring_back(pair, how)
            await until(lambda: not master.registration.isolated, 30)
            # then it has what the slave was told before anybody finds it
            assert master.offsets.query("readers", TOPIC, 0) == 35
            await until(lambda: not pair.acts(), 5)

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "freeze", "cut off"])
def test_at_default_settings_what_a_slave_has_delivered_comes_from_no_returning_master_again(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, slave={"enableRemoteEscape": "true"}) as pair:
            other = await pair.other_group()
            # given delayed messages, a slave that has never heard of more than one replica, and a master elsewhere
            async with open_producer(pair.cluster.client_world(), pair.cluster.name_servers, "writers") as producer:
                keys = []
                for number in range(10):
                    delayed = Message(TOPIC, b"%d" % number, {"DELAY": "5"})
                    keys.append((await producer.send(delayed, queue=MessageQueue(TOPIC, "a", 0))).message_id)
            slave = pair.broker("s")
            await until(lambda: slave.store.max_physical_offset == pair.broker("m").store.max_physical_offset, 10)
            # when the master is lost before they are due, and is back when the slave has delivered them
            await lose_master(pair, how, "o", "n1")
            await until(lambda: len(records(other)) == 10, 90)
            master = await bring_back(pair, how)
            await until(lambda: not master.registration.isolated and not pair.acts(), 30)
            await trio.sleep(90)
            # then each has come once
            assert sorted(each.properties["UNIQ_KEY"] for each in (*records(other), *records(master))) == sorted(keys)

    run(scenario)


def test_a_master_without_slaves_asks_its_name_servers_once_and_waits_for_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # when a lone master starts, for the first time and again
            for start in (cluster.start_container("m", [{"brokerName": "a", **DEFAULTS}]), None):
                if start is None:
                    await trio.sleep(5)
                    await cluster.kill("m")
                    start = cluster.restart("m")  # type: ignore[assignment]  # nothing of its answer is used
                assert start is not None
                began = trio.current_time()
                await start
                master = cluster.brokers("m")["a"]
                await until(lambda: not master.registration.isolated, 5, 0.001)  # noqa: B023 - waited for in place
                # then it is online at once
                assert trio.current_time() - began < 0.5
            # and without any name server, too: it knows that it has always been alone
            await trio.sleep(5)
            await cluster.kill("m")
            await cluster.kill("n1")
            await cluster.restart("m")
            master = cluster.brokers("m")["a"]
            await until(lambda: not master.registration.isolated, 5)
            await until(lambda: "schedule" in master.services.running(), 1)

    run(scenario)


# --- name servers that know nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["answers", "is down"])
def test_a_name_server_that_has_just_booted_is_no_proof_of_being_alone(other: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, name_servers=("n1", "n2")) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 10)
            await trio.sleep(3)
            # given a slave that acts and is told more
            await ring.cluster.kill("c1")
            await until(lambda: slave in acting(ring), 5)
            await ring.commit(slave, 60)
            # and a first name server that forgets everything, while the slaves do not reach it
            await ring.cluster.kill("n1")
            if other == "is down":
                await ring.cluster.kill("n2")
            mends = [cut_between(ring, host, "n1") for host in ("c2", "c3")]
            await ring.cluster.restart("n1")
            # when the master comes back
            await ring.cluster.restart("c1")
            again = ring.broker("g0", 0)
            await until(lambda: not again.registration.isolated, 40)
            # then it has asked who is left of its group all the same
            assert again.offsets.query("readers", TOPIC, 0) == 60
            for mend in mends:
                mend()

    run(scenario)


@pytest.mark.parametrize("young", ["n1", "n2"])
def test_a_master_that_remembers_nobody_asks_every_name_server_for_its_slave(young: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, name_servers=("n1", "n2")) as pair:
            master = pair.broker("m")
            await pair.commit(master, 5)
            await trio.sleep(5)
            # given a slave that acts, and a master that has lost the file which tells of it
            await pair.cluster.kill("m")
            await until(pair.acts, 10)
            await pair.commit(pair.broker("s"), 35)
            disk, path = pair.cluster.host("m").disk, config_path(master.options.store, FILE_NAME)
            for copy in (path, path + ".bak"):
                if disk.exists(copy):
                    disk.remove(copy)
            # and a name server that has just booted, and that the slave does not reach
            pair.cluster.partition([young], ["s"])
            await pair.cluster.kill(young)
            await pair.cluster.restart(young)
            # when the master comes back
            await pair.cluster.restart("m")
            master = pair.broker("m")
            assert master.member_group.memory.members is None
            await until(lambda: not master.registration.isolated, 30)
            # then the other name server has told it of its slave before anybody finds it
            assert master.offsets.query("readers", TOPIC, 0) == 35

    run(scenario)


def test_a_remembered_slave_that_is_gone_delays_the_return_by_one_timeout_and_is_told_of() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            # given a slave that is gone for good, of which a fresh name server knows nothing
            await pair.cluster.kill("m")
            await pair.cluster.kill("s")
            await pair.cluster.kill("n1")
            await pair.cluster.restart("n1")
            # when the master comes back
            await pair.cluster.restart("m")
            master = pair.broker("m")
            took = await until(lambda: not master.registration.isolated, 30)
            # then it waits for one timeout and says for whom
            assert 9 < took < 15
            roster = loads((await pair.ask(master, RequestCode.GET_BROKER_ROSTER, {})).body)
            late = next(each for each in roster["services"] if each["name"] == "late take-over")
            assert f"slave 1 at {pair.cluster.address('s')}:" in late["reason"]
            assert any("slave 1" in warning for warning in roster["warnings"])

    run(scenario)


# --- slaves that do not do their part ------------------------------------------------------------------------------


def stuck(broker: Broker, how: str) -> Callable[[], None]:
    """Let *broker* not answer its group any more, or answer nonsense; return what ends this."""
    before = {}
    for code in (RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.GET_ALL_CONSUMER_OFFSET):
        handler = before[code] = broker.server.handler(code)
        assert handler is not None
        if how == "does not answer":
            broker.server.register(code, lambda connection, command: None)
    if how != "does not answer":
        torn = b'{"offsetTable":{"orders@readers":{0:'
        broker.server.register(code, lambda connection, command: response(command, body=torn))

    def mend() -> None:
        for code, handler in before.items():
            broker.server.register(code, handler)  # type: ignore[arg-type]  # it was registered before

    return mend


@pytest.mark.parametrize(("how", "wait_ms"), [("does not answer", 60_000), ("answers 43 with nonsense", 20_000)])
def test_a_slave_that_is_stuck_hides_its_returning_master_for_a_bounded_time(how: str, wait_ms: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"preOnlineMaxWaitMillis": str(wait_ms)}) as ring:
            await ring.commit(ring.broker("g0", 0), 10)
            await trio.sleep(3)
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 5)
            await ring.commit(slave, 17)
            # given a slave whose heartbeats arrive but whose port is stuck
            mend = stuck(slave, how)
            # when the master comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            took = await until(lambda: not master.registration.isolated, 120)
            # then it goes on without that slave when its patience is over, and says so
            assert wait_ms / 1000 - 1 < took < wait_ms / 1000 + 8
            rules = master.session.rules
            assert isinstance(rules, RoleServices)
            assert rules.report is not None
            assert "slave 1" in rules.report.trouble
            assert "left out" in rules.report.trouble
            roster = loads((await ring.ask(master, RequestCode.GET_BROKER_ROSTER)).body)
            assert any("slave 1" in warning for warning in roster["warnings"])
            # and takes over what the slave knows as soon as it can be asked
            assert master.offsets.query("readers", TOPIC, 0) == 10
            mend()
            await until(lambda: master.offsets.query("readers", TOPIC, 0) == 17, 30)
            await trio.sleep(1)
            roster = loads((await ring.ask(master, RequestCode.GET_BROKER_ROSTER)).body)
            assert roster["warnings"] == []

    run(scenario)


def test_an_operator_who_cannot_wait_ends_pre_online_by_hand() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.commit(ring.broker("g0", 0), 10)
            await trio.sleep(3)
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 5)
            await ring.commit(slave, 17)
            mend = stuck(slave, "does not answer")
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await trio.sleep(8)
            # given a master that waits, and says for whom
            assert master.registration.isolated
            roster = loads((await ring.ask(master, RequestCode.GET_BROKER_ROSTER)).body)
            assert any("pre-online waits" in warning for warning in roster["warnings"])
            # when an operator ends it
            assert (await ring.ask(master, RequestCode.FINISH_PRE_ONLINE)).code == 0
            # then it is found at once, and takes over later what is missing
            await until(lambda: not master.registration.isolated, 1)
            await ring.online()
            assert master.offsets.query("readers", TOPIC, 0) == 10
            mend()
            await until(lambda: master.offsets.query("readers", TOPIC, 0) == 17, 15)
            # and who is online already says that there is nothing to end
            answer = await ring.ask(master, RequestCode.FINISH_PRE_ONLINE)
            assert (answer.code, "not in pre-online" in str(answer.remark)) == (22, True)

    run(scenario)


# --- members that disagree, and addresses that do ------------------------------------------------------------------


async def warnings(pair: Pair, host: str) -> list[str]:
    return list(loads((await pair.ask(pair.broker(host), RequestCode.GET_BROKER_ROSTER, {})).body)["warnings"])


async def shown_in_route(pair: Pair) -> list[str]:
    question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    answer = await pair.client.invoke(pair.cluster.name_servers, question, 3_000)
    return sorted(loads(answer.body)["brokerDatas"][0]["brokerAddrs"]) if answer.code == 0 else []


def test_no_slave_acts_for_a_master_that_would_take_nothing_back() -> None:
    async def scenario(source: random.Random) -> None:
        # given a group whose members disagree about enableSlaveActingMaster
        async with open_pair(source, {"enableSlaveActingMaster": "false"}) as pair:
            assert any("enableSlaveActingMaster is false at member 0" in each for each in await warnings(pair, "s"))
            # when the master dies
            await pair.cluster.kill("m")
            for _ in range(100):
                await trio.sleep(0.2)
                # then no slave takes its place, in no service and in no route: what clients told it would be lost
                assert not pair.acts()
                assert "0" not in await shown_in_route(pair)
            # also when the slave starts anew meanwhile
            await pair.cluster.kill("s")
            await pair.cluster.restart("s")
            await trio.sleep(15)
            assert not pair.acts()
            assert "0" not in await shown_in_route(pair)

    run(scenario)


def test_a_member_that_will_not_act_is_told_of_by_those_that_would() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, None, {"enableSlaveActingMaster": "false"}) as pair:
            assert any("enableSlaveActingMaster is false at member 1" in each for each in await warnings(pair, "m"))

    run(scenario)


def test_a_slave_is_found_whatever_address_it_connects_from() -> None:
    async def scenario(source: random.Random) -> None:
        # given a slave that name servers list by another address than that of its connections
        async with open_pair(source, None, {"brokerIP1": ELSEWHERE}) as pair:
            await pair.commit(pair.broker("m"), 5)
            await trio.sleep(3)
            await pair.cluster.kill("m")
            await until(pair.acts, 5)
            await pair.commit(pair.broker("s"), 35)
            # when the master is back
            await pair.cluster.restart("m")
            master = pair.broker("m")
            took = await until(lambda: not master.registration.isolated, 30)
            # then it sees that the slave copies, and does not wait in vain
            assert took < 3
            rules = master.session.rules
            assert isinstance(rules, RoleServices)
            assert rules.report is not None
            assert rules.report.trouble == ""
            assert master.offsets.query("readers", TOPIC, 0) == 35

    run(scenario)
