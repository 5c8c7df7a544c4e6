"""What a led group promises of replicas that join it, of old files, and of controllers that are told anew."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from test_broker_led_asked import elect
from test_broker_led_replication import Group, open_group
from test_broker_led_rows import others, part

from understudy.broker.broker import Broker
from understudy.broker.led.controllers import UnansweredError
from understudy.broker.role import Role
from understudy.controller import metadata
from understudy.format.json_dialect import loads
from understudy.format.record import decode_records
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import open_background
from understudy.testkit.first_pull import first_pull
from understudy.testkit.led.group import BROKERS, CONTROLLERS, TOPIC, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}
NAME = "controllers.example"


@pytest.mark.covers("AS-05", "IT-18")
def test_a_third_replica_that_joins_a_live_pair_gets_old_and_new_messages() -> None:
    got: list[tuple[int, bytes]] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        got.extend((each.queue_offset, bytes(each.body)) for each in messages)

    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            third = others(first)[1]
            await group.kill(third)
            await until(lambda: len(group.members()) == 2)
            await group.create_topic(first)
            world, servers = group.cluster.client_world("clients"), group.cluster.name_servers
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            async with (
                open_producer(world, servers, "writers") as producer,
                open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options),
            ):
                old = [(await producer.send(Message(TOPIC, b"%d" % number))).queue_offset for number in range(10)]
                assert old == list(range(10))
                # when a replica comes whose disk is empty
                group.cluster.host(third).disk.remove_tree("/data/store")
                await group.start_broker(third)
                await group.ready(3)
                for number in range(10, 20):
                    await producer.send(Message(TOPIC, b"%d" % number))
                await until(lambda: len(got) == 20)
            # then it has them all, those who consume got each once, and the master says that both follow
            sent = [b"%d" % number for number in range(20)]
            assert sorted(got) == list(enumerate(sent))
            assert part(group, third).own_id == 4
            await until(lambda: group.bodies(third) == sent)
            status = loads((await group.ask(first, RequestCode.GET_BROKER_HA_STATUS)).body)
            rows = status["haConnectionInfo"]
            assert [row["inSync"] for row in rows] == [True, True]
            assert {row["slaveAckOffset"] for row in rows} == {status["masterCommitLogMaxOffset"]}

    run_seed(scenario, 1)


@pytest.mark.parametrize("keys", [{}, ALL])
def test_a_slave_that_is_far_away_comes_back_into_the_set_while_sends_never_cease(keys: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys) as group, open_background() as nursery:
            master = await group.ready(3)
            await group.create_topic(master)
            third = others(master)[1]
            codes: list[int] = []

            async def send() -> None:
                codes.append(await group.send(master, b"%d" % len(codes)))

            async def send_all() -> None:
                while True:
                    nursery.start_soon(send)
                    await trio.sleep(0.002)

            # given something is always on its way to a slave whose reports take ten times the pause between sends
            await group.kill(third)
            await until(lambda: len(group.members()) == 2)
            group.cluster.slow(third, LinkQuality(delay_seconds=(0.01, 0.012)))
            nursery.start_soon(send_all)
            # when it is started again
            await group.start_broker(third)
            # then it is of the set, and nothing was refused meanwhile
            await until(lambda: third in group.members(), 5)
            assert set(codes) == {0}
            nursery.cancel_scope.cancel()

    run_seed(scenario, 1)


async def send_ten(group: Group, master: Broker, turn: int) -> list[bytes]:
    bodies = [b"%d-%d" % (turn, number) + bytes(300) for number in range(10)]
    assert [await group.send(master, body) for body in bodies] == [0] * 10
    return bodies


def bodies_from(broker: Broker, begin: int) -> list[bytes]:
    got = broker.store.get("orders", 0, begin, 32, 1 << 20)
    return [record.body for each in got.parts for record in decode_records(each)]


def epochs(group: Group, number: int) -> list[int]:
    return [epoch for epoch, _, _ in group.part(number).epochs()]


@pytest.mark.covers("R220", "HA-07")
def test_epochs_go_with_the_files_they_were_in_and_all_follow_a_master_that_has_older_ones() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"mappedFileSizeCommitLog": "5200", "fileReservedTime": "0"}
        async with open_group(source, keys) as group:
            # given a file for each of two epochs, of which the master deletes the first
            await group.stop(3)
            sent = await send_ten(group, await group.elect(1), 0)
            master = await group.elect(1)
            sent += await send_ten(group, master, 1)
            await group.in_step()
            assert epochs(group, 1) == [1, 2, 3]
            assert (await group.ask(master, RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
            await until(lambda: master.store.min_physical_offset == 5200, 120)
            assert epochs(group, 1) == [3]
            # then who joins it has what it still has
            joins = await group.start(3)
            await joins.change_role(Role("SLAVE", 3, group.epoch, "elected another"))
            group.let_follow(3, master)
            await until(lambda: bodies_from(joins, 10) == sent[10:])
            assert joins.store.min_physical_offset == 5200
            # and both go on with a master that has the first file, too
            sent += await send_ten(group, await group.elect(2), 2)
            await until(lambda: all(bodies_from(group.brokers[number], 10) == sent[10:] for number in (1, 2, 3)))
            assert group.bodies(group.brokers[2]) == sent
            assert [epochs(group, number) for number in (1, 2, 3)] == [[3, 4], [1, 2, 3, 4], [3, 4]]
            for number in (1, 3):  # what was forgotten is so on the disk as well
                text = group.cluster.host(f"c{number}").disk.read("/data/store/epochFileCheckpoint")
                assert [line.split(b"-")[0] for line in text.splitlines()[2:]] == [b"3", b"4"]

    run_seed(scenario, 4)


@pytest.mark.covers("CC-22")
def test_controllers_may_be_given_by_address_and_by_name_while_a_broker_is_led() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            addresses = [f"{group.cluster.address(each)}:{API_PORT}" for each in CONTROLLERS]
            group.cluster.network.alias(NAME, *(group.cluster.address(each) for each in CONTROLLERS[1:]))
            text = f"controllerAddr={addresses[0]};{NAME}:{API_PORT}\nfetchControllerAddrByDnsLookup=true\n".encode()
            for name in (first, *others(first)):
                assert (await group.ask(name, RequestCode.UPDATE_BROKER_CONFIG, body=text)).code == 0
                led = group.brokers[name].led
                assert led is not None
                # then all of them are known at once: each counts the heartbeats it hears itself
                await until(lambda led=led: led.servers.addresses == addresses, 1)  # type: ignore[misc]
            await trio.sleep(5)
            assert group.master() == first
            # and when they name another master, both change their roles
            second = others(first)[0]
            await elect(group, second)
            await group.ready(3)
            assert group.master() == second and group.brokers[first].role.is_slave

    run_seed(scenario, 7)


@pytest.mark.covers("R240")
@pytest.mark.parametrize("slaves_read", ["false", "true"])
def test_who_has_read_everything_is_sent_back_by_nobody_while_masters_change(slaves_read: str) -> None:
    """A real client that is told of another offset (21) gives its queue up, and reads again from there."""
    codes = Counter[int]()

    async def ask_all(group: LedGroup, offset: list[int], name: str) -> None:
        while True:
            fields = {**first_pull(TOPIC), "queueOffset": str(offset[0])}
            with contextlib.suppress(RemotingError):
                answer = await group.ask(name, RequestCode.PULL_MESSAGE, fields, timeout_ms=500)
                codes[answer.code] += 1
                if answer.code == 0:
                    offset[0] = max(offset[0], int((answer.ext or {})["nextBeginOffset"]))
            await trio.sleep(0.001)

    async def send_to_master(group: LedGroup, taken: list[int]) -> None:
        while True:
            master = group.master()
            if master is not None and await group.send(master, b"%d" % len(taken)) == 0:
                taken.append(len(taken))
            await trio.sleep(0.001)

    async def scenario(source: random.Random) -> None:
        keys = ALL | {"inSyncReplicas": "2", "slaveReadEnable": slaves_read}
        async with led_group(source, keys) as group, trio.open_nursery() as nursery:
            master = await group.ready(3)
            await group.create_topic(master)
            assert await group.send(master, b"first") == 0
            offset, taken = [0], list[int]()
            for name in BROKERS:
                nursery.start_soon(ask_all, group, offset, name)
            nursery.start_soon(send_to_master, group, taken)
            for _ in range(4):
                master = await group.ready(3)
                await trio.sleep(source.uniform(0.1, 0.3))
                await elect(group, source.choice(others(master)))
            await group.ready(3)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
            assert offset[0] > 50 and len(taken) > 50

    run_seed(scenario, 8)
    assert codes[ResponseCode.SUCCESS] > 50
    assert ResponseCode.PULL_OFFSET_MOVED not in codes


async def wipe_controllers(group: LedGroup) -> None:
    """Start all controllers anew, with empty disks, while the brokers live."""
    for name in CONTROLLERS:
        await group.kill(name)
        group.cluster.host(name).disk.remove_tree("/controller")
    await trio.sleep(3)
    for name in CONTROLLERS:
        await group.start_controller(name)


def masters(group: LedGroup) -> list[str]:
    """The hosts of all that take themselves for masters."""
    return [name for name, broker in group.brokers.items() if not broker.role.is_slave]


@pytest.mark.parametrize("seed", [3, 4, 6])
def test_living_brokers_keep_their_ids_whoever_comes_first_to_controllers_that_know_nothing(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            ids = {name: part(group, name).own_id for name in BROKERS}
            await wipe_controllers(group)
            await group.ready(3)
            assert {name: part(group, name).own_id for name in BROKERS} == ids
            assert masters(group) == [group.master()]
            assert await group.send(masters(group)[0], b"after") == 0
            await until(lambda: all(group.bodies(name) == [b"before", b"after"] for name in BROKERS), 10)

    run_seed(scenario, seed)


@pytest.mark.parametrize("keys", [{}, ALL])
def test_no_two_brokers_lead_in_one_epoch_though_controllers_give_the_id_of_one_to_another(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "OWN_IDS", 1_000)  # as real ones, and those before it

    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            before = {name: part(group, name).own_id for name in BROKERS}
            await wipe_controllers(group)
            # given the first to come gets the id of another one, and is elected
            await until(lambda: (facts := group.facts()) is not None and facts.master_id == 1, 20)
            await trio.sleep(20)
            taken, owner = group.host_of(1), next(name for name in BROKERS if before[name] == 1)
            assert taken != owner
            # then it takes messages alone, and the other one says why it does not
            assert await group.send(taken, b"taken") == 0
            assert await group.send(owner, b"refused") != 0
            assert group.brokers[owner].role.epoch < group.brokers[taken].role.epoch
            led = group.brokers[owner].led
            assert led is not None
            assert f"is alive at {group.brokers[taken].identity.address}" in led.ids.problem

    run_seed(scenario, 3)


async def does_not_answer(leader: str) -> dict[int, str]:
    await trio.sleep(0.01)
    raise UnansweredError("away")


@pytest.mark.parametrize(("keys", "by"), [({}, "who has it"), (ALL, "who has it"), ({}, "who is master")])
def test_a_lone_master_whose_id_was_given_to_another_acknowledges_nothing(
    keys: dict[str, str], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "OWN_IDS", 1_000)

    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys) as group:
            await group.ready(3)
            owner = group.host_of(1)
            slaves = [name for name in BROKERS if name != owner]
            # given a master that is alone, and does not hear the controllers when they have forgotten everything
            for name in slaves:
                await group.kill(name)
            await until(lambda: group.master() == owner and group.members() == [owner], 30)
            await group.create_topic(owner)
            assert await group.send(owner, b"before") == 0
            group.cluster.partition([owner], CONTROLLERS)
            led = group.brokers[owner].led
            assert led is not None
            if by == "who is master":  # it hears that only
                monkeypatch.setattr(led._controllers, "addresses", does_not_answer)
            await wipe_controllers(group)
            # when another one is given its id, and leads
            await group.start_broker(slaves[0])
            await until(lambda: (facts := group.facts()) is not None and facts.master_id == 1, 30)
            assert group.host_of(1) == slaves[0]
            group.cluster.heal()
            # then it never leads in the epoch of the other one, and takes nothing any more
            for _ in range(100):
                await trio.sleep(0.2)
                assert group.brokers[owner].role.epoch < group.brokers[slaves[0]].role.epoch
            assert await group.send(owner, b"refused") != 0
            assert b"refused" not in group.bodies(owner)

    run_seed(scenario, 3)


def test_a_slave_whose_id_was_given_to_another_does_not_follow_under_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            slave = others(await group.ready(3))[0]
            led, own_id = group.brokers[slave].led, part(group, slave).own_id
            assert led is not None
            follows, said = led._registered, {own_id: "10.0.0.9:10911"}

            async def addresses(leader: str) -> dict[int, str]:
                await trio.sleep(0.01)
                return said

            # given the master is still the same, of whom nothing else is said
            monkeypatch.setattr(led._controllers, "addresses", addresses)
            await until(lambda: led._registered is not follows, 15)
            assert "another broker has the id of this one" in caplog.text

    run_seed(scenario, 1)
