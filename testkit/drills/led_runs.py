"""Runs of the drill of a group that controllers lead: what is wished for, and what is told at the end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.controller import GROUP
from understudy.testkit.drills.equal_offsets import DIFFERENT_OFFSETS
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_judge import Judge
from understudy.testkit.drills.led_replicas import KINDS, PORTS, REPLICAS
from understudy.testkit.drills.process_traffic import TOPIC
from understudy.testkit.drills.repeat_windows import PUT_BY, PUT_BY_OURS, PUT_BY_REAL, UNKNOWN, repeats, told
from understudy.testkit.drills.second_copies import second_copies
from understudy.testkit.drills.traffic_clients import CLIENTS, Clients
from understudy.testkit.history import Verdict
from understudy.testkit.port_blocks import PortBlocks

_SHOWN_VIOLATIONS = 10
_SLOW = {"controllerRaftElectionMin": "3000", "controllerRaftElectionMax": "6000", "controllerRaftHeartbeat": "500"}
"""Of a machine on which a process may not run for a second."""


@attrs.frozen
class Wish:
    """What is to be played.

    Attributes:
        brokers: one of the keys of :data:`KINDS`.
        clients: whose clients make the traffic, a key of ``CLIENTS``.
        elections: how many masters an operator has elected; 0: masters are killed and suspended instead.
        verify: have the stores looked at by Spark at the end.
        slow: take timeouts for a machine that is busy.
    """

    brokers: str
    clients: str = "ours"
    elections: int = 0
    verify: bool = False
    slow: bool = False


@asynccontextmanager
async def led_drill(
    folder: Path,
    kinds: Sequence[str],
    clients: Clients = CLIENTS["ours"],
    launcher: Path | None = None,
    *,
    real_controllers: bool = False,
) -> AsyncIterator[LedDrill]:
    """Yield a drill on free ports of this machine, nothing of which runs yet; its processes end with the block.

    Args:
        folder, kinds, clients, launcher, real_controllers: as of :class:`LedDrill`.
    """
    world = real_world()
    with PortBlocks(20) as blocks:
        async with open_client(world) as client:
            ports = blocks.middles(PORTS)
            drill = LedDrill(folder, ports, client, launcher, world, kinds, real_controllers, clients)
            try:
                yield drill
            finally:
                drill.processes.kill_all()


async def play(folder: Path, launcher: Path | None, real_controllers: bool, wish: Wish) -> bool:
    """Play the drill and print the verdict; return whether nothing was violated by us.

    Args:
        folder: for the stores and logs of all processes.
        launcher: starts real servers; ``None`` where there are none.
        real_controllers: whether the controllers are real ones.
        wish: what is to be played.
    """
    agree, kinds, clients = True, KINDS[wish.brokers], CLIENTS[wish.clients]
    async with led_drill(folder, kinds, clients, launcher, real_controllers=real_controllers) as drill:
        if wish.slow:
            drill.timeout_ms *= 5
            drill.more_controller_keys |= _SLOW
        async with trio.open_nursery():  # what goes wrong comes as a group
            verdict = await (drill.play_elections(wish.elections) if wish.elections else drill.play_led())
            if wish.verify:
                agree = await stores_agree(drill)
    right = tell(drill, verdict)
    tell_repeats(drill)
    return right and agree


async def stores_agree(drill: LedDrill) -> bool:
    """Stop the replicas and have ``understudy-spark verify-replicas`` look at their stores; say what it found."""
    for number in range(REPLICAS):
        await drill.processes.stop(f"broker{number}")
    stores = [f"--store={GROUP}/{number}={drill.store(number)}" for number in range(REPLICAS)]
    program = [sys.executable, "-m", "understudy.spark_tools.main", "verify-replicas", "--quiet", "--verify"]
    command = [*program, "--out", str(drill.folder / "verify"), *stores]
    done = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    drill.say(
        f"understudy-spark verify-replicas: exit {done.returncode}: {lines[0] if lines else done.stderr[-300:]!r}"
    )
    if done.returncode == 1 and only_real_indexes(drill.folder / "verify", drill.kinds):
        drill.say("that is the index of real brokers alone: a cut of the log leaves it as it was there")
        return True
    return done.returncode == 0


def only_real_indexes(report: Path, kinds: Sequence[str]) -> bool:
    """Return whether a report of differing replicas names nothing but indexes of real brokers.

    A real broker that cuts its log leaves its index as it is: entries of what was cut stay, and of what comes to stand
    there instead it enters nothing.

    Args:
        report: folder of the report.
        kinds: of the replicas, by number.
    """
    tables = {table["title"]: table for table in loads((report / "report.json").read_bytes())["tables"]}
    repairs = [loads(line) for line in (report / "repair.jsonl").read_bytes().splitlines()]
    real = [
        row["action"] == "rebuild-index" and kinds[int(row["store"].rpartition("/")[2])] == "java" for row in repairs
    ]
    return not tables["Divergences"]["total"] and bool(real) and all(real)


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
        told = f"{violation.rule}: {violation.detail}"
        if violation.rule != DIFFERENT_OFFSETS:  # it is about a message
            told += f"; in the log {judge.log.count(key.encode())} times{_witness(drill, key)}"
        print(f"  {told}{'' if why is None else f'; the doing of the real system: {why}'}")
    unexplained = sum(why is None for why in explained.values())
    if explained:
        print(
            f"Violations: {len(explained)}, {len(explained) - unexplained} of them by a real master that was replaced"
        )
    if drill.traffic is not None:
        (drill.folder / "history.txt").write_text("".join(drill.traffic.lines()))
    return not unexplained


def tell_repeats(drill: LedDrill) -> bool:
    """Print what came more than once, window by window, after the clients have ended.

    Returns:
        Whether all of it was real masters' doing or came of what happened in its window, and no replica of ours stored
        anything a second time.
    """
    traffic, writers = drill.traffic, drill.writers()
    assert traffic is not None
    copies = {
        (record.queue_id, record.queue_offset): PUT_BY.get(writers.kind_of(record), UNKNOWN)
        for record in second_copies(drill.log(0), TOPIC)
    }
    found = list(repeats(traffic.history.deliveries, traffic.came, drill.windows, copies))
    for line in told(found, drill.windows):
        drill.say(line)
    counted = Counter(copies.values())
    drill.say(f"in the log: {', '.join(f'{counted[each]} {each}' for each in (PUT_BY_OURS, PUT_BY_REAL, UNKNOWN))}")
    return not counted[PUT_BY_OURS] and all(each.may_be for each in found)
