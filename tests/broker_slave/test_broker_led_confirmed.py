"""A new master acknowledges nothing before the controllers have heard that it leads: until then others may be."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import ALL, open_group
from test_broker_led_rows import part

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import Word
from understudy.ha.switch.sync_state import Moment
from understudy.testkit.led.group import BROKERS, CONTROLLERS, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

LAZY = {"flushIntervalCommitLog": "60000", "flushCommitLogThoroughInterval": "60000"}
SLOW_SECONDS = 0.2


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
@pytest.mark.parametrize("keys", [ALL, ALL | LAZY], ids=["default flush", "lazy flush"])
def test_a_message_survives_a_successor_that_loses_its_power_before_its_disk_has_it(
    power: bool, keys: dict[str, str]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**keys, "inSyncReplicas": "2"}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"acknowledged") == 0
            for each in BROKERS:
                group.cluster.host(each).disk.sync_seconds = SLOW_SECONDS
            await group.kill(first, power=power)
            await until(lambda: group.members() not in ([], [first]) and len(group.members()) == 1, 20, 0.001)
            second = group.members()[0]
            await group.kill(second, power=True)
            # then the third one leads, whoever is away
            third = next(each for each in BROKERS if each not in (first, second))
            await until(lambda: group.master() == third, 10)
            for each in (first, second):
                await group.start_broker(each)
            master = await group.ready(3, 60)
            await until(lambda: group.bodies(master) == [b"acknowledged"], 10)

    for seed in range(2):
        run_seed(scenario, seed)


@pytest.mark.parametrize(
    "said",
    [UnansweredError("no answer", certain=True), RefusedError(2013, "Broker metadata is not existed")],
    ids=["nothing", "they do not know the group"],
)
def test_nothing_is_acknowledged_before_the_controllers_have_heard_that_the_master_leads(
    said: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group, trio.open_nursery() as nursery:
            first = await group.ready(3)
            await group.create_topic(first)
            answering, alter = trio.Event(), Controllers.alter_set

            async def late(controllers: Controllers, leader: str, role: Word, members: frozenset[int]) -> Word:
                if not answering.is_set():
                    raise said
                return await alter(controllers, leader, role, members)

            monkeypatch.setattr(Controllers, "alter_set", late)
            await group.kill(first)
            await until(lambda: group.master() not in (None, first), 10)
            second = group.master()
            assert second is not None
            codes: list[int] = []

            async def send() -> None:
                codes.append(await group.send(second, b"first of all"))

            nursery.start_soon(send)
            await trio.sleep(1)
            assert codes == []
            assert group.bodies(second) == []
            answering.set()
            await until(lambda: codes == [0], 2)
            assert group.bodies(second) == [b"first of all"]

    run_seed(scenario, 1)


def test_sends_to_a_master_that_the_controllers_have_not_heard_and_that_are_lost_are_refused_unwritten() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group, trio.open_nursery() as nursery:
            first = await group.ready(3)
            await group.create_topic(first)
            await group.kill(first)

            def leading() -> list[str]:
                keepers = {each: part(group, each)._keeper for each in group.brokers}
                return [each for each, keeper in keepers.items() if keeper is not None and keeper.unconfirmed]

            # given controllers that are lost just when they have elected another one
            await until(lambda: bool(leading()), 10, 0.0001)
            second = leading()[0]
            group.cluster.partition(BROKERS, CONTROLLERS)
            for number in range(20):
                nursery.start_soon(group.send, second, b"%d" % number)
                await trio.sleep(0.2)
            end = group.brokers[second].store.max_physical_offset
            assert await group.send(second, b"refused") not in (0, -1)
            assert group.brokers[second].store.max_physical_offset == end
            # then it takes messages again once they are back
            group.cluster.heal()
            master = await group.ready(2)
            assert await group.send(master, b"goes on") == 0

    run_seed(scenario, 1)


def test_a_master_alone_that_is_elected_again_and_again_goes_on() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for each in set(BROKERS) - {first}:
                await group.kill(each)
            await until(lambda: group.members() == [first], 10)
            for turn in range(3):
                network, address = group.cluster.network, group.cluster.address
                facts = group.facts()
                assert facts is not None
                before = facts.master_epoch
                for each in group.controllers:
                    network.reset(address(first), address(each))
                await until(lambda before=before: (facts := group.facts()) and facts.master_epoch > before, 10, 0.001)
                await until(lambda: group.master() == first, 10)
                assert await group.send(first, b"%d" % turn) == 0
            keeper = part(group, first)._keeper
            assert keeper is not None and keeper.unconfirmed is None

    run_seed(scenario, 1)


def test_a_master_that_goes_on_in_a_newer_epoch_has_its_log_on_its_disk_first() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL | LAZY) as group:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            assert await group.send(master, b"message") == 0
            end = master.store.max_physical_offset
            assert master.store.flushed_offset < end
            await group.part(1).same_role(group.epoch + 1)
            assert master.store.flushed_offset >= end
            assert group.part(1).last_epoch() == group.epoch + 1

    run_seed(scenario, 1)


def test_slaves_get_what_is_written_while_an_epoch_begins_as_of_that_epoch() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group, trio.open_nursery() as nursery:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            assert await group.send(master, b"before") == 0
            # given a slow disk, and messages that come while it notes an epoch
            group.cluster.host("c1").disk.sync_seconds = 0.5
            codes: list[int] = []

            async def send(number: int) -> None:
                await trio.sleep(number / 10)
                codes.append(await group.send(master, b"%d" % number))

            for number in range(9):
                nursery.start_soon(send, number)
            part = group.part(1)
            clock = master.world.clock
            part.prove(Moment(clock.monotonic(), clock.wall_ms() / 1000), group.set_epoch)
            await part.same_role(group.epoch + 1)
            begins = part.epochs()[-1].start_offset
            assert begins < master.store.max_physical_offset
            part.confirmed(group.epoch + 1)
            await until(lambda: len(codes) == 9, 10)
            assert codes == [0] * 9
            # then all have the same epochs, and a slave that connects anew cuts nothing
            cuts: list[int] = []

            async def note(at: int) -> None:
                cuts.append(at)

            for number in (2, 3):
                assert group.part(number).epochs() == part.epochs()
                group.part(number).cutting.append(note)
                group.cluster.network.reset(group.cluster.address("c1"), group.cluster.address(f"c{number}"))
            await trio.sleep(5)
            assert group.members == {1, 2, 3}
            assert cuts == []

    run_seed(scenario, 1)


def test_a_slave_that_reports_while_the_role_still_begins_comes_into_the_set_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {**ALL, "minInSyncReplicas": "2", "checkSyncStateSetPeriod": "60000", "haSendHeartbeatInterval": "200"}
        async with led_group(source, keys) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            # given a name server that does not answer who is elected, for which its role waits
            second = min(set(BROKERS) - {first}, key=lambda each: part(group, each).own_id)
            group.cluster.network.cut(group.cluster.address("ns"), group.cluster.address(second))
            await group.kill(first)
            await until(lambda: group.master() == second, 10)
            await group.ready(2, 5)
            assert await group.send(second, b"after") == 0

    run_seed(scenario, 1)
