"""The page over a whole cluster in virtual time: what is shown is what happens, and brokers are asked with measure."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from console_rig import PORT, Browser, count_requests, serving
from trio.testing import MockClock

from understudy.remoting.codes import RequestCode
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.cluster import SimCluster

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


async def test_a_failover_is_seen_by_who_only_looks(autojump_clock: MockClock) -> None:
    async with pair() as (cluster, browser), aclosing(browser.live()) as screens:
        # given a cluster in which all is well
        screen = await until(screens, lambda screen: screen["verdict"]["state"] == "ok")
        assert "Both groups have a master." == screen["verdict"]["text"]
        assert [0, 1] == [each["id"] for each in row(screen, "g0")["members"]]
        await until(screens, lambda screen: not screen["lag"]["unknown"] + screen["waiting"]["unknown"])
        # when the process with the master of g0 is killed
        killed_ms = cluster.host("watcher").clock.wall_ms()
        await cluster.kill("c1")
        # then its slave is seen acting, with the time and the reason that it tells
        screen = await until(screens, lambda screen: row(screen, "g0")["state"] == "acting")
        group = row(screen, "g0")
        assert "g0" == screen["groups"][0]["name"]
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
