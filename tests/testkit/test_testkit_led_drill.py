"""The drill of a group that controllers lead, with real processes and SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.led import KINDS, PORTS, LedDrill
from understudy.testkit.port_blocks import PortBlocks


@pytest.mark.slow
@pytest.mark.covers("R135", "R304")
async def test_a_killed_master_is_replaced_under_traffic_and_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = real_world()
    with PortBlocks(20) as blocks:
        async with open_client(world) as client:
            drill = LedDrill(tmp_path, blocks.middles(PORTS), client, None, world, KINDS["ours"])
            try:
                verdict = await drill.play_led(short=True)
            finally:
                drill.processes.kill_all()
    assert verdict.ok, verdict.violations
    assert verdict.sent > 50
    told = capsys.readouterr().out
    for step in (
        "T0 SIGKILL of the master",
        "T1        decided: broker",
        "T3",
        "why=[",
        "R1        in sync again",
        "equal",
    ):
        assert step in told
