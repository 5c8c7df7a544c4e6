"""Three replicas without their master: what the slave that acts learns, the next one to act knows."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import trio
from container_ring import HOSTS, TOPIC, Ring, delivered, open_ring, run, send_delayed
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.broker import Broker
from understudy.broker.source import source_of
from understudy.remoting.codes import RequestCode
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.sim.network import LinkQuality
from understudy.testkit.waiting import until


def at(broker: Broker) -> int:
    return broker.offsets.query("readers", TOPIC, 0)


async def acts(broker: Broker, seconds: float = 30) -> None:
    await until(lambda: "schedule" in broker.services.running(), seconds)


async def first_slave_acts(ring: Ring) -> tuple[Broker, Broker]:
    """Kill the master of g0; return its slaves, the first of which acts."""
    await ring.commit(ring.broker("g0", 0), 10)
    await trio.sleep(4)
    await ring.cluster.kill("c1")
    first, second = ring.broker("g0", 1), ring.broker("g0", 2)
    await acts(first)
    return first, second


def twice(ring: Ring, keys: Iterable[str]) -> list[str]:
    counts = delivered(ring)
    return [key for key in keys if counts[key] > 1]


def test_over_a_slow_link_progress_is_learned_nearly_as_often() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.commit(ring.broker("g0", 0), 1)
            await trio.sleep(4)
            # given a link on which each answer takes 0.6 to 0.8 s
            ring.cluster.slow("c1", LinkQuality(delay_seconds=(0.3, 0.4)))
            slave, began, known = ring.broker("g0", 1), trio.current_time(), list[float]()
            for number in range(2, 130):
                ring.broker("g0", 0).offsets.commit("readers", TOPIC, 0, number)
                known.append(trio.current_time() - began - (at(slave) - 2) / 10)
                await trio.sleep(0.1)
            # then a slave is behind by a pause and three ways, also while it copies the tables that it asks for seldom
            assert max(known[20:]) < 0.5 + 3 * 0.4 + 0.2

    run(scenario)


@pytest.mark.covers("CT-12")
def test_the_next_slave_to_act_knows_what_the_first_one_was_told_and_has_delivered() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given delayed messages that the first slave has delivered before it dies, too
            keys = await send_delayed(ring, 40, 3)
            first, second = await first_slave_acts(ring)
            await ring.commit(first, 400)
            await until(lambda: first.schedule_progress.offsets == {3: 40}, 20)
            await until(lambda: second.schedule_progress.offsets == {3: 40} and at(second) == 400, 2)
            # when it is the second one's turn
            await ring.cluster.kill("c2")
            await acts(second)
            await trio.sleep(15)
            # then nothing goes back, and nothing of what had been delivered comes again
            assert at(second) == 400
            assert twice(ring, keys) == []

    run(scenario)


def test_a_slave_that_has_copied_nothing_since_it_came_back_asks_the_others_before_it_acts() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, replicas=4) as ring:
            # given a slave that is down while another one acts, and a third one that is told of it
            await ring.commit(ring.broker("g0", 0), 10)
            keys = await send_delayed(ring, 20, 3)
            await trio.sleep(4)
            await ring.cluster.kill("c3")
            await ring.cluster.kill("c1")
            first, third = ring.broker("g0", 1), ring.broker("g0", 3)
            await acts(first)
            await ring.commit(first, 400)
            await until(lambda: third.schedule_progress.offsets == {3: 20} and at(third) == 400, 20)
            # when the one that acts falls silent, the second one is back, and it is its turn
            await Accident(ring.cluster, Fault("pause", "c2"), HOSTS).begin()
            await ring.cluster.restart("c3")
            second = ring.broker("g0", 2)
            assert at(second) == 10
            await acts(second)
            # then it has learned from the third one before, and nothing comes again
            assert at(second) == 400
            await trio.sleep(15)
            assert twice(ring, keys) == []

    run(scenario)


def test_a_slave_that_asks_a_silent_master_learns_from_the_one_that_acts_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            first, second = ring.broker("g0", 1), ring.broker("g0", 2)
            await ring.commit(ring.broker("g0", 0), 10)
            await trio.sleep(4)
            # given a machine that dies without a word: questions to it take three seconds each
            await ring.cluster.kill("c1", power=True)
            await acts(first)
            await ring.commit(first, 40)
            # then the other slave does not wait for its answer
            assert await until(lambda: at(second) == 40, 5) < 0.7

    run(scenario)


@pytest.mark.parametrize("how", ["cut", "cut-in", "cut-off-servers"])
def test_a_slave_that_is_cut_off_while_it_acts_repeats_delayed_messages_of_a_moment_only(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given delayed messages that fall due all the time, and the first slave acting
            due = {key: at + 10 for key, at in (await send_delayed(ring, 60, 3, pause_seconds=0.2)).items()}
            _, second = await first_slave_acts(ring)
            # when it hears nobody any more, and the second one acts some time later
            began = trio.current_time()
            await Accident(ring.cluster, Fault(how, "c2"), HOSTS).begin()
            await acts(second)
            await trio.sleep(15)
            # then only what fell due before it could know better has come twice
            later = {key: at - began for key, at in due.items() if at > began}
            assert max(later.values()) > 4.0
            assert later.keys() <= delivered(ring).keys()
            repeated = [due[key] - began for key in twice(ring, due)]
            assert all(-1.0 <= at <= 3.5 for at in repeated), repeated

    run(scenario)


def test_a_slave_that_was_away_does_not_act_by_what_it_had_seen_before() -> None:
    async def scenario(source: random.Random) -> None:
        # given brokers that look at their group seldom, and a slave that acts
        async with open_ring(source, {"syncBrokerMemberGroupPeriod": "15000"}) as ring:
            first, _ = await first_slave_acts(ring)
            # when it stands still and is cut off, while its master comes back
            away, cut = (Accident(ring.cluster, Fault(kind, "c2"), HOSTS) for kind in ("pause", "cut"))
            await away.begin()
            await cut.begin()
            await ring.cluster.restart("c1")
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
            await away.end()
            await trio.sleep(1)
            await cut.end()
            # then it does not act beside it, and sees it at once
            with pytest.raises(trio.TooSlowError):
                await until(lambda: not first.presence.isolated and "schedule" in first.services.running(), 8, 0.001)
            assert not first.presence.isolated
            assert min(first.member_group.members or {9: ""}) == 0

    run(scenario)


@pytest.mark.parametrize("how", ["pause", "suspend", "kill"])
def test_a_slave_that_comes_back_takes_over_from_the_one_that_acted_meanwhile(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            before, later = await send_delayed(ring, 20, 3), await send_delayed(ring, 20, 4)
            first, second = await first_slave_acts(ring)
            await until(lambda: second.schedule_progress.offsets.get(3) == 20, 20)
            # given a first slave that does nothing for a while, in which the second one acts
            away = Accident(ring.cluster, Fault(how, "c2", 0.0, 20.0, 0), HOSTS)
            await away.begin()
            await acts(second)
            await ring.commit(second, 400)
            await until(lambda: second.schedule_progress.offsets.get(4) == 20, 40)
            # when it goes on
            name_server = ring.cluster.host("n1").name_server
            assert name_server is not None
            assert 1 not in name_server.table.groups["g0"].members
            await away.end()
            first = ring.broker("g0", 1)
            await until(lambda: 1 in name_server.table.groups["g0"].members, 30, 0.001)
            # then it knows everything before anybody can find it, and the second one follows it
            assert at(first) == 400
            assert first.schedule_progress.offsets == second.schedule_progress.offsets == {3: 20, 4: 20}
            await acts(first)
            assert "schedule" not in second.services.running()
            await ring.commit(first, 410)
            await until(lambda: at(second) == 410, 3)
            # and what a client with an old route says to the second one is passed on
            await ring.commit(second, 420)
            await until(lambda: at(first) == 420, 3)
            await trio.sleep(5)
            assert twice(ring, [*before, *later]) == []

    run(scenario)


def test_a_slave_that_comes_late_knows_the_topics_and_the_progress_of_its_group() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a first slave whose disk is new, after the master has died
            await ring.cluster.kill("c2")
            disk = ring.cluster.host("c2").disk
            for name in list(disk.listdir("/data")):
                disk.remove_tree(f"/data/{name}")
            keys = await send_delayed(ring, 10, 3)
            await ring.commit(ring.broker("g0", 0), 10)
            await trio.sleep(2)
            await ring.cluster.kill("c1")
            second = ring.broker("g0", 2)
            await acts(second)
            await ring.commit(second, 400)
            await until(lambda: second.schedule_progress.offsets == {3: 10}, 20)
            # when it comes
            await ring.cluster.restart("c2")
            first = ring.broker("g0", 1)
            await acts(first)
            # then it acts with the tables of its group
            assert first.topics.get(TOPIC) is not None
            assert at(first) == 400
            await trio.sleep(10)
            assert twice(ring, keys) == []
            assert second.schedule_progress.offsets == {3: 10}

    run(scenario)


def test_only_a_slave_with_a_larger_id_stands_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            first, second = await first_slave_acts(ring)
            for successor in ("0", "1", "2", "-1"):
                answer = await ring.ask(first, RequestCode.EXCHANGE_BROKER_HA_INFO, {"successorId": successor})
                assert answer.code == 29, answer.remark
            assert "schedule" in first.services.running()
            comes = {"successorId": "1", "successorAddress": first.identity.address}
            assert (await ring.ask(second, RequestCode.EXCHANGE_BROKER_HA_INFO, comes)).code == 0
            # then it says whom it makes way for, and later why it still does not act
            assert second.session.rules.reason == "slave 1 comes and acts from now on"
            await trio.sleep(15)
            assert second.session.rules.reason == "slave 1 has a smaller id"

    run(scenario)


# --- the rule ------------------------------------------------------------------------------------------------------

MEMBERS = st.one_of(st.none(), st.dictionaries(st.integers(0, 4), st.sampled_from(["a:1", "b:1", "c:1"])))


@given(st.integers(1, 4), st.one_of(st.none(), st.just("m:1")), MEMBERS, st.booleans())
def test_a_slave_follows_its_master_or_a_smaller_slave_and_never_itself(
    own_id: int, master: str | None, members: dict[int, str] | None, synced: bool
) -> None:
    found = source_of(own_id, "self:1", master, members, synced)
    if master is not None:
        assert found == (master, True)
    elif found is not None:
        address, leads = found
        assert not leads
        others = {number: each for number, each in (members or {}).items() if number != own_id}
        assert address == others[min(others)]
        assert min(others) != 0
        assert min(others) < own_id or not synced


def test_two_slaves_that_know_their_group_never_copy_from_each_other() -> None:
    members = {1: "a:1", 2: "b:1"}
    assert source_of(1, "a:1", None, members, True) is None
    assert source_of(2, "b:1", None, members, True) == ("a:1", False)
    assert source_of(1, "a:1", None, members, False) == ("b:1", False)
    assert source_of(1, "a:1", "a:1", members, True) is None
