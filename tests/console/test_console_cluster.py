"""The page over a whole cluster in virtual time: what is shown is what happens, and brokers are asked with measure."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import trio
from console_rig import PORT, Browser, count_requests, serving
from trio.testing import MockClock

from understudy.console import questions
from understudy.mqclient.admin import cluster as cluster_questions
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode
from understudy.testkit.drills.ring import Ring
from understudy.testkit.led.group import CONTROLLERS, led_group
from understudy.testkit.led.group import PORT as BROKER_PORT
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.cluster import CONTAINER_PORT, SimCluster

PAIR = Ring(replicas=2)
Screen = dict[str, Any]


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[SimCluster, Browser]]:
    """Two groups that stand in for each other, and a console that shows them."""
    async with SimCluster(random.Random(7)) as cluster:
        await PAIR.start(cluster)
        await trio.sleep(30)
        host = cluster.address("watcher")
        async with serving(cluster.client_world("watcher"), cluster.name_servers, host):
            yield cluster, Browser(cluster.host("operator").network, host, PORT)


async def until(screens: AsyncIterator[Screen], wanted: Callable[[Screen], bool]) -> Screen:
    """Return the first screen that is as *wanted*."""
    with trio.fail_after(120):
        async for screen in screens:
            if wanted(screen):
                return screen
    raise AssertionError("the stream ended")


def row(screen: Screen, name: str) -> Screen:
    found: Screen = next(group for group in screen["groups"] if group["name"] == name)
    return found


def in_set(screen: Screen) -> int | None:
    """Return how many replicas of group ``g`` are in its set; ``None`` while nothing is known of it."""
    found = row(screen, "g")["syncSet"]
    return None if found is None else found["inSet"]


def count_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """Return a list that grows by whom a question of *module* is put to, from now on."""
    asked, question = list[object](), getattr(module, name)

    async def noted(session: Session, whom: object, *rest: object) -> object:
        asked.append(whom)
        return await question(session, whom, *rest)

    monkeypatch.setattr(module, name, noted)
    return asked


def hosted(screen: Screen, names: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
    """Return the brokers of each container of *screen*, group and id, by its name in *names*, by address."""
    return {
        names[each["address"]]: [(broker["group"], broker["id"]) for broker in each["brokers"]]
        for each in screen["containers"]
    }


async def test_a_failover_is_seen_by_who_only_looks(autojump_clock: MockClock) -> None:
    async with pair() as (cluster, browser), aclosing(browser.live()) as screens:
        # given a cluster in which all is well
        screen = await until(screens, lambda screen: screen["verdict"]["state"] == "ok")
        assert "Both groups have a master." == screen["verdict"]["text"]
        assert [0, 1] == [each["id"] for each in row(screen, "g0")["members"]]
        # and the map shows which container hosts which brokers
        homes = {f"{cluster.address(name)}:{CONTAINER_PORT}": name for name in PAIR.containers}
        assert {"c1": [("g0", 0), ("g1", 1)], "c2": [("g0", 1), ("g1", 0)]} == hosted(screen, homes)
        await until(screens, lambda screen: not screen["lag"]["unknown"] + screen["waiting"]["unknown"])
        # when the process with the master of g0 is killed
        killed_ms = cluster.host("watcher").clock.wall_ms()
        await cluster.kill("c1")
        # then its slave is seen acting, with the time and the reason that it tells
        screen = await until(screens, lambda screen: row(screen, "g0")["state"] == "acting")
        group = row(screen, "g0")
        assert "g0" == screen["groups"][0]["name"]
        assert ["c1"] == [homes[each["address"]] for each in screen["containers"] if not each["answers"]]
        assert (1, True) == (group["leaderId"], group["exact"])
        assert "no master, and the smallest id of the group" == group["why"]
        assert killed_ms <= group["since"] <= killed_ms + 3_000
        # and the step that clients see follows
        screen = await until(screens, lambda screen: "T4" in {each["step"] for each in screen["failovers"][0]["steps"]})
        # when it comes back
        await cluster.restart("c1")
        screen = await until(screens, lambda screen: screen["verdict"]["state"] == "ok")
        (failover,) = [each for each in screen["failovers"] if each["group"] == "g0"]
        assert failover["over"]
        assert [each["at"] for each in failover["steps"]] == sorted(each["at"] for each in failover["steps"])
        assert ["T0", "T1", "T2", "T3", "T4", "R1", "R2"] == sorted(
            (each["step"] for each in failover["steps"]), key=["T0", "T1", "T2", "T3", "T4", "T5", "R1", "R2"].index
        )


async def test_brokers_are_asked_once_a_second_at_most_however_many_look_and_never_when_nobody_does(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair() as (_, browser):
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                async with aclosing(browser.live()) as screens:
                    async for _ in screens:
                        pass

            for _ in range(5):
                nursery.start_soon(look)
            await trio.sleep(5)
            asked = count_requests(monkeypatch)
            await trio.sleep(20)
            brokers = 4
            assert 15 * brokers <= asked[RequestCode.GET_BROKER_RUNTIME_INFO] <= 21 * brokers
            assert asked[RequestCode.GET_BROKER_CONSUME_STATS] <= 5 * 2
            assert asked[RequestCode.LIST_STUCK_WORK] <= 5 * 2
            assert asked[RequestCode.GET_BROKER_HA_STATUS] <= 5 * brokers
            assert 0 == asked[RequestCode.CONTROLLER_GET_SYNC_STATE_DATA]
            settings = count_calls(monkeypatch, cluster_questions, "broker_config")
            await trio.sleep(120)
            assert 2 * brokers == len(settings)
            nursery.cancel_scope.cancel()
        await trio.sleep(20)
        asked.clear()
        await trio.sleep(30)
        assert 0 == asked[RequestCode.GET_BROKER_RUNTIME_INFO]
        assert 0 == asked[RequestCode.GET_BROKER_CLUSTER_INFO]


async def test_a_broker_that_does_not_answer_keeps_nobody_waiting(autojump_clock: MockClock) -> None:
    async with pair() as (cluster, browser), aclosing(browser.live()) as screens:
        await until(screens, lambda screen: screen["verdict"]["state"] == "ok")
        # when a process stands still, then screens come as before, and say so
        cluster.freeze("c1")
        screen = await until(screens, lambda screen: not row(screen, "g0")["answers"])
        times = [screen["at"]] + [(await until(screens, lambda screen: True))["at"] for _ in range(5)]
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 2_000
        # and a name server that is gone makes what is shown old, and not fine
        await cluster.kill("n1")
        screen = await until(screens, lambda screen: screen["nameServer"]["silentSince"] is not None)
        assert "unknown" == screen["verdict"]["state"]


async def test_the_first_question_of_all_is_answered_from_a_look_and_so_is_a_script_that_only_changes(
    autojump_clock: MockClock,
) -> None:
    move = {"group": "nobody", "topic": "nothing", "rows": [{"broker": "g0", "id": 0, "before": 0, "after": 1}]}
    async with pair() as (cluster, browser):
        # when a console that nobody has looked at is asked, then it looks first
        topics = (await browser.ask("/api/topics")).json
        assert ["g0", "g1"] == sorted({broker for row in topics["rows"] for broker in row["brokers"]})
        assert [] == topics["missing"]
    async with pair() as (cluster, browser):
        refused = await browser.ask("/api/reset", method="POST", body=move)
        assert "nobody leads it" not in refused.json["error"]
        # and what it knew a minute ago is no answer
        await trio.sleep(60)
        await cluster.kill("c1")
        await trio.sleep(30)
        refused = await browser.ask("/api/reset", method="POST", body=move)
        assert "nothing was moved: g0" in refused.json["error"]
        assert "Can not reset offset in slave broker" in refused.json["error"]


async def test_who_is_in_the_set_of_a_group_that_controllers_lead_is_seen_and_why_one_is_not(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"allAckInSyncStateSet": "true", "haMaxTimeSlaveNotCatchup": "3000"}
    async with led_group(random.Random(3), keys) as group:
        master = await group.ready(3)
        cluster, host = group.cluster, group.cluster.address("watcher")
        controllers = {f"{cluster.address(name)}:{API_PORT}": name for name in CONTROLLERS}
        browser = Browser(cluster.host("operator").network, host, PORT)
        async with (
            serving(cluster.client_world("watcher"), cluster.name_servers, host),
            aclosing(browser.live()) as screens,
        ):
            # given a group of which all replicas are in the set
            screen = await until(screens, lambda screen: bool(screen["groups"]) and in_set(screen) == 3)
            found = row(screen, "g")["syncSet"]
            facts = group.facts()
            assert facts is not None
            assert (facts.master_epoch, facts.set_epoch) == (found["masterEpoch"], found["setEpoch"])
            assert controllers.keys() == set(found["controllers"])
            assert [f"{cluster.address(master)}:{BROKER_PORT}"] == [
                each["address"] for each in found["replicas"] if each["master"]
            ]
            assert ["own"] == [each["kind"] for each in screen["containers"]]
            # when one of its slaves is killed, then it is out of the set, and that says why
            lost = next(name for name in group.brokers if name != master)
            await group.kill(lost)
            screen = await until(screens, lambda screen: in_set(screen) == 2)
            (gone,) = [each for each in row(screen, "g")["syncSet"]["replicas"] if not each["inSet"]]
            address = f"{cluster.address(lost)}:{BROKER_PORT}"
            assert (address, "the controllers hear nothing from it") == (gone["address"], gone["why"])
            # when the controller that answered dies, then the next one does, and they are asked with measure, too
            leader = controllers[row(screen, "g")["syncSet"]["leader"]]
            await group.kill(leader)

            def next_answers(screen: Screen) -> bool:
                found = row(screen, "g")["syncSet"]
                return not found["error"] and controllers[found["leader"]] != leader

            await until(screens, next_answers)
            asked = count_calls(monkeypatch, questions, "sync_state_sets")
            await trio.sleep(20)
            assert 3 <= len(asked) <= 4
            # when no majority of them is left, then what was known stays, and that it is old is said
            await group.kill(next(iter(group.controllers)))
            screen = await until(screens, lambda screen: bool(row(screen, "g")["syncSet"]["error"]))
            assert "no controller is active" in row(screen, "g")["syncSet"]["error"]
            assert 2 == in_set(screen)
