"""Led groups of which the controllers hear nobody for a while, or all of which restart: that loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio

from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true", "inSyncReplicas": "2", "haSendHeartbeatInterval": "200"}
QUIET = {**ALL, "haSendHeartbeatInterval": "5000"}
"""Nothing is said on a connection that would show that it is dead."""
SENT = [b"%d" % number for number in range(20)]
TIMEOUT_SECONDS = 2.0
"""After this silence the controllers miss a broker."""
HANGS_SECONDS = 1000.0
SLOW_SECONDS = 5.0
NOTED_SECONDS = 25.0
"""By then what is confirmed is noted beside the log."""
FLUSHED_SECONDS = 20.0
IN_OFFICE_SECONDS = 10.0
"""By then there is a master: one who is elected and hangs is given up after :data:`TIMEOUT_SECONDS`."""


async def settled(group: LedGroup) -> str:
    """Return the master of a group of three that is complete and quiet."""
    master = await group.ready(3)
    await group.create_topic(master)
    await trio.sleep(2)
    return master


async def send_all(group: LedGroup, master: str) -> None:
    for body in SENT:
        assert await group.send(master, body) == 0


def hang(group: LedGroup, name: str) -> None:
    """Let nothing that the broker has its disk do end."""

    async def hanging(function: Callable[[], object], *, abandon: bool = False) -> None:
        await trio.sleep(HANGS_SECONDS)

    group.cluster.host(name).disk.in_thread = hanging  # type: ignore[assignment, method-assign]


def known(group: LedGroup) -> tuple[int | None, int, list[int]]:
    """Return master, epoch and set as the controllers have them now."""
    facts = group.facts()
    assert facts is not None
    return facts.master_id, facts.master_epoch, list(facts.sync_state_set)


def leading(group: LedGroup) -> list[str]:
    """The controllers that take themselves for the leader."""
    return [name for name, one in group.controllers.items() if one.member.leads()]


async def holds_all(group: LedGroup, *names: str) -> None:
    """Wait until one of *names* leads and takes messages, and look whether it has everything."""
    await until(lambda: group.master() in names, IN_OFFICE_SECONDS)
    master = group.master()
    assert master is not None
    with trio.fail_after(IN_OFFICE_SECONDS):
        while await group.send(master, b"more") != 0:  # noqa: ASYNC110 - it is a send, each time
            await trio.sleep(0.1)
    assert group.bodies(master)[: len(SENT)] == SENT


@pytest.mark.parametrize("power", [False, True])
def test_an_outage_between_controllers_and_brokers_changes_nothing(power: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            master = await settled(group)
            before = known(group)
            # given nobody hears the controllers; traffic goes on
            group.cluster.partition(CONTROLLERS, BROKERS)
            await trio.sleep(1.5 * TIMEOUT_SECONDS)
            await send_all(group, master)
            # then nobody is elected, who could not be heard either
            assert known(group) == before
            # and what is heard first, a slave perhaps, is no reason to depose the master
            group.cluster.heal()
            await trio.sleep(TIMEOUT_SECONDS)
            assert (group.master(), known(group)) == (master, before)
            # and the next one to lead has everything, as fast as ever
            await group.kill(master, power=power)
            await until(lambda: group.master() not in (None, master), 1.5 * TIMEOUT_SECONDS)
            await group.start_broker(master)
            await holds_all(group, *BROKERS)

    run_seed(scenario, 1)


async def lose_all_unconfirmed(group: LedGroup) -> None:
    """Kill all brokers, one after the other: each next one is elected, and none comes to lead."""
    for name in BROKERS:
        group.cluster.host(name).disk.sync_seconds = SLOW_SECONDS
    await trio.sleep(SLOW_SECONDS)
    before = known(group)[1]
    for name in [group.host_of(one) for one in known(group)[2]]:
        await group.kill(name)
        await trio.sleep(0.3)
    assert known(group)[1] > before + 1


@pytest.mark.parametrize("what", ["hang", "power"])
def test_those_who_were_away_and_have_lost_nothing_lead_when_the_first_one_cannot(what: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            await send_all(group, await settled(group))
            await lose_all_unconfirmed(group)
            first, *rest = reversed(BROKERS)
            for name in BROKERS:
                group.cluster.host(name).disk.sync_seconds = 0.0
            # given the first one to come is elected, and cannot make its log durable
            led = (await group.start_broker(first)).led
            assert led is not None
            await until(lambda: led.state is not None, 10, 0.0001)
            if what == "hang":
                hang(group, first)
            else:
                group.cluster.host(first).disk.sync_seconds = SLOW_SECONDS
            await until(lambda: known(group)[0] is not None, 10)
            assert group.host_of(known(group)[0] or 0) == first
            if what == "power":
                await group.kill(first, power=True)
                group.cluster.host(first).disk.sync_seconds = 0.0
                await group.start_broker(first)
            await trio.sleep(1)
            for name in rest:
                await group.start_broker(name)
            await holds_all(group, *rest)

    run_seed(scenario, 1)


def test_when_all_who_were_in_step_have_lost_their_memory_the_longest_log_leads() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            await send_all(group, await settled(group))
            await trio.sleep(2)  # what was sent is on all disks
            await lose_all_unconfirmed(group)
            for name in BROKERS:
                host = group.cluster.host(name)
                host.disk.lose_power()
                host.disk.sync_seconds = 0.0
            # given not all are back: the others may have more
            await group.start_broker("b3")
            await group.start_broker("b2")
            await trio.sleep(2 * TIMEOUT_SECONDS)
            assert group.master() is None
            await group.start_broker("b1")
            await holds_all(group, *BROKERS)

    run_seed(scenario, 1)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_lone_master_that_comes_back_when_nobody_is_heard_leads_again(flush: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, "flushDiskType": flush}) as group:
            master = await settled(group)
            await send_all(group, master)
            for name in BROKERS:
                if name != master:
                    await group.kill(name)
            await until(lambda: group.members() == [master], IN_OFFICE_SECONDS)
            before = known(group)[1]
            # given it loses its power, and nobody tells the controllers
            group.cluster.partition([master], CONTROLLERS)
            await group.kill(master, power=True)
            await trio.sleep(2 * TIMEOUT_SECONDS)
            assert known(group)[:2] == (1, before)
            group.cluster.heal()
            await group.start_broker(master)
            await until(lambda: group.master() == master, 3.0)
            assert known(group)[1] > before  # what it lost and what it writes now are not of one epoch
            await holds_all(group, master)

    run_seed(scenario, 1)


def test_who_comes_back_without_its_log_waits_for_those_who_have_theirs() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {**ALL, "flushDiskType": "SYNC_FLUSH", "storePathCommitLog": "/log/commitlog"}
        async with led_group(source, keys) as group:
            await send_all(group, await settled(group))
            await trio.sleep(NOTED_SECONDS)
            for name in BROKERS:
                await group.kill(name)
            # given the disk of its log is not there, that of its other files is
            group.cluster.host("b2").disk.remove_tree("/log/commitlog")
            await group.start_broker("b2")
            await trio.sleep(2 * TIMEOUT_SECONDS)
            assert group.master() is None
            for name in ("b1", "b3"):
                await group.start_broker(name)
            await holds_all(group, "b1", "b3")

    run_seed(scenario, 1)


def test_after_a_loss_of_all_power_the_longest_log_leads_though_the_master_had_confirmed() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            master = await settled(group)
            first, last = (name for name in BROKERS if name != master)
            # given what is sent reaches the disk of one slave only
            for name in (master, first):
                group.cluster.host(name).disk.sync_seconds = 2 * FLUSHED_SECONDS
            await send_all(group, master)
            store = group.brokers[last].store
            await until(lambda: store.flushed_offset == store.max_physical_offset, FLUSHED_SECONDS)
            for name in BROKERS:
                await group.kill(name, power=True)
                group.cluster.host(name).disk.sync_seconds = 0.0
            await group.start_broker(first)
            await trio.sleep(2 * TIMEOUT_SECONDS)
            assert group.master() is None
            for name in (master, last):
                await group.start_broker(name)
            await holds_all(group, last)

    run_seed(scenario, 1)


def set_epoch(group: LedGroup) -> int:
    """Return how often the set has changed."""
    facts = group.facts()
    assert facts is not None
    return facts.set_epoch


def incarnations(group: LedGroup, broker_id: int) -> tuple[str | None, str]:
    """Return that of a broker as it is noted with the set, and as it says it now."""
    facts, leader = group.facts(), next(each for each in group.controllers.values() if each.member.leads())
    heard = leader.liveness.record("g", broker_id)
    assert facts is not None
    assert heard is not None
    return facts.incarnations.get(broker_id), heard.facts.incarnation


def test_a_slave_whose_host_is_back_before_its_master_misses_it_comes_into_the_set_anew() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, QUIET) as group:
            master = await settled(group)
            slave, other = (name for name in BROKERS if name != master)
            before, epoch = known(group), set_epoch(group)
            own_id = before[2][group.members().index(slave)]
            group.cluster.host(slave).disk.sync_seconds = HANGS_SECONDS
            await send_all(group, master)
            # given the connections of its former life still seem to stand
            await group.kill(slave, power=True)
            group.cluster.host(slave).disk.sync_seconds = 0.0
            await trio.sleep(0.3)
            await group.start_broker(slave)
            assert known(group) == before
            # when it copies what it has lost
            await until(lambda: set_epoch(group) > epoch and slave in group.members(), IN_OFFICE_SECONDS)
            noted, told = incarnations(group, own_id)
            assert noted == told
            assert await group.send(master, b"more") == 0
            # then it may lead
            await group.kill(other)
            await group.kill(master)
            await holds_all(group, slave)

    run_seed(scenario, 1)


def test_a_group_that_waits_for_a_member_is_asked_for_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            master = await settled(group)
            # given the only member of the set is away, and the others ask for an election again and again
            others = [name for name in BROKERS if name != master]
            for name in others:
                await group.kill(name)
            await until(lambda: group.members() == [master], 5)
            await group.kill(master)
            for name in others:
                await group.start_broker(name)
            await trio.sleep(10)
            leader = next(one for one in group.controllers.values() if one.member.leads())
            assert leader.failover is not None
            entries, records = leader.member.facts().last_index, len(leader.failover.records)
            caplog.set_level("INFO", "understudy.broker.led")
            # when that lasts for a minute
            await trio.sleep(60)
            # then nothing was added to the controllers' log, nor to what they say of it
            assert (leader.member.facts().last_index, len(leader.failover.records)) == (entries, records)
            assert "not in the sync state set" in leader.failover.records[-1].describe()
            assert "the controller refused" not in caplog.text
            # and it leads as soon as it is back
            await group.start_broker(master)
            await until(lambda: group.master() == master, 5)

    run_seed(scenario, 1)


def test_controllers_that_do_not_lead_may_be_the_only_ones_that_the_settings_name() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, dict(ALL)) as group:
            await send_all(group, await settled(group))
            follower = next(name for name, one in group.controllers.items() if not one.member.leads())
            # given brokers are started again with the address of one controller, which does not lead
            for name in BROKERS:
                await group.kill(name)
            group.keys["controllerAddr"] = f"{group.cluster.address(follower)}:{API_PORT}"
            for name in BROKERS:
                await group.start_broker(name)
            # then the one who leads hears them, too
            await group.ready(3)
            await holds_all(group, *BROKERS)
            # and so does who leads after it
            leader = next(name for name, one in group.controllers.items() if one.member.leads())
            before = known(group)
            await group.kill(leader)
            await until(lambda: any(one.member.leads() for one in group.controllers.values()), 10)
            await trio.sleep(5 * TIMEOUT_SECONDS)
            assert known(group) == before

    run_seed(scenario, 1)


def test_a_controller_that_no_settings_name_hears_the_brokers_as_soon_as_it_leads() -> None:
    async def scenario(source: random.Random) -> None:
        named = CONTROLLERS[1]
        async with led_group(source, {**ALL, "controllerAddr": f"10.0.0.3:{API_PORT}"}) as group:
            assert group.keys["controllerAddr"] == f"{group.cluster.address(named)}:{API_PORT}"
            await send_all(group, await settled(group))
            before = known(group)
            (leader,) = leading(group)
            # when the leader is lost, and followed by one that the settings do not name, either
            await group.kill(leader)
            await until(lambda: leading(group) not in ([], [leader]), 10)
            assert named not in (leader, *leading(group))
            # then it hears them all, and finds the master alive
            await trio.sleep(5 * TIMEOUT_SECONDS)
            (failover,) = (group.controllers[each].failover for each in leading(group) if each != leader)
            assert failover is not None
            assert len(failover.living("g")) == len(BROKERS)
            assert known(group) == before

    run_seed(scenario, 1)
