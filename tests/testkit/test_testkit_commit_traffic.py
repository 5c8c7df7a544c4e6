"""The judge of commits: what a master must know in the end, and what it must not answer."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.testkit.drills.acting_answers import Commit, may_not_know
from understudy.testkit.drills.commit_traffic import CommitTraffic


class Brokers:
    """A name server that shows one broker, and that broker: it forgets what it was told from some time on."""

    def __init__(self, forgets_at: float) -> None:
        self._forgets_at = forgets_at
        self.known: dict[str, int] = {}

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Any:
        await trio.lowlevel.checkpoint()
        ext = command.ext or {}
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            body = b'{"brokerDatas":[{"brokerName":"g0","brokerAddrs":{0:"b"}}]}'
            return SimpleNamespace(code=ResponseCode.SUCCESS, body=body, ext={})
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            if trio.current_time() < self._forgets_at:
                self.known[ext["consumerGroup"]] = int(ext["commitOffset"])
            return SimpleNamespace(code=ResponseCode.SUCCESS, ext={})
        offset = self.known.get(ext.get("consumerGroup", ""), 0)
        return SimpleNamespace(code=ResponseCode.SUCCESS, ext={"offset": str(offset)})

    def query(self, group: str, topic: str, queue_id: int) -> int:
        return self.known.get(group, -1)


async def problems(forgets_at: float, *, must_know: bool = True, excused: bool = False) -> list[str]:
    """Return what is found wrong with such a broker after twenty seconds."""
    brokers: Any = Brokers(trio.current_time() + forgets_at)
    traffic = CommitTraffic(random.Random(1), brokers, ["n"], {"g0": "b"}, lambda group, commit: must_know)
    async with trio.open_nursery() as nursery:
        await traffic.prepare()
        traffic.start(nursery)
        await trio.sleep(20)
        traffic.stop()
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    broker: Any = SimpleNamespace(offsets=brokers)

    def is_excused(commit: Commit) -> bool:
        return excused

    traffic.check("g0", broker, is_excused)
    assert traffic.counts()["commits"] > 80
    return traffic.problems


async def test_a_master_that_knows_everything_has_broken_nothing(autojump_clock: MockClock) -> None:
    assert await problems(60) == []


async def test_a_forgotten_commit_is_noticed_by_who_asks_and_in_the_end(autojump_clock: MockClock) -> None:
    found = await problems(10)
    assert "the master of g0 told comers-" in found[0]
    assert "commits to g0 are forgotten" in found[-1]


async def test_who_may_not_know_is_not_blamed(autojump_clock: MockClock) -> None:
    assert await problems(10, must_know=False, excused=True) == []


@pytest.mark.parametrize(
    ("taken", "address", "asked", "allowed"),
    [
        pytest.param(105.0, "slave", 119.0, True, id="a slave took it in the cut"),
        pytest.param(105.0, "slave", 120.9, True, id="the cut has just ended"),
        pytest.param(105.0, "slave", 121.1, False, id="the cut is over"),
        pytest.param(99.0, "slave", 105.0, False, id="taken before the cut"),
        pytest.param(105.0, "master", 110.0, False, id="the master took it itself"),
    ],
)
def test_a_master_that_is_cut_off_need_not_know_what_a_slave_takes(
    taken: float, address: str, asked: float, allowed: bool
) -> None:
    commit = Commit("comers-1", 3, address, taken)
    assert may_not_know(commit, "master", [(10.0, 20.0), (100.0, 120.0)], asked) is allowed
    assert not may_not_know(commit, "master", [], asked)
