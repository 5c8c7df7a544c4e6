"""Three brokers led by three controllers: a master is elected without a person, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import cast

import pytest
import trio

from understudy.broker.led import following
from understudy.broker.led.following import Action, Event, Pace, Pushed, State
from understudy.broker.switch_replication import SwitchReplication
from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.testkit.led.group import BROKERS, CONTROLLERS, PORT, TOPIC, LedGroup, led_group
from understudy.testkit.led.history import run_led_seed
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}
IDENTITY = "/data/store/brokerIdentity"
FAR_PEER = cast(Connection, None)
"""Who pushes does not matter."""


def part(group: LedGroup, name: str) -> SwitchReplication:
    replication = group.brokers[name].replication
    assert isinstance(replication, SwitchReplication)
    return replication


async def routes(group: LedGroup) -> dict[str, str]:
    """What the name server shows of the group."""
    address = f"{group.cluster.address('ns')}:9876"
    answer = await group.client.invoke(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3_000)
    return dict(loads(answer.body)["brokerAddrTable"].get("g", {}).get("brokerAddrs", {}))


@pytest.mark.covers("R135", "R147", "R152", "R243", "R253", "R258", "R260", "R304", "CC-17")
def test_a_group_of_three_elects_a_master_and_another_one_when_it_is_killed() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(5)] == [0] * 5
            await until(lambda: all(group.bodies(name) == group.bodies(first) for name in BROKERS))
            shown = await routes(group)
            assert shown["0"] == group.brokers[first].identity.address
            assert len(shown) == 3
            # when the master is killed
            ids = {name: part(group, name).own_id for name in BROKERS}
            await group.kill(first)
            killed = trio.current_time()
            second = await group.ready(2)
            # then another one takes messages at once, under its own id
            assert await group.send(second, b"after") == 0
            assert trio.current_time() - killed < 0.2
            # and when it comes back, it has its id, follows and has everything
            await group.start_broker(first)
            await group.ready(3)
            assert group.master() == second
            sent = [b"%d" % number for number in range(5)] + [b"after"]
            await until(lambda: all(group.bodies(name) == sent for name in BROKERS), 10)
            assert {name: part(group, name).own_id for name in BROKERS} == ids
            assert sorted(ids.values()) == [1, 2, 3]
            assert group.cluster.host(first).disk.read(IDENTITY) == f"DefaultCluster#g#{ids[first]}".encode()
            for name in BROKERS:
                await until(lambda name=name: part(group, name).last_epoch() == 2)  # type: ignore[misc]

    run_seed(scenario, 1)


@pytest.mark.parametrize("only", ["true", "false"])
def test_a_master_that_asks_for_registered_slaves_gives_a_stranger_nothing(only: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL | {"haRegisteredSlavesOnly": only}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"secret") == 0
            # when a stranger greets as a slave, and then asks for the log
            host, _, port = group.brokers[first].identity.ha_address.rpartition(":")
            stranger = await group.cluster.network.host("10.9.9.9").connect(host, int(port), 1)
            heard = b""
            with trio.move_on_after(3), contextlib.suppress(trio.BrokenResourceError):
                await stranger.send_all(struct.pack(">ihhq", 1, 0, 0, 7))
                heard += await stranger.receive_some(1 << 16)
                await stranger.send_all(struct.pack(">iq", 2, 0))
                while b"secret" not in heard and (data := await stranger.receive_some(1 << 16)):
                    heard += data
            assert (only == "false") is (b"secret" in heard)
            await stranger.aclose()
            # then the slaves follow all the same, also the next master, and one that comes back
            await group.kill(first)
            second = await group.ready(2)
            assert await group.send(second, b"after") == 0
            await group.start_broker(first)
            await group.ready(3)
            await until(lambda: all(group.bodies(name) == [b"secret", b"after"] for name in BROKERS), 10)

    run_seed(scenario, 13)


@pytest.mark.covers("R128", "R150", "R263", "AS-04")
def test_without_controllers_a_new_broker_waits_unseen_and_a_led_one_goes_on() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for name in CONTROLLERS:
                await group.kill(name)
            # then traffic goes on
            await trio.sleep(20)
            assert await group.send(first, b"x") == 0
            # and a broker that comes back is not shown, takes nothing, says why, and lives
            other = next(name for name in BROKERS if name != first)
            await group.kill(other)
            broker = await group.start_broker(other)
            await trio.sleep(10)
            assert broker.led is not None
            assert broker.led.ids.problem.startswith("no answer of the controllers (10.0.0.")
            assert broker.identity.address not in (await routes(group)).values()
            assert await group.send(other, b"y") == 2
            # until they are there again
            for name in CONTROLLERS:
                await group.start_controller(name)
            await group.ready(3)
            assert group.master() == first

    run_seed(scenario, 2)


def test_a_master_that_lost_its_power_lets_the_others_in_its_set_come_first() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(20)] == [0] * 20
            # given a master whose power goes, and which is there again before anybody has missed it
            await group.kill(first, power=True)
            await group.start_broker(first)
            # then another one is elected, and nothing that was acknowledged is lost
            await group.ready(3)
            assert group.master() != first
            await until(lambda: all(len(group.bodies(name)) == 20 for name in BROKERS), 10)

    run_seed(scenario, 3)


@pytest.mark.covers("R327")
def test_a_push_of_a_stranger_changes_no_role() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            roles = {name: group.brokers[name].role for name in BROKERS}
            fields = {"masterBrokerId": "2", "masterAddress": "10.9.9.9:1", "masterEpoch": str(2**31 - 1)}
            body = b'{"syncStateSet":[2],"syncStateSetEpoch":99}'
            for name in BROKERS:
                answer = await group.ask(name, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields, body)
                assert answer.code == 0
                assert (await group.ask(name, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {}, b"{")).code == 0
            await trio.sleep(3)
            assert {name: group.brokers[name].role for name in BROKERS} == roles
            # and a true one counts afterwards
            await group.kill(first)
            assert await group.ready(2) != first

    run_seed(scenario, 4)


def test_a_flood_of_pushes_is_one_reason_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    step = following.step

    def noted(state: State, event: Event, now: float, pace: Pace) -> tuple[State, list[Action]]:
        if isinstance(event, Pushed):
            seen.append(event.word.epoch)
        return step(state, event, now, pace)

    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await trio.sleep(1)
            seen.clear()
            led = group.brokers[first].led
            assert led is not None
            # What no controller says keeps nothing out, however new it claims to be.
            strange = {"masterBrokerId": "3", "masterAddress": "10.9.9.9:1", "masterEpoch": str(2**31 - 1)}
            led.pushed(FAR_PEER, request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, strange, b'{"syncStateSet":[2]}'))
            for epoch in (*range(10, 1_010), 5):
                fields = {"masterBrokerId": "2", "masterAddress": "10.9.9.9:1", "masterEpoch": str(epoch)}
                body = b'{"syncStateSet":[2],"syncStateSetEpoch":99}'
                push = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields, body)
                assert led.pushed(FAR_PEER, push).code == 0
            await trio.sleep(1)
            assert seen == [1_009]
            assert await group.ready(3) == first

    monkeypatch.setattr(following, "step", noted)
    run_seed(scenario, 6)


def test_producers_find_a_master_that_was_elected_while_the_former_one_lives() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            world, name_server = group.cluster.client_world("writer"), f"{group.cluster.address('ns')}:9876"
            async with open_producer(world, name_server, "writers") as producer:
                await producer.send(Message(TOPIC, b"before"))
                other = next(name for name in BROKERS if name != first)
                leader = next(name for name, one in group.controllers.items() if one.member.leads())
                fields = {"brokerName": "g", "brokerId": str(part(group, other).own_id), "designateElect": "true"}
                elect = request(RequestCode.CONTROLLER_ELECT_MASTER, {"clusterName": "DefaultCluster", **fields})
                await trio.sleep(2)
                assert (await group.client.invoke(f"{group.cluster.address(leader)}:9878", elect, 3_000)).code == 0
                await until(lambda: group.master() == other and group.brokers[first].role.is_slave, 5)
                # then the next send is refused by the former one, and taken by its successor
                await trio.sleep(0.5)
                await producer.send(Message(TOPIC, b"after"))
            assert group.bodies(other) == [b"before", b"after"]

    run_seed(scenario, 9)


def test_a_new_master_calls_the_slaves_that_do_not_follow_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group, open_background() as nursery:
            first = await group.ready(3)
            # given a replica that does not ask where the master's log is, as real ones do not
            silent, second = (name for name in BROKERS if name != first)
            await group.kill(silent)
            await until(lambda: len(group.members()) == 2, 10)
            called: list[dict[str, str]] = []
            host = group.cluster.host(silent)
            group.cluster.network.power_on(host.address)
            server = RemotingServer(host.new_process().world, "0.0.0.0", PORT, name="real")
            server.register(
                RequestCode.EXCHANGE_BROKER_HA_INFO,
                lambda connection, command: called.append(dict(command.ext or {})),
            )
            await server.bind()
            nursery.start_soon(server.run)
            await group.kill(first)
            await until(lambda: group.master() == second, 10)
            elected = trio.current_time()
            # then it hears of it long before it registers with a name server again
            await until(lambda: len(called) > 0, 10)
            assert trio.current_time() - elected < 1
            identity = group.brokers[second].identity
            assert called[0] == {
                "masterAddress": identity.address,
                "masterHaAddress": identity.ha_address,
                "masterFlushOffset": "0",
            }
            # and not for ever
            await trio.sleep(60)
            count = len(called)
            await trio.sleep(60)
            assert len(called) == count < 12

    run_seed(scenario, 8)


def test_a_topic_that_only_one_slave_has_copied_keeps_its_messages_when_the_other_one_leads() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(3)] == [0] * 3
            # given a master that dies before both slaves have copied the row of a new topic
            heir, other = sorted((name for name in BROKERS if name != first), key=lambda name: part(group, name).own_id)
            row = group.brokers[first].topics.get(TOPIC)
            assert row is not None
            assert group.brokers[heir].topics.get(TOPIC) is None
            group.brokers[other].topics.update([row])
            await group.kill(first)
            assert await group.ready(2) == heir
            # then its successor knows the topic by its messages, and nobody deletes them
            assert group.brokers[heir].topics.get(TOPIC) == row
            await trio.sleep(15)
            assert group.bodies(heir) == group.bodies(other) == [b"0", b"1", b"2"]

    run_seed(scenario, 10)


def test_a_group_that_the_controllers_forgot_is_known_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            epoch = group.brokers[first].role.epoch
            leader = next(name for name, one in group.controllers.items() if one.member.leads())
            address = f"{group.cluster.address(leader)}:9878"
            fields = {"clusterName": "DefaultCluster", "brokerName": "g", "isCleanLivingBroker": "true"}
            clean = request(RequestCode.CLEAN_BROKER_DATA, fields)
            assert (await group.client.invoke(address, clean, 3_000)).code == 0
            await until(lambda: (facts := group.facts()) is not None and len(facts.replicas) == 3, 25)
            assert sorted(part(group, name).own_id for name in BROKERS) == [1, 2, 3]
            # and its epochs go on above those of the logs, so that nobody needs to start again
            second = await group.ready(3)
            assert group.brokers[second].role.epoch > epoch
            assert await group.send(second, b"after") == 0
            await until(lambda: all(group.bodies(name) == [b"before", b"after"] for name in BROKERS), 10)

    run_seed(scenario, 5)


@pytest.mark.parametrize("file", [b"DefaultCluster#other#1", b""])
def test_a_broker_with_an_identity_that_is_not_its_own_waits_until_it_is_mended(file: bytes) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            other = next(name for name in BROKERS if name != first)
            await group.kill(other)
            disk = group.cluster.host(other).disk
            right = disk.read(IDENTITY)
            disk.damage(IDENTITY, lambda data: file)
            broker = await group.start_broker(other)
            await trio.sleep(6)
            assert broker.led is not None
            assert broker.led.ids.problem.startswith(IDENTITY)
            assert broker.role.epoch == 0
            assert disk.read(IDENTITY) == file
            # when somebody writes the right one
            disk.damage(IDENTITY, lambda data: right)
            await group.ready(3)
            assert broker.role.is_slave and broker.role.epoch == 1

    run_seed(scenario, 6)


@pytest.mark.covers("R236", "R241")
@pytest.mark.parametrize(("seed", "seconds"), [(0, 8.0), (5, 8.0), (2_302_964, 10.0)])
def test_random_faults_lose_nothing_and_take_nothing_back(seed: int, seconds: float) -> None:
    result = run_led_seed(seed, seconds)
    assert result.violations == []
    assert result.counts["acknowledged"] > 50


def test_the_only_one_that_is_left_is_master_again_in_a_newer_epoch() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for name in BROKERS:
                if name != first:
                    await group.kill(name)
            await until(lambda: group.members() == [first], 10)
            before = group.brokers[first].role.epoch
            # given a master that the controllers have missed, and somebody else whom they hear and cannot elect
            other = next(name for name in BROKERS if name != first)
            group.cluster.partition([first], [other, *CONTROLLERS])
            await group.start_broker(other)
            await until(lambda: (facts := group.facts()) is not None and facts.master_id is None, 10)
            group.cluster.heal()
            # then it goes on in the epoch of its new election
            await group.ready(1)
            assert group.brokers[first].role.epoch > before
            assert part(group, first).last_epoch() == group.brokers[first].role.epoch
            assert await group.send(first, b"x") == 0

    run_seed(scenario, 7)
