"""Histories of whole controllers: random faults for as long as a seed says, then what must be true at the end."""

from __future__ import annotations

import random

import trio

from understudy.testkit.quorum.controllers import ControllersResult, SimControllers
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import run_seed

BEHIND = "kill master of one behind"
FAULTS = (
    "kill controller",
    "power of controller",
    "kill active",
    "kill master",
    "kill broker",
    "isolate controller",
    "isolate broker",
    "broker loses controllers",
    "outage",
    "hand over",
    BEHIND,
)


async def _inject(cluster: SimControllers, fault: str, source: random.Random) -> None:
    cluster.result.counts[f"fault {fault}"] += 1
    cluster.trace.record("fault", fault)
    network = cluster.network
    everybody = [*cluster.names, *cluster.brokers]
    if fault in ("kill controller", "power of controller", "kill active"):
        active = cluster.active()
        host = active if fault == "kill active" and active else cluster.controllers[source.choice(cluster.names)]
        await host.kill(power=fault == "power of controller")
        await trio.sleep(source.uniform(0.05, 2))
        host.start()
    elif fault in ("kill master", "kill broker"):
        broker = cluster.brokers[source.choice(list(cluster.brokers))]
        if fault == "kill master" and cluster.active() is not None:
            try:
                broker = cluster.master_host(broker.settings.broker_name)
            except (LookupError, KeyError):
                cluster.result.counts["no master to kill"] += 1
        await broker.kill()
        await trio.sleep(source.uniform(0.05, 4))
        broker.start()
    elif fault == BEHIND:
        await _kill_master_of_one_behind(cluster, source)
    elif fault in ("isolate controller", "isolate broker"):
        names = cluster.names if fault == "isolate controller" else list(cluster.brokers)
        name = source.choice(names)
        network.partition([name], [other for other in everybody if other != name])
        await trio.sleep(source.uniform(0.5, 5))
        network.heal()
    elif fault == "broker loses controllers":
        network.partition([source.choice(list(cluster.brokers))], source.sample(cluster.names, 2))
        await trio.sleep(source.uniform(0.5, 5))
        network.heal()
    elif fault == "outage":
        for host in cluster.controllers.values():
            await host.kill(power=source.random() < 0.5)
        await trio.sleep(source.uniform(0.05, 3))
        for host in cluster.controllers.values():
            host.start()
    else:
        active = cluster.active()
        if active is not None and active.controller is not None:
            await active.controller.member.hand_over()


async def _kill_master_of_one_behind(cluster: SimControllers, source: random.Random) -> None:
    """Let a pair's slave fall out of the set, and kill its master about when the slave is back: nobody may lead."""
    try:
        master = cluster.master_host("b")
    except (LookupError, KeyError):
        cluster.result.counts["no master to kill"] += 1
        return
    slave = next(host for host in cluster.brokers.values() if host is not master and host.name.startswith("b-"))
    await slave.kill()
    try:
        await cluster.wait_in_sync("b", 1, 10)
    except trio.TooSlowError:
        cluster.result.counts["set not shrunk"] += 1
    slave.start()
    await trio.sleep(source.uniform(0, 0.5))
    await master.kill()
    await trio.sleep(source.uniform(0.5, 3))
    master.start()


async def controllers_history(
    source: random.Random, seed: int, seconds: float, faults: tuple[str, ...] = FAULTS
) -> ControllersResult:
    """Run one history with random faults and check it.

    Args:
        source: of everything that is drawn.
        seed: it began with, for the report.
        seconds: of virtual time with faults.
        faults: kinds of faults to be drawn from.
    """
    result = ControllersResult(seed)
    async with trio.open_nursery() as nursery:
        quality = LinkQuality(delay_seconds=(0.0003, 0.003), loss=0.01, retransmit_seconds=(0.02, 0.3))
        cluster = SimControllers(source, nursery, result, {"a": 3, "b": 2}, quality=quality)
        cluster.start()
        for group, count in (("a", 3), ("b", 2)):
            await cluster.wait_in_sync(group, count)
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(source.uniform(0.3, 2))
            await _inject(cluster, source.choice(faults), source)
        cluster.network.heal()
        try:
            for group, count in (("a", 3), ("b", 2)):
                await cluster.wait_in_sync(group, count, 40)
        except trio.TooSlowError:
            metadata = cluster.metadata()
            cluster.violation(f"not recovered 40 s after the last fault: {metadata and metadata.groups}")
        await trio.sleep(2)
        states = {host.controller.metadata.snapshot() for host in cluster.controllers.values() if host.controller}
        if len(states) != 1:
            cluster.violation("controllers differ at the end")
        cluster.trace.record(sorted(cluster.masters.items()), sorted(result.counts.items()))
        result.counts["epochs"] = len(cluster.masters)
        result.digest, result.newest = cluster.trace.digest(), cluster.trace.newest()
        nursery.cancel_scope.cancel()
    return result


def run_controllers_seed(seed: int, seconds: float = 20.0, faults: tuple[str, ...] = FAULTS) -> ControllersResult:
    """Run the history of *seed* with faults drawn from *faults*: equal seeds give equal histories."""
    return run_seed(lambda source: controllers_history(source, seed, seconds, faults), seed)
