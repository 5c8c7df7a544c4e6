"""The comparison of groups that controllers lead: sends that all replicas have, what that costs, and a backlog."""

from __future__ import annotations

import shutil
import time
from functools import partial

import trio

from bench.comparison.load import Step, Watch, load, replicated_step
from bench.comparison.processes import Cluster, cpu_seconds, process_tree
from bench.comparison.rounds import LOAD_START_S, SETTLE_S, Settings, Spent, attached, fill, log
from bench.comparison.targets import Figures
from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import real_world

REPLICAS = 3
JOIN_LIMIT_S = 120
_LOOK_S = 0.05


def measure_led(side: Cluster, settings: Settings) -> dict[str, Figures]:
    """Returns figures of a led group: `led_all_ack` (all replicas have what is sent), `led_replicate` (a backlog)."""
    figures = {"led_all_ack": measure_all_ack(side, settings)}
    log(f"{side.name}: sends that three led replicas have: {figures['led_all_ack']}")
    if settings.replicate_mb:
        figures["led_replicate"] = measure_backlog(side, settings.replicate_mb)
        log(f"{side.name}: a backlog to an empty led replica: {figures['led_replicate']}")
    return figures


def measure_all_ack(side: Cluster, settings: Settings) -> Figures:
    """Returns how fast sends are that a whole sync-state set of three must have, and what the slaves cost the master.

    The master is measured alone first: the difference of its processor time per message is what two slaves cost it.
    Only time after the warm-up counts, as in `measure_sync_master`.
    """
    step = replicated_step(settings.seconds, settings.warmup, settings.size)
    costs: list[float] = []
    try:
        for replicas in (1, REPLICAS):
            shutil.rmtree(side.folder, ignore_errors=True)
            side.start_led()
            for number in range(1, replicas):
                side.start_led_replica(number)
            await_in_sync(side, replicas)
            result, cost = _sent(side, step, settings)
            if cost is None:
                return result
            costs.append(cost)
            side.end()
        result["master_cpu_s_per_100k"] = round(costs[1], 3)
        result["slave_cpu_s_per_100k"] = round(costs[1] - costs[0], 3)
        return result
    except (LookupError, RuntimeError) as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


def _sent(side: Cluster, step: Step, settings: Settings) -> tuple[Figures, float | None]:
    """Returns the result of a step, and the master's processor seconds for 100,000 messages, None when it failed."""
    ready = load("first", "--namesrv", side.namesrv, "--topic", "BaseFirst", "--timeout", 120)
    if "failed" in ready:
        return ready, None
    time.sleep(SETTLE_S)
    master = side.children[1]  # after the name server
    spent = Spent(lambda: sum(map(cpu_seconds, process_tree(master.pid))))
    with spent.between(settings.warmup + LOAD_START_S, settings.seconds - 2 * LOAD_START_S):
        result = load(*step.arguments, "--namesrv", side.namesrv)
    if not result.get("msgs_s"):
        return {"failed": result.get("failed", "nothing was acknowledged")}, None
    return result, spent.per_second / result["msgs_s"] * 1e5


def measure_backlog(side: Cluster, megabytes: int) -> Figures:
    """Fills a led master, then starts an empty replica: returns how fast the log crosses."""
    shutil.rmtree(side.folder, ignore_errors=True)
    try:
        side.start_led()
        await_in_sync(side, 1)
        fill(side, megabytes)
        watch = Watch(
            "catchup", "--namesrv", side.namesrv, "--master", side.broker_address, "--slave", side.slave_address
        )
        return attached(watch, partial(side.start_led_replica, 1))
    except (LookupError, RuntimeError) as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


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
