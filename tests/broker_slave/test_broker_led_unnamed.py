"""A led master whose controllers' leader does not name it, or does not answer, trusts what it said before no more."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.broker.led.controllers import RefusedError, UnansweredError
from understudy.broker.led.following import Word
from understudy.broker.switch_replication import SwitchReplication
from understudy.ha.switch.keeper import SyncStateKeeper
from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALONE = {"inSyncReplicas": "1", "brokerHeartbeatInterval": "1000", "controllerHeartBeatTimeoutMills": "10000"}
TRUST_SECONDS = 8.0
ASKED_EVERY_SECONDS = TRUST_SECONDS / 3
ANSWERED_SECONDS = 3.0


def keeper_of(group: LedGroup, name: str) -> SyncStateKeeper:
    part = group.brokers[name].replication
    assert isinstance(part, SwitchReplication)
    assert part._keeper is not None
    return part._keeper


async def just_proven(keeper: SyncStateKeeper) -> None:
    """Return when the master has just been named once more."""
    known = keeper._proven_at
    await until(lambda: keeper.proven and keeper._proven_at > known, 10, 0.01)


@pytest.mark.parametrize(
    "said",
    [
        Word(None, "", 0, frozenset(), 0),
        Word(9, "10.0.0.9:10911", 0, frozenset({9}), 0),
        UnansweredError("away"),
        RefusedError(2008, "Broker metadata is not existed"),
    ],
    ids=["nobody", "another one", "no answer", "refused"],
)
def test_what_was_said_before_holds_until_the_leader_does_not_say_it_again(
    said: Word | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            led, keeper = group.brokers[first].led, keeper_of(group, first)
            assert led is not None

            async def answer(*_: object) -> Word:
                await trio.sleep(0.01)
                if isinstance(said, Word):
                    return said
                raise said

            await just_proven(keeper)
            began = trio.current_time()
            for question in ("replicas", "elect"):
                monkeypatch.setattr(led._controllers, question, answer)
            monkeypatch.setattr(led, "_register_again", lambda: None)
            await until(lambda: not keeper.proven, TRUST_SECONDS, 0.01)
            assert trio.current_time() - began < ASKED_EVERY_SECONDS + 0.5
            # then a send waits for all who could have been elected, and is answered as fast as ever when they have it
            asked = trio.current_time()
            assert await group.send(first, b"x") == 0
            assert trio.current_time() - asked < 0.1
            monkeypatch.undo()
            await until(lambda: keeper.proven, 10, 0.01)

    run_seed(scenario, 1)


def test_the_word_of_a_leader_that_is_cut_off_is_trusted_no_longer_than_the_next_question_waits() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            slaves = [each for each in BROKERS if each != first]
            leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
            # given other controllers that have not heard the master for longer than they wait for it
            group.cluster.partition([first], [each for each in CONTROLLERS if each != leader])
            await trio.sleep(12)
            assert group.master() == first
            keeper = keeper_of(group, first)
            await just_proven(keeper)
            # when nobody hears the leader any more, one of them leads, and elects at once; the master sees nothing
            group.cluster.partition([first], slaves)
            group.cluster.partition([leader], [each for each in (*CONTROLLERS, *BROKERS) if each != leader])
            await trio.sleep(ASKED_EVERY_SECONDS + ANSWERED_SECONDS + 0.3)
            assert any(not group.brokers[each].role.is_slave for each in slaves)
            assert not keeper.proven
            group.cluster.heal()
            await group.ready(3)

    run_seed(scenario, 1)


@pytest.mark.parametrize("cut", [True, False], ids=["is cut off", "dies"])
def test_another_leader_of_the_controllers_costs_a_master_no_send(cut: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
            if cut:
                group.cluster.partition([leader], [each for each in (*CONTROLLERS, *BROKERS) if each != leader])
            else:
                await group.kill(leader)
            end = trio.current_time() + 12
            while trio.current_time() < end:
                began = trio.current_time()
                assert await group.send(first, b"x") == 0
                assert trio.current_time() - began < 0.1
                await trio.sleep(0.05)
            assert group.master() == first

    run_seed(scenario, 1)


def test_a_leader_that_the_settings_do_not_name_is_trusted_no_longer_than_its_connection_lasts() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, dict(ALONE)) as group:
            await group.ready(3)
            leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
            named = next(each for each in CONTROLLERS if each != leader)
            for each in BROKERS:
                await group.kill(each)
            group.keys["controllerAddr"] = f"{group.cluster.address(named)}:{API_PORT}"
            for each in BROKERS:
                await group.start_broker(each)
            keeper = keeper_of(group, await group.ready(3))
            await just_proven(keeper)
            await group.kill(leader)
            await until(lambda: not keeper.proven, 0.5, 0.01)

    run_seed(scenario, 1)
