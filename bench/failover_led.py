"""What the loss of its master costs a group that controllers lead: one round of `bench failover --led`.

Three replicas of ours under our controllers, or three of the real system under its own; the name server is ours for
both. Every step of a round loses the master of that time: by SIGKILL; by SIGKILL when its log is longer than those of
the others, which stood still while it wrote; by SIGSTOP, until another one is master. Each time it comes back.

Settings are those of the reference's timelines: two copies are asked for, but a master may be alone in its set
(`minInSyncReplicas=1`), as a real one is at first: its slaves need seconds to find it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio

from bench.failover_table import Figures
from understudy.remoting.client import RemotingClient, open_client
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.drills.led_outage import Fault, Outage, play_outage
from understudy.testkit.drills.led_replicas import KINDS, PORTS, QUIET_SECONDS, LedReplicas
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.java_tools import LAUNCHER
from understudy.testkit.port_blocks import PortBlocks

STEPS = ("kill", "longer", "freeze")
FAULTS = {"kill": Fault.KILLED, "longer": Fault.OUTGROWN, "freeze": Fault.FROZEN}
ROUND_LIMIT_S = 1_200.0
"""Of one round of one side; a real group whose slaves go astray takes minutes."""
KEYS = {"minInSyncReplicas": "1"}


class Told(LedReplicas):
    """Replicas that tell what happens where it is not in the way of a result."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def figures_of(step: str, outage: Outage) -> Figures:
    """Returns the figures of one step."""
    follows = outage.back - outage.up
    if step == "freeze":
        return {"led_frozen_send_s": outage.accepted, "led_frozen_set_s": follows}
    if step == "longer":
        return {"led_longer_set_s": follows}
    return {
        "led_kill_decided_s": outage.decided,
        "led_kill_route_s": outage.routed,
        "led_kill_send_s": outage.accepted,
        "led_signal_send_s": outage.accepted - outage.signalled,
        "led_return_up_s": outage.up - outage.started,
        "led_return_set_s": follows,
    }


async def measure_led(java: bool, steps: Sequence[str]) -> Figures:
    """Returns the figures of one round of one side, in seconds. Raises DrillError, and leaves what processes wrote."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-led-"))
    try:
        with bare_errors(), trio.fail_after(ROUND_LIMIT_S):
            async with open_client(real_world()) as client:
                figures = await _round(folder, client, java, steps)
    except trio.TooSlowError:
        raise DrillError(f"the round was not done within {ROUND_LIMIT_S:g} s; see {folder}") from None
    shutil.rmtree(folder, ignore_errors=True)
    return figures


async def _round(folder: Path, client: RemotingClient, java: bool, steps: Sequence[str]) -> Figures:
    figures: Figures = {}
    with PortBlocks(20) as blocks:
        kinds, launcher = KINDS["java" if java else "ours"], LAUNCHER if java else None
        group = Told(folder, blocks.middles(PORTS), client, launcher, real_world(), kinds, java, KEYS)
        try:
            await group.start()
            for step in [each for each in STEPS if each in steps]:
                # Two are in the set by now, whoever else has gone astray: one is lost, the other one follows.
                await trio.sleep(QUIET_SECONDS)
                figures |= figures_of(step, await play_outage(group, FAULTS[step]))
        finally:
            group.processes.kill_all()
    return figures
