"""Settings of a failover that are changed while brokers run: they count as if they had stood there from the start."""

from __future__ import annotations

import random

import pytest
import trio
from container_pair import Pair, open_pair
from container_ring import TOPIC, run

from understudy.broker.storage import config_path
from understudy.container.role_services import RoleServices
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.runtime.table import load_table
from understudy.testkit.waiting import until

ACTING = "enableSlaveActingMaster"
OFF = {ACTING: "false"}


def rules_of(pair: Pair, host: str) -> RoleServices:
    rules = pair.broker(host).session.rules
    assert isinstance(rules, RoleServices)
    return rules


async def cut_off_with_commits(pair: Pair) -> None:
    """Cut the master off until its slave acts, and has been told what the master does not know; then heal."""
    await pair.commit(pair.broker("m"), 5)
    await trio.sleep(3)
    pair.cluster.partition(["m"], ["s", "n1"])
    await until(pair.acts, 30)
    await pair.commit(pair.broker("s"), 35)
    await trio.sleep(10)
    pair.cluster.heal()


@pytest.mark.parametrize(("order", "wait_seconds"), [("ms", 2), ("sm", 12)])
def test_a_pair_whose_slave_may_act_from_now_on_gives_back_what_the_slave_was_told(
    order: str, wait_seconds: int
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, OFF, OFF) as pair:
            master = pair.broker("m")
            # given a pair that learns while it runs that its slave may act
            for host in order:
                await pair.set(pair.broker(host), ACTING, "true")
            # then the name servers hear so within the second
            await until(lambda: {"heartbeat", "member group", "absence watch"} <= set(master.services.running()), 1)
            await trio.sleep(wait_seconds)
            kept = await pair.cluster.host("m").disk.in_thread(
                lambda: load_table(pair.cluster.host("m").disk, config_path(master.options.store, "members.json"))
            )
            assert kept.data is not None
            assert sorted(kept.data["members"]) == ["0", "1"]
            # when the master is cut off, and its slave acts
            await pair.commit(master, 5)
            await trio.sleep(3)
            pair.cluster.partition(["m"], ["s", "n1"])
            took = await until(pair.acts, 30)
            assert took < 15
            await trio.sleep(4)
            # then the master leaves what is due to it
            assert "schedule" not in master.services.running()
            await pair.commit(pair.broker("s"), 35)
            await trio.sleep(10)
            # and takes back what the slave was told before anybody finds it again
            pair.cluster.heal()
            await until(lambda: master.registration.isolated, 10)
            await until(lambda: not master.registration.isolated, 30)
            assert master.offsets.query("readers", TOPIC, 0) == 35
            assert rules_of(pair, "m").report is not None
            await until(lambda: not pair.acts(), 5)

    run(scenario)


def test_a_slave_refuses_sends_as_its_settings_say_now() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            slave, codes = pair.broker("s"), []
            header = {"a": "writers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
            message = request(RequestCode.SEND_MESSAGE_V2, header, b"x")
            for value in ("true", "false", "true"):
                await pair.set(slave, ACTING, value)
                codes.append((await pair.client.invoke(slave.identity.address, message, 5_000)).code)
            assert codes == [
                ResponseCode.SERVICE_NOT_AVAILABLE,
                ResponseCode.SYSTEM_BUSY,
                ResponseCode.SERVICE_NOT_AVAILABLE,
            ]

    run(scenario)


@pytest.mark.parametrize("skips", [False, True])
def test_whether_a_broker_skips_pre_online_is_what_its_settings_say_now(skips: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {"skipPreOnline": str(not skips).lower()}) as pair:
            await pair.set(pair.broker("m"), "skipPreOnline", str(skips).lower())
            await cut_off_with_commits(pair)
            await until(lambda: not pair.acts(), 30)
            await trio.sleep(5)
            assert pair.broker("m").offsets.query("readers", TOPIC, 0) == (5 if skips else 35)

    run(scenario)


def test_a_slave_that_may_act_again_does_not_go_by_what_it_saw_of_its_group_before() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            slave = pair.broker("s")
            # given a slave that acts, is no longer to, and does not hear that its master is back
            await pair.cluster.kill("m")
            await until(pair.acts, 10)
            await pair.set(slave, ACTING, "false")
            await until(lambda: not pair.acts(), 1)
            pair.cluster.partition(["s"], ["m", "n1"])
            await pair.cluster.restart("m")
            await until(lambda: not pair.broker("m").registration.isolated, 90)
            # when it may act again
            await pair.set(slave, ACTING, "true")
            # then it does not before it has asked
            for _ in range(100):
                assert not pair.acts()
                await trio.sleep(0.1)
            pair.cluster.heal()
            await until(lambda: slave.member_group.members is not None, 10)
            assert not pair.acts()

    run(scenario)


def test_a_master_comes_to_the_end_of_its_pre_online_also_when_no_slave_may_act_any_more() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {"preOnlineMaxWaitMillis": "20000"}) as pair:
            await pair.commit(pair.broker("m"), 5)
            await trio.sleep(3)
            await pair.cluster.kill("m")
            await until(pair.acts, 10)
            # given a master that waits for its slave
            pair.cluster.partition(["m"], ["s"])
            await pair.cluster.restart("m")
            master = pair.broker("m")
            await trio.sleep(5)
            assert rules_of(pair, "m").returning is not None
            # when the key is taken away
            await pair.set(master, ACTING, "false")
            await trio.sleep(2)
            # then it is not to be found or read from before it is done, and then it is
            assert master.registration.isolated
            assert master.presence.unreadable
            await until(lambda: not master.registration.isolated, 30)
            assert not master.presence.unreadable

    run(scenario)
