"""Real clients, unchanged, through a failover of a group that controllers lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.testkit.drills.led_replicas import KINDS
from understudy.testkit.drills.led_runs import led_drill
from understudy.testkit.drills.traffic_clients import CLIENTS


@pytest.mark.slow
@pytest.mark.covers("R148")
async def test_java_clients_go_on_when_the_master_is_killed_and_lose_nothing(tmp_path: Path, java_home: Path) -> None:
    async with led_drill(tmp_path, KINDS["ours"], CLIENTS["java"]) as drill:
        # when the process of the master is killed while they send and consume
        verdict = await drill.play_led(short=True)
    # then they got what was acknowledged, some of it from the next master
    assert verdict.ok, verdict.violations
    assert verdict.sent > 50
    assert verdict.delivered >= verdict.sent
    assert len({reign.epoch for reign in drill.reigns}) > 1
