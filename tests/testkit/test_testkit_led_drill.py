"""The drill of a group that controllers lead, with real processes and SIGKILL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from understudy.remoting.client import RemotingClient, open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills import controller
from understudy.testkit.drills.controller_processes import ids_of
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_outage import Fault, play_outage
from understudy.testkit.drills.led_replicas import KINDS, PORTS, LedReplicas
from understudy.testkit.drills.led_runs import led_drill
from understudy.testkit.drills.process_traffic import OurTraffic, Traffic
from understudy.testkit.history import Verdict
from understudy.testkit.port_blocks import PortBlocks


@pytest.mark.slow
@pytest.mark.covers("R135", "R304")
async def test_a_killed_master_is_replaced_under_traffic_and_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with led_drill(tmp_path, KINDS["ours"]) as drill:
        verdict = await drill.play_led(short=True)
    assert verdict.ok, verdict.violations
    assert verdict.sent > 50
    told = capsys.readouterr().out
    for step in (
        "T0 SIGKILL of the master",
        "T1        decided: broker",
        "T2        the route leads to replica",
        "T3        replica",
        "why=[",
        "T4        replica",
        "T5        replica",
        "equal",
    ):
        assert step in told


@pytest.mark.slow
async def test_a_master_whose_log_is_longer_cuts_it_and_one_that_stood_still_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PortBlocks(20) as blocks:
        async with open_client(real_world()) as client:
            group = LedReplicas(tmp_path, blocks.middles(PORTS), client, None, real_world(), KINDS["ours"])
            try:
                await group.start()
                longer, frozen = [await play_outage(group, fault) for fault in (Fault.OUTGROWN, Fault.FROZEN)]
            finally:
                group.processes.kill_all()
    for outage in (longer, frozen):
        assert outage.signalled <= 0
        assert sorted(attrs.astuple(outage)) == [*attrs.astuple(outage)]
    assert longer.started < longer.up
    assert frozen.started == frozen.up
    told = capsys.readouterr().out
    assert "the log of replica 0 ended at byte " in told
    assert f"has acknowledged a message; controllerHeartBeatTimeoutMills is {group.timeout_ms}" in told


@pytest.mark.parametrize(
    ("brokers", "masters"),
    [
        ("mixed", [2, 1, 2, 0, 2, 1]),
        ("mixed-java", [1, 0, 2, 0, 1, 0]),
        ("ours", [1, 2, 0, 1, 2, 0]),
        ("java", [1, 2, 0, 1, 2, 0]),
    ],
)
def test_an_operator_has_each_kind_elected_in_turn(tmp_path: Path, brokers: str, masters: list[int]) -> None:
    client = cast(RemotingClient, None)
    drill = LedDrill(tmp_path, range(1, PORTS + 1), client, None, real_world(), KINDS[brokers])
    assert masters == [drill.next_master(elected) for elected in range(6)]


class MadeUp(LedDrill):
    """A drill without processes; its clients only say when something was wrong, as their verdict sees it."""

    async def start(self) -> None: ...

    async def hand_over(self, number: int) -> None: ...

    async def lose_master(self, *, suspend: bool) -> None: ...

    async def in_sync(self, count: int, seconds: float = 0) -> None: ...

    @asynccontextmanager
    async def watched_traffic(self) -> AsyncIterator[Traffic]:
        yield OurTraffic()

    async def end(self, traffic: Traffic) -> Verdict:
        self.faults = list(traffic.faults)
        self.ended_at = trio.current_time()
        return traffic.verdict()


@pytest.mark.parametrize("elections", [0, 2])
async def test_the_verdict_knows_when_the_faults_were_and_they_end_before_the_drill_does(
    tmp_path: Path, autojump_clock: MockClock, elections: int
) -> None:
    drill = MadeUp(tmp_path, range(1, PORTS + 1), cast(RemotingClient, None), None, real_world(), KINDS["ours"])
    await (drill.play_elections(elections) if elections else drill.play_led())
    (fault,) = drill.faults
    assert 0 < fault.end - fault.begin < 60
    assert fault.end <= drill.ended_at


def test_of_two_ids_of_one_address_the_living_one_counts() -> None:
    def row(broker_id: int, address: str, *, alive: bool) -> dict[str, object]:
        return {"brokerId": broker_id, "brokerAddress": address, "alive": alive}

    # given a broker that asked for a second id because the answer about the first one came late
    group = {
        "inSyncReplicas": [row(2, "a:1", alive=True), row(3, "b:1", alive=False)],
        "notInSyncReplicas": [row(1, "a:1", alive=False)],
    }
    assert ids_of(group) == {"a:1": 2, "b:1": 3}


def test_options_of_a_led_group_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        controller.main(["--java", "none", "--elections", "10"])
    assert "--elections, --slow and --verify belong to --brokers, or to --clients" in capsys.readouterr().err
