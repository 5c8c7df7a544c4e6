"""One round of the comparison: both sides start on empty stores, play every step in turn, are killed and restart."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.comparison.load import (
    CONSUME,
    CONSUME_SQL,
    ONE_IN,
    POP,
    Step,
    Watch,
    condition_steps,
    feature_steps,
    load,
    load_steps,
    replicated_step,
    sync_flush_step,
)
from bench.comparison.processes import Cluster, processor_ticks
from bench.comparison.targets import Figures

SETTLE_S = 10
"""A real broker keeps a processor busy for so long: it waits in a loop for the first write of its metrics."""
LOAD_START_S = 2
"""Longest start of the load client, whose clock begins after it."""
IDLE_SETTLE_S = 20
IDLE_MEASURE_S = 30
CONTAINERS, BROKERS_EACH = 3, 3
TRIES = 4
"""Of a step during which the machine gave its processors to others."""


@dataclass(frozen=True)
class Settings:
    """What a round measures and for how long (seconds, bytes, messages).

    `steps` None means all steps, those of features only with `with_features`; `stolen_percent` None means that a step
    is measured once whatever the machine does.
    """

    steps: frozenset[str] | None
    threads: tuple[int, ...]
    seconds: int
    warmup: int
    size: int
    backlog: int
    pause_other: bool
    stolen_percent: float | None
    with_features: bool
    timers: int
    with_sync_flush: bool
    with_sync_master: bool
    replicate_mb: int
    with_conditions: bool = False

    def load_steps(self) -> list[Step]:
        steps = load_steps(self.threads, self.seconds, self.warmup, self.size)
        if self.steps is None and not self.with_features:
            return steps
        steps += feature_steps(self.seconds, self.warmup, self.size, self.timers)
        return [step for step in steps if self.steps is None or step.key in self.steps]


class Spent:
    """Processor time per second over a part of a block.

    Args:
        clock: processor seconds so far.

    Attributes:
        per_second: processor seconds in a second of that part; 0 when the block ended too early.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.per_second = 0.0

    @contextmanager
    def between(self, after_s: float, for_s: float) -> Iterator[None]:
        """Looks twice while the block runs: *after_s* after its begin, and *for_s* later."""
        over = threading.Event()

        def look() -> None:
            if over.wait(after_s):
                return
            before, begin = self._clock(), time.monotonic()
            if not over.wait(for_s):
                self.per_second = (self._clock() - before) / (time.monotonic() - begin)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


def log(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def brief(result: Figures) -> str:
    if "failed" in result:
        return f"FAILED {result['failed']}"
    text = f"{result['msgs_s']}/s " if "msgs_s" in result else ""
    text += f"p50 {result['p50_ms']:.2f} p99 {result['p99_ms']:.2f} ms " if "p50_ms" in result else ""
    text += f"late p50 {result['late_p50_ms']} p99 {result['late_p99_ms']} ms " if "late_p50_ms" in result else ""
    cpu = result.get("server_cpu_s_per_100k")
    text += f"server CPU {cpu} s/100k" if cpu is not None else ""
    text += f" stolen {result['stolen_percent']} %" if result.get("stolen_percent") else ""
    return text + (f" errors {result['errors']}" if result.get("errors") else "")


def play(side: Cluster, step: Step, figures: Figures, settings: Settings) -> None:
    """Plays one step against one side and keeps its result: that of the quietest try, if it may be tried again."""
    extra: tuple[object, ...] = ()
    takes = step.key in (CONSUME, POP)
    if takes:
        sent = figures.get("send_async", {}).get("acked_with_warmup", 0)
        extra = ("--count", min(sent, settings.backlog) or 1)
    limit = settings.stolen_percent
    tries: list[Figures] = []
    while True:
        tries.append(play_once(side, step, extra))
        log(f"{side.name}: {step.key}: {brief(tries[-1])}")
        once = limit is None or takes  # a backlog is gone when it is consumed
        if once or tries[-1]["stolen_percent"] <= limit or len(tries) == TRIES:
            break
    figures[step.key] = min(tries, key=lambda result: ("failed" in result, result["stolen_percent"]))


def play_once(side: Cluster, step: Step, extra: tuple[object, ...]) -> Figures:
    """Returns the result of one step, with the CPU time that the servers spent and what others took of the machine."""
    before_s, (stolen, ticks) = side.cpu_s(), processor_ticks()
    result = load(*step.arguments, "--namesrv", side.namesrv, *extra)
    # Warm-up counts on both sides of the fraction, where the client tells how much it did there.
    handled = result.get("acked_with_warmup") or (
        result.get("count") if step.key in (CONSUME, CONSUME_SQL, POP) else None
    )
    if handled:
        result["server_cpu_s_per_100k"] = round((side.cpu_s() - before_s) / handled * 1e5, 3)
    stolen_after, ticks_after = processor_ticks()
    result["stolen_percent"] = round((stolen_after - stolen) / max(ticks_after - ticks, 1) * 100, 1)
    return result


@contextmanager
def measured_alone(side: Cluster, sides: Sequence[Cluster], settings: Settings) -> Iterator[None]:
    """Takes the other sides off the processors for the time of the block, when that is wanted."""
    others = [other for other in sides if other is not side] if settings.pause_other else []
    for other in others:
        other.pause(True)
    try:
        yield
    finally:
        for other in others:
            other.pause(False)


def play_all(sides: Sequence[Cluster], figures: dict[str, Figures], settings: Settings) -> None:
    """Plays every step against every side; the order of the sides is swapped at every step."""
    for number, step in enumerate(settings.load_steps()):
        for side in sides if number % 2 == 0 else sides[::-1]:
            with measured_alone(side, sides, settings):
                play(side, step, figures[side.name], settings)


def measure_round(sides: Sequence[Cluster], settings: Settings) -> dict[str, Figures]:
    """Returns {side: figures} of one round; every side is ended when it returns or raises."""
    figures: dict[str, Figures] = {side.name: {} for side in sides}
    try:
        for side in sides:
            shutil.rmtree(side.folder, ignore_errors=True)
            with measured_alone(side, sides, settings):
                figures[side.name]["start_to_first_ack_ms"] = side.timed_start()
            log(f"{side.name}: start to first ack: {figures[side.name]['start_to_first_ack_ms']} ms")
        time.sleep(SETTLE_S)
        for side in sides:
            figures[side.name]["anon_idle_mb"] = {"all": side.memory_mb()}
        play_all(sides, figures, settings)
        for side in sides:
            figures[side.name]["anon_after_mb"] = {"all": side.memory_mb()}
            idle, loaded = figures[side.name]["anon_idle_mb"]["all"], figures[side.name]["anon_after_mb"]["all"]
            log(f"{side.name}: RssAnon {idle} MB idle, {loaded} MB after the load")
        for side in sides:
            side.end(signal.SIGKILL)
            with measured_alone(side, sides, settings):
                figures[side.name]["restart_killed_ms"] = side.timed_start()
            log(f"{side.name}: restart after SIGKILL: {figures[side.name]['restart_killed_ms']} ms")
            side.end()
        if settings.with_sync_flush:
            for side in sides:
                measure_sync_flush(side, figures[side.name], settings)
        if settings.with_conditions:
            for side in sides:
                measure_conditions(side, figures[side.name], settings)
        if settings.with_sync_master:
            for side in sides:
                figures[side.name]["sync_master"] = measure_sync_master(side, settings)
                log(f"{side.name}: sync master: {figures[side.name]['sync_master']}")
        if settings.replicate_mb:
            for side in sides:
                figures[side.name]["replicate"] = replicate(side, settings.replicate_mb)
                log(f"{side.name}: replicate: {figures[side.name]['replicate']}")
    finally:
        for side in sides:
            side.end(signal.SIGKILL)
            shutil.rmtree(side.folder / "master", ignore_errors=True)
    return figures


def started_empty(side: Cluster, what: str, **keys: str) -> bool:
    """Starts the side on an empty store with settings of its own; returns whether it runs, and says what is missed."""
    shutil.rmtree(side.folder, ignore_errors=True)
    try:
        side.timed_start(**keys)
    except LookupError as reason:
        log(f"{side.name}: {what} not measured: {reason}")
        return False
    time.sleep(SETTLE_S)
    return True


def measure_sync_flush(side: Cluster, figures: Figures, settings: Settings) -> None:
    """Starts the side on an empty store with synchronous flush and plays the one step that belongs to it."""
    if not started_empty(side, "synchronous flush", flushDiskType="SYNC_FLUSH"):
        return
    play(side, sync_flush_step(settings.seconds, settings.warmup, settings.size), figures, settings)
    side.end()


def measure_conditions(side: Cluster, figures: Figures, settings: Settings) -> None:
    """Fills an empty side that serves conditions, and has one consumed that a tenth of the messages meet."""
    if not started_empty(side, "consuming by a condition", enablePropertyFilter="true"):
        return
    fill_step, consume_step = condition_steps(settings.seconds, settings.warmup, settings.size)
    sent = load(*fill_step.arguments, "--namesrv", side.namesrv).get("acked_with_warmup", 0)
    # A send that failed may have taken a number: some of the last messages are left.
    wanted = min(sent, settings.backlog) // ONE_IN * 9 // 10
    result = play_once(side, consume_step, ("--count", max(wanted, 1)))
    log(f"{side.name}: {consume_step.key}: {brief(result)}")
    figures[consume_step.key] = result
    side.end()


def measure_nine_idle(side: Cluster) -> Figures:
    """Returns what nine idle brokers in three containers cost: {cpu_percent of one core, anon_mb}."""
    shutil.rmtree(side.folder, ignore_errors=True)
    try:
        side.start_containers(CONTAINERS, BROKERS_EACH)
        ready = load("first", "--namesrv", side.namesrv, "--topic", "BaseIdle", "--timeout", 120)
        if "failed" in ready:
            return ready
        time.sleep(IDLE_SETTLE_S)
        before_s, begin = side.cpu_s(), time.monotonic()
        time.sleep(IDLE_MEASURE_S)
        percent = (side.cpu_s() - before_s) / (time.monotonic() - begin) * 100
        return {"cpu_percent": round(percent, 2), "anon_mb": side.memory_mb()}
    except LookupError as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


def measure_sync_master(side: Cluster, settings: Settings) -> Figures:
    """Returns how fast sends are of which a slave must have a copy, and what the slave costs its master.

    The master is measured alone first, without waiting for anybody; the difference of its processor time per message is
    what the slave costs. Only time after the warm-up counts: what a virtual machine spends on compiling is no cost of a
    slave, and would be spread over more messages when the master is alone.
    """
    step = replicated_step(settings.seconds, settings.warmup, settings.size)
    costs: list[float] = []
    try:
        for with_slave in (False, True):
            shutil.rmtree(side.folder, ignore_errors=True)
            if with_slave:
                side.start(ROLE="SYNC_MASTER", inSyncReplicas=2)
                side.start_slave()
            else:
                side.start()
            ready = load("first", "--namesrv", side.namesrv, "--topic", "BaseFirst", "--timeout", 120)
            if "failed" in ready:
                return ready
            time.sleep(SETTLE_S)
            spent = Spent(partial(side.master_cpu_s, with_slave=with_slave))
            with spent.between(settings.warmup + LOAD_START_S, settings.seconds - 2 * LOAD_START_S):
                result = load(*step.arguments, "--namesrv", side.namesrv)
            if not result.get("msgs_s"):
                return {"failed": result.get("failed", "nothing was acknowledged")}
            costs.append(spent.per_second / result["msgs_s"] * 1e5)
            side.end()
        result["master_cpu_s_per_100k"] = round(costs[1], 3)
        result["slave_cpu_s_per_100k"] = round(costs[1] - costs[0], 3)
        return result
    except LookupError as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


def replicate(side: Cluster, megabytes: int) -> dict[str, Any]:
    """Fills a master, then attaches an empty slave: returns how fast the log crosses.

    Keep the log below 1 GiB: a real master gives an empty slave only its last log file.
    """
    shutil.rmtree(side.folder, ignore_errors=True)
    try:
        side.timed_start()
        fill(side, megabytes)
        addresses = ("--master", side.broker_address, "--slave", side.slave_address)
        watch = Watch("catchup", "--namesrv", side.namesrv, *addresses)
        return attached(watch, side.start_slave)
    except (LookupError, RuntimeError) as reason:
        return {"failed": str(reason)}
    finally:
        side.end()
        shutil.rmtree(side.folder, ignore_errors=True)


def attached(watch: Watch, start: Callable[[], None]) -> Figures:
    """Starts an empty slave and returns how fast it came to hold what its master has, as *watch* sees it."""
    begin = time.time()
    start()
    result = watch.result()
    if "failed" not in result:
        result["attach_to_caught_up_ms"] = round(result["done_epoch_ms"] - begin * 1000)
        result["attach_mb_s"] = result["bytes"] / 1e3 / result["attach_to_caught_up_ms"]
    return result


def fill(side: Cluster, megabytes: int) -> None:
    """Sends so much to the master of a side. Raises RuntimeError when it does not take it."""
    body = 16384
    count = int(megabytes * 1e6 / (body + 200))
    limits = ("--warmup", 0, "--count", count, "--limit", 240)
    sending = ("--mode", "async", "--inflight", 128, "--size", body, *limits)
    filled = load("send", "--namesrv", side.namesrv, "--topic", "BaseFill", *sending)
    if "failed" in filled or filled["count"] == 0:
        raise RuntimeError(f"fill: {filled}")
