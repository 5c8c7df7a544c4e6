"""Runs of the drill of a group that controllers lead: what is wished for, and what is told at the end."""

from __future__ import annotations

from pathlib import Path

import attrs
import trio

from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.led import KINDS, PORTS, LedDrill
from understudy.testkit.drills.led_judge import Judge
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
    """Play the drill and print the verdict; return whether nothing was violated by us.

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
    return tell(drill, verdict) and agree


def judge_of(drill: LedDrill) -> Judge:
    """Return what tells the doing of a replaced real master from what nobody may do, after the clients have ended."""
    traffic = drill.traffic
    assert traffic is not None
    kinds = dict(zip(drill.broker_ports, drill.kinds, strict=True))
    queues = {sent.key: sent.queue for sent in traffic.history.sends if sent.queue is not None}
    return Judge(kinds, drill.reigns, drill.log(0), traffic.acknowledgements, queues, traffic.readings)


def _witness(drill: LedDrill, key: str) -> str:
    """Return who acknowledged a message, and what had happened just before; ``""`` where clients do not tell."""
    known = None if drill.traffic is None else drill.traffic.acknowledgements.get(key)
    if known is None:
        return ""
    number = drill.broker_ports.index(known.port)
    at, text = max((each for each in drill.story if each[0] <= known.at), default=(known.at, "the start"))
    return (
        f"; acknowledged by replica {number} ({drill.kinds[number]}) at byte {known.position}, "
        f"{known.at - at:.3f} s after {text!r}"
    )


def tell(drill: LedDrill, verdict: Verdict) -> bool:
    """Print the verdict, where what was violated stands in the log, and who did it.

    Returns:
        Whether nothing was violated but what a real master does that was replaced; see :mod:`.led_judge`.
    """
    judge = judge_of(drill)
    explained = {violation: judge.explain(violation) for violation in verdict.violations}
    print(f"\nVerdict: {verdict}")
    for violation, why in [*explained.items()][:_SHOWN_VIOLATIONS]:
        key = violation.detail.partition(" ")[0]
        told = f"{violation.rule}: {violation.detail}; in the log {judge.log.count(key.encode())} times"
        print(f"  {told}{_witness(drill, key)}{'' if why is None else f'; the doing of the real system: {why}'}")
    unexplained = sum(why is None for why in explained.values())
    if explained:
        print(
            f"Violations: {len(explained)}, {len(explained) - unexplained} of them by a real master that was replaced"
        )
    if drill.traffic is not None:
        (drill.folder / "history.txt").write_text("".join(drill.traffic.lines()))
    return not unexplained
