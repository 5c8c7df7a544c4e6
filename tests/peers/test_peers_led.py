"""Real clients, unchanged, through a failover of a group that controllers lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_replicas import KINDS, PORTS
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.port_blocks import PortBlocks


@pytest.mark.slow
@pytest.mark.covers("R148")
async def test_java_clients_go_on_when_the_master_is_killed_and_lose_nothing(tmp_path: Path, java_home: Path) -> None:
    world = real_world()
    with PortBlocks(20) as blocks:
        async with open_client(world) as client:
            ports = blocks.middles(PORTS)
            drill = LedDrill(tmp_path, ports, client, None, world, KINDS["ours"], clients=CLIENTS["java"])
            try:
                # when the process of the master is killed while they send and consume
                verdict = await drill.play_led(short=True)
            finally:
                drill.processes.kill_all()
    # then they got what was acknowledged, some of it from the next master
    assert verdict.ok, verdict.violations
    assert verdict.sent > 50
    assert verdict.delivered >= verdict.sent
    assert len({reign.epoch for reign in drill.reigns}) > 1
