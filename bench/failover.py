"""Failover in real processes: killed, silent and frozen masters, their return, and what giving many offsets back takes.

    ./understudy bench failover [--only ours|java] [--steps kill,return,silent,freeze,merge] [--rounds N] [--json]
    ./understudy bench failover --rounds 3 --into docs/failover.md      puts the table into the page that shows it
    ./understudy bench failover --led [--steps kill,longer,freeze] [--rounds N] [--into docs/controller.md]

Every step plays on a ring of three containers, each with one master and two slaves, and the real system plays the same
one. A container is killed, or frozen (SIGSTOP) and let go on when it was dropped, with all timeouts at their defaults;
silence is SIGSTOP with timeouts of one second, which are set when the ring is complete: brokers that are busy starting
would be dropped for it.

With `--led` it is a group of three replicas that controllers lead, ours or real ones: see `bench/failover_led.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from bench import failover_led
from bench.failover_table import (
    LED_TARGETS,
    TARGETS,
    Figures,
    medians,
    missed,
    page_table,
    put_into,
    table,
    table_of_page,
)
from understudy.format.json_dialect import dumps, loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.drills.ring import REPLICATED
from understudy.testkit.drills.ring_processes import DrillError, ProcessRing
from understudy.testkit.first_pull import first_pull
from understudy.testkit.java_tools import missing

TOPIC, GROUP, READERS = "orders", "g0", "bench-readers"
MESSAGES_PER_GROUP = 20
READY_LIMIT_S = 120.0  # slaves of the real system copy their master's tables for the first time after a minute
FAULT_LIMIT_S = 60.0
SETTLE_S = 2.0
OFTEN = {"brokerHeartbeatInterval": "300"}
# The permission is as it was: with it in the request, either system tells the name server at once.
ONE_SECOND = b"brokerNotActiveTimeoutMillis=1000\nbrokerPermission=6\n"
ONE_SECOND_SCAN = {"scanNotActiveBrokerInterval": "500"}
MERGE_GROUPS, MERGE_QUEUES = 1_000, 64
COMMITS_IN_FLIGHT = 64
STEPS = ("kill", "return", "silent", "freeze", "merge")


def log(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


# --- requests ---


async def accepted(ring: ProcessRing, address: str, queue_id: int = 0) -> bool:
    """Send one message; returns whether it was stored."""
    header = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(round(time.time() * 1000)),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return await ring.ask(address, RequestCode.SEND_MESSAGE_V2, header, b"failover") is not None


async def read_from(ring: ProcessRing, address: str) -> bool:
    """Pull the first messages of queue 0; returns whether some came."""
    header = first_pull(TOPIC, group=READERS)
    answer = await ring.ask(address, RequestCode.PULL_MESSAGE, header)
    return answer is not None and len(answer.body) > 0


async def slaves_know(ring: ProcessRing) -> bool:
    """Returns whether every slave of the group has the topic and its log."""
    end = (await ring.runtime(GROUP, 0)).get("commitLogMaxOffset")
    for number in ring.groups[GROUP][1:]:
        if (await ring.runtime(GROUP, number)).get("commitLogMaxOffset") != end:
            return False
        answer = await ring.ask(ring.address(GROUP, number), RequestCode.GET_ALL_TOPIC_CONFIG)
        if answer is None or TOPIC not in loads(answer.body)["topicConfigTable"]:
            return False
    return True


async def prepare(ring: ProcessRing, queues: int = 2) -> None:
    """Starts everything, makes the topic, fills queue 0 of each group, waits until the slaves have it."""
    await ring.start_all()
    await ring.until("the ring is complete", ring.complete, READY_LIMIT_S)
    await ring.make_topic(TOPIC, queues)
    for group in ring.groups:
        for number in range(MESSAGES_PER_GROUP * (queues if group == GROUP and queues > 2 else 1)):
            put = partial(accepted, ring, ring.address(group, 0), number % queues if queues > 2 else 0)
            await ring.until(f"the master of {group} takes a message", put, FAULT_LIMIT_S)
    await ring.until("the slaves have topic and log", lambda: slaves_know(ring), READY_LIMIT_S)
    await trio.sleep(SETTLE_S)


@asynccontextmanager
async def prepared(ring: ProcessRing, queues: int = 2) -> AsyncIterator[ProcessRing]:
    """Gives *ring* when it is prepared, and ends its processes."""
    try:
        await prepare(ring, queues)
        yield ring
    finally:
        ring.close()


# --- steps ---


async def stand_in(ring: ProcessRing, began: float, figures: Figures, name: str) -> None:
    """Notes when the route leads to the slave and when a read there succeeds, in seconds after *began*."""

    async def rewritten() -> bool:
        return await ring.routed_to(TOPIC, GROUP, 1)

    async def reads() -> bool:
        address = (await ring.route(TOPIC)).get(GROUP, {}).get(0)
        return address is not None and address != ring.address(GROUP, 0) and await read_from(ring, address)

    await ring.until("the route is rewritten", rewritten, FAULT_LIMIT_S)
    figures[f"{name}_route_s"] = trio.current_time() - began
    await ring.until("the acting slave is read", reads, FAULT_LIMIT_S)
    figures[f"{name}_read_s"] = trio.current_time() - began


async def come_back(ring: ProcessRing, go_on: Callable[[str], None], figures: Figures, name: str) -> None:
    """Starts the dead container, or lets a frozen one go on; notes when a client that follows the route can send."""

    async def sends() -> bool:
        address = (await ring.route(TOPIC)).get(GROUP, {}).get(0)
        return address == ring.address(GROUP, 0) and await accepted(ring, address)

    began = trio.current_time()
    go_on(ring.home(GROUP, 0))
    await ring.until("the master takes sends again", sends, READY_LIMIT_S)
    figures[name] = trio.current_time() - began


async def kill_and_return(client: RemotingClient, java: bool, steps: Sequence[str], figures: Figures) -> None:
    async with prepared(ProcessRing(client, java=java)) as ring:
        began = trio.current_time()
        ring.kill(ring.home(GROUP, 0))
        await stand_in(ring, began, figures, "kill")
        if "return" in steps:
            await trio.sleep(SETTLE_S)
            await come_back(ring, ring.start, figures, "return_send_s")


async def set_short_timeouts(ring: ProcessRing) -> None:
    """Give every broker a timeout of one second and wait until all are there with it."""
    for group, numbers in ring.groups.items():
        for number in numbers:
            address = ring.address(group, number)
            if await ring.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, ONE_SECOND) is None:
                raise DrillError(f"broker {number} of {group} does not take a timeout of one second")
    await trio.sleep(SETTLE_S)
    await ring.until("the ring is complete with timeouts of one second", ring.complete, FAULT_LIMIT_S)


async def silence(client: RemotingClient, java: bool, figures: Figures) -> None:
    async with prepared(ProcessRing(client, extra=OFTEN, name_server=ONE_SECOND_SCAN, java=java)) as ring:
        await set_short_timeouts(ring)
        began = trio.current_time()
        ring.freeze(ring.home(GROUP, 0))
        await stand_in(ring, began, figures, "silent")


async def freeze(client: RemotingClient, java: bool, figures: Figures) -> None:
    async with prepared(ProcessRing(client, java=java)) as ring:
        began = trio.current_time()
        ring.freeze(ring.home(GROUP, 0))
        await stand_in(ring, began, figures, "frozen")
        place = {"consumerGroup": READERS, "topic": TOPIC, "queueId": "0"}
        commit = place | {"commitOffset": str(MESSAGES_PER_GROUP)}
        if await ring.ask(ring.address(GROUP, 1), RequestCode.UPDATE_CONSUMER_OFFSET, commit) is None:
            raise DrillError("the acting slave takes no commit")
        await trio.sleep(SETTLE_S)
        await come_back(ring, ring.thaw, figures, "frozen_send_s")
        answer = await ring.ask(ring.address(GROUP, 0), RequestCode.QUERY_CONSUMER_OFFSET, place)
        kept = answer is not None and (answer.ext or {}).get("offset") == str(MESSAGES_PER_GROUP)
        log(f"what was committed at the slave, the master that was frozen has {'kept' if kept else 'lost'}")
        if not kept and not java:
            raise DrillError("the master did not take over what was committed at the slave")


async def commit_all(client: RemotingClient, address: str, offset: int) -> None:
    """Commits *offset* in every queue of every group at one broker."""

    async def share(groups: Sequence[int]) -> None:
        for group in groups:
            for queue_id in range(MERGE_QUEUES):
                header = {
                    "consumerGroup": f"group-{group}",
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "commitOffset": str(offset),
                }
                commit = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                answer = await client.invoke(address, commit, 10_000)
                if answer.code != 0:
                    raise DrillError(f"{address} takes no commit: {answer.remark}")

    async with trio.open_nursery() as nursery:
        for first in range(COMMITS_IN_FLIGHT):
            nursery.start_soon(share, range(first, MERGE_GROUPS, COMMITS_IN_FLIGHT))


async def merge(client: RemotingClient, figures: Figures) -> None:
    pair = {
        "c1": [{**REPLICATED, "totalReplicas": "2", "inSyncReplicas": "1", "brokerName": GROUP, "brokerId": "0",
                "brokerRole": "ASYNC_MASTER"}],
        "c2": [{**REPLICATED, "totalReplicas": "2", "inSyncReplicas": "1", "brokerName": GROUP, "brokerId": "1",
                "brokerRole": "SLAVE"}],
    }  # fmt: skip
    async with prepared(ProcessRing(client, pair), MERGE_QUEUES) as ring:
        master, slave = ring.address(GROUP, 0), ring.address(GROUP, 1)
        groups = dumps({"groupConfigList": [{"groupName": f"group-{number}"} for number in range(MERGE_GROUPS)]})
        if await ring.ask(master, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, groups) is None:
            raise DrillError("the groups could not be made")
        await commit_all(client, master, 3)
        await trio.sleep(2 * SETTLE_S)  # groups follow within three seconds, offsets within half a second
        ring.kill(ring.home(GROUP, 0))
        await ring.until("the slave acts", lambda: ring.active(GROUP, 1), FAULT_LIMIT_S)
        await commit_all(client, slave, 7)
        await come_back(ring, ring.start, figures, "merge_send_s")
        path = ring.store(GROUP, 0) / "config" / "preOnline.json"
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["changed"] < MERGE_GROUPS * MERGE_QUEUES:
            raise DrillError(f"only {report['changed']} queues were given back")
        figures["merge_s"] = (report["endedAt"] - report["beganAt"]) / 1000


async def measure(java: bool, steps: Sequence[str]) -> Figures:
    """Returns the figures of one round of one side, in seconds."""
    figures: Figures = {}
    with bare_errors():
        async with open_client(real_world()) as client:
            if "kill" in steps or "return" in steps:
                await kill_and_return(client, java, steps, figures)
            if "silent" in steps:
                await silence(client, java, figures)
            if "freeze" in steps:
                await freeze(client, java, figures)
            if "merge" in steps and not java:
                await merge(client, figures)
    return figures


# --- the command line ---


def play_round(
    play: Callable[[bool, Sequence[str]], Awaitable[Figures]],
    side: str,
    steps: Sequence[str],
    number: int,
    found: dict[str, list[Figures]],
) -> None:
    """Adds what a round of one side measures to *found*. Raises DrillError."""
    try:
        figures = trio.run(play, side == "java", steps)
    except DrillError as error:
        raise DrillError(f"{side}, round {number + 1}: {error}") from error
    log(f"{side}, round {number + 1}: {', '.join(f'{key} {value:.3f}' for key, value in figures.items())}")
    found[side].append(figures)


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark; returns 0, 1 when a figure misses its target, 2 when it could not be measured."""
    parser = argparse.ArgumentParser(
        prog="understudy bench failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("ours", "java"), help="one side")
    parser.add_argument("--led", action="store_true", help="a group that controllers lead")
    parser.add_argument("--steps", help=f"some of {', '.join(STEPS)}; with --led of {', '.join(failover_led.STEPS)}")
    parser.add_argument("--rounds", type=int, default=1, help="the medians of so many rounds (1)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="put a table of all rounds into FILE, a page with one"
    )
    options = parser.parse_args(arguments)
    targets, all_steps, play = TARGETS, STEPS, measure
    if options.led:
        targets, all_steps, play = LED_TARGETS, failover_led.STEPS, failover_led.measure_led
    steps = all_steps if options.steps is None else options.steps.split(",")
    unknown = [step for step in steps if step not in all_steps]
    if unknown or options.rounds < 1:
        print(f"bench failover: no step {', '.join(unknown)}; there are: {', '.join(all_steps)}", file=sys.stderr)
        return 2
    try:
        if options.into is not None:
            table_of_page(options.into.read_text(encoding="utf-8"))  # before an hour is spent
    except (OSError, ValueError) as error:
        print(f"bench failover: {options.into}: {error}", file=sys.stderr)
        return 2
    sides = ["java", "ours"] if options.only is None else [options.only]
    lack = missing() if "java" in sides else None
    if lack is not None:
        log(f"Java is not measured: {lack}")
        sides.remove("java")
    found: dict[str, list[Figures]] = {"java": [], "ours": []}
    try:
        for number in range(options.rounds):
            for side in sides:
                play_round(play, side, steps, number, found)
    except DrillError as error:
        print(f"bench failover: {error}", file=sys.stderr)
        print("\n".join(table(medians(found["ours"]), medians(found["java"]), targets)))
        return 2
    ours, java = medians(found["ours"]), medians(found["java"])
    if options.into is not None:
        put_into(options.into, page_table(found["ours"], found["java"], targets))
    if options.json:
        print(json.dumps({"ours": ours, "java": java}))
    else:
        print("\n".join(table(ours, java, targets)))
    return int(bool(missed(ours, java, targets)))
