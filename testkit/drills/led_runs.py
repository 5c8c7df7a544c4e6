"""Runs of the drill of a group that controllers lead: what is wished for, and what is told at the end."""

from __future__ import annotations

from pathlib import Path

import attrs
import trio

from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.led import KINDS, PORTS, LedDrill
from understudy.testkit.history import Verdict
from understudy.testkit.port_blocks import PortBlocks

_SHOWN_VIOLATIONS = 10


@attrs.frozen
class Wish:
    """What is to be played.

    Attributes:
        brokers: one of the keys of :data:`KINDS`.
        clients: whose clients make the traffic.
        elections: how many masters an operator has elected; 0: masters are killed and suspended instead.
        verify: have the stores looked at by Spark at the end.
        slow: take timeouts for a machine that is busy.
    """

    brokers: str
    clients: str = "ours"
    elections: int = 0
    verify: bool = False
    slow: bool = False


async def play(folder: Path, launcher: Path | None, real_controllers: bool, wish: Wish) -> bool:
    """Play the drill and print the verdict; return whether nothing was violated.

    Args:
        folder: for the stores and logs of all processes.
        launcher: starts real servers; ``None`` where there are none.
        real_controllers: whether the controllers are real ones.
        wish: what is to be played.
    """
    world, agree = real_world(), True
    with PortBlocks(20) as blocks:
        async with open_client(world) as client, trio.open_nursery():  # what goes wrong comes as a group
            ports, kinds = blocks.middles(PORTS), KINDS[wish.brokers]
            drill = LedDrill(folder, ports, client, launcher, world, kinds, real_controllers, wish.clients)
            if wish.slow:
                drill.be_patient()
            try:
                verdict = await (drill.play_elections(wish.elections) if wish.elections else drill.play_led())
                if wish.verify:
                    agree = await drill.stores_agree()
            finally:
                drill.processes.kill_all()
    tell(drill, verdict)
    return verdict.ok and agree


def tell(drill: LedDrill, verdict: Verdict) -> None:
    """Print the verdict, and where what was violated stands in the log."""
    print(f"\nVerdict: {verdict}")
    for violation in verdict.violations[:_SHOWN_VIOLATIONS]:
        key = violation.detail.partition(" ")[0]
        times = drill.log(0).count(key.encode())
        print(f"  {violation.rule}: {violation.detail}; in the log {times} times{drill.witness(key)}")
    if drill.traffic is not None:
        (drill.folder / "history.txt").write_text("".join(drill.traffic.lines()))
