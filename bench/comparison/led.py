"""The comparison of groups that controllers lead: sends that all replicas have, what that costs, and a backlog."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial

import trio

from bench.comparison.load import Watch, load, replicated_step, steady_arguments, steady_load
from bench.comparison.processes import Cluster, cpu_seconds, process_tree
from bench.comparison.rounds import SETTLE_S, Settings, attached, fill, log
from bench.comparison.targets import Figures
from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import real_world

REPLICAS = 3
JOIN_LIMIT_S = 120
STEADY_RATE = 2_000
"""Messages a second that either side takes easily from this machine's client."""
_LOOK_S = 0.05


def measure_led(side: Cluster, settings: Settings) -> dict[str, Figures]:
    """Returns figures of a led group: `led_all_ack` (all have what is sent), `led_steady`, `led_replicate`."""
    figures = {"led_all_ack": _of(side, lambda: _all_ack(side, settings))}
    log(f"{side.name}: sends that three led replicas have: {figures['led_all_ack']}")
    figures["led_steady"] = _of(side, lambda: _steady(side, settings))
    log(f"{side.name}: what two replicas cost a led master: {figures['led_steady']}")
    if settings.replicate_mb:
        figures["led_replicate"] = _of(side, lambda: _backlog(side, settings.replicate_mb))
        log(f"{side.name}: a backlog to an empty led replica: {figures['led_replicate']}")
    return figures


def _of(side: Cluster, measure: Callable[[], Figures]) -> Figures:
    """Returns what *measure* does, or why it failed; ends the side, and removes its files."""
    try:
        return measure()
    except (LookupError, RuntimeError) as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


def _all_ack(side: Cluster, settings: Settings) -> Figures:
    """Returns how fast sends are that a whole sync-state set of three must have."""
    step = replicated_step(settings.seconds, settings.warmup, settings.size)
    _start_all(side)
    result = load(*step.arguments, "--namesrv", side.namesrv)
    return result if result.get("msgs_s") else {"failed": result.get("failed", "nothing was acknowledged")}


def _steady(side: Cluster, settings: Settings) -> Figures:
    """Returns what it costs a master to have two slaves in its set, :data:`STEADY_RATE` messages a second.

    A master without controllers and slaves takes as many first; the difference of processor time is the cost. At full
    speed there is no such figure: who waits for slaves takes fewer messages, in portions of another size. Nor is a led
    master without slaves the one to compare with: ours has everything on its disk then, before it acknowledges.
    """
    per_100k = []
    for start in (_start_plain, _start_all):
        start(side)
        arguments = steady_arguments(STEADY_RATE, 3 * settings.warmup, settings.size)
        with steady_load("--namesrv", side.namesrv, *arguments) as sending:
            spent = _cpu_per_second(side.children[1].pid, settings.seconds)  # after the name server
            sent = sending.result()
        side.end()
        if (rate := sent.get("msgs_s", 0)) < STEADY_RATE * 0.8:
            return {"failed": sent.get("failed", f"{rate} messages a second were taken, not {STEADY_RATE}")}
        per_100k.append(spent / rate * 1e5)
    plain, led = per_100k
    return {"plain_cpu_s_per_100k": round(plain, 3), "slave_cpu_s_per_100k": round(led - plain, 3)}


def _backlog(side: Cluster, megabytes: int) -> Figures:
    """Fills a led master, then starts an empty replica: returns how fast the log crosses."""
    _start_alone(side)
    fill(side, megabytes)
    addresses = ("--master", side.broker_address, "--slave", side.slave_address)
    return attached(Watch("catchup", "--namesrv", side.namesrv, *addresses), partial(side.start_led_replica, 1))


def _start_plain(side: Cluster) -> None:
    shutil.rmtree(side.folder, ignore_errors=True)
    side.start()
    _practise(side)


def _start_alone(side: Cluster) -> None:
    shutil.rmtree(side.folder, ignore_errors=True)
    side.start_led()
    await_in_sync(side, 1)


def _start_all(side: Cluster) -> None:
    """Starts a led group of three, replica after replica, and has its master practised a little."""
    _start_alone(side)
    for number in range(1, REPLICAS):
        side.start_led_replica(number)
    await_in_sync(side, REPLICAS)
    _practise(side)
    time.sleep(SETTLE_S)


def _practise(side: Cluster) -> None:
    ready = load("first", "--namesrv", side.namesrv, "--topic", "BaseFirst", "--timeout", 120)
    if "failed" in ready:
        raise RuntimeError(ready["failed"])


def _cpu_per_second(pid: int, seconds: float) -> float:
    def spent() -> float:
        return sum(map(cpu_seconds, process_tree(pid)))

    before, begin = spent(), time.monotonic()
    time.sleep(seconds)
    return (spent() - before) / (time.monotonic() - begin)


def await_in_sync(side: Cluster, count: int) -> None:
    """Waits until the group has a master and *count* members in its set. Raises RuntimeError after the limit."""
    if not trio.run(_in_sync, side.controller_address, count):
        raise RuntimeError(f"{side.name}: no master with {count} replicas in sync within {JOIN_LIMIT_S} s")


async def _in_sync(controller: str, count: int) -> bool:
    with trio.move_on_after(JOIN_LIMIT_S):
        async with open_client(real_world()) as client:
            while True:
                question = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "broker-a"})
                try:
                    answer = await client.invoke(controller, question, 1_000)
                    members = loads(answer.body).get("syncStateSet") if answer.code == 0 and answer.body else None
                    if members is not None and len(members) >= count and (answer.ext or {}).get("masterBrokerId"):
                        return True
                except RemotingError:
                    pass  # it starts
                await trio.sleep(_LOOK_S)
    return False
