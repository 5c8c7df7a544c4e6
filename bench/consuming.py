"""Our push consumer beside the Java client's: each consumes the same backlog, one message at a time, from one broker.

The broker is ours, in a process of its own; both clients have 20 consumers at a time and pull 32 messages at once. They
consume in turn; of each the best round counts. The Java client warms up first, which is in no figure but its processor
time: that is the whole process, start and warm-up included.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from bench.comparison.load import load
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeFrom,
    PushConsumerOptions,
    ReceivedMessage,
    message,
    open_producer,
    open_push_consumer,
    real_world,
)
from understudy.testkit.bench.doors import Took, cluster_process
from understudy.testkit.java_tools import missing

TOPIC = "BenchConsuming"
WANTED = 1.0
"""Least share of the Java client's rate."""
PROCESSOR_WANTED = 1 / 3
"""Largest share of the Java client's processor time; what else the machine does matters less to it than to the rate."""
BATCH, SENDERS = 100, 8
OPTIONS = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


async def fill(namesrv: str, messages: int) -> None:
    """Sends so many messages."""
    left = -(-messages // BATCH)
    async with open_producer(real_world(), namesrv, "bench_consuming") as producer, trio.open_nursery() as nursery:

        async def send() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send_batch([message(TOPIC, b"x" * 100) for _ in range(BATCH)])

        for _ in range(SENDERS):
            nursery.start_soon(send)


async def ours(namesrv: str, group: str, messages: int) -> Took:
    """Returns what it takes our client from the first message to the last."""
    seen, begin, done = 0, (0.0, 0.0), trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal seen, begin
        if seen == 0:
            begin = time.perf_counter(), time.process_time()
        seen += len(batch)
        if seen >= messages:
            done.set()

    async with open_push_consumer(real_world(), namesrv, group, {TOPIC: "*"}, listen, OPTIONS):
        await done.wait()
        return Took.since(*begin)


def java(namesrv: str, group: str, messages: int, warm_up: int) -> Took:
    """Returns what it takes the Java client after its warm-up; fails with what it says."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = ("--topic", TOPIC, "--count", messages, "--warmup-count", warm_up, "--group", group, "--timeout", 300)
    figures = load("consume", "--namesrv", namesrv, *arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "msgs_s" not in figures:
        raise SystemExit(f"the Java client: {figures.get('failed', figures)}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(messages / figures["msgs_s"], processor)


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns 0 when our client is quick and frugal enough, else 1, and 2 without a Java client."""
    parser = argparse.ArgumentParser(
        prog="understudy bench consuming", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=300_000, help="of one round (default 300,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures")
    options = parser.parse_args(arguments)
    why = missing()
    if why is not None:
        print(why)
        return 2
    mine: list[Took] = []
    theirs: list[Took] = []
    with cluster_process() as namesrv:
        trio.run(fill, namesrv, options.messages)
        for number in range(options.rounds):
            mine.append(trio.run(ours, namesrv, f"ours_{number}", options.messages))
            theirs.append(java(namesrv, f"java_{number}", options.messages, options.messages // 5))
    our_s, our_cpu = min(each.seconds for each in mine), min(each.processor_seconds for each in mine)
    java_s, java_cpu = min(each.seconds for each in theirs), min(each.processor_seconds for each in theirs)
    ratio, share = java_s / our_s, our_cpu / java_cpu
    print(
        f"ours {options.messages / our_s:,.0f}/s, Java {options.messages / java_s:,.0f}/s: {ratio:.2f}, at least "
        f"{WANTED}: {'ok' if ratio >= WANTED else 'TOO SLOW'}; processor {our_cpu / options.messages * 1e6:.0f} us a "
        f"message, Java {java_cpu / options.messages * 1e6:.0f} us: {share:.2f}, "
        f"at most {PROCESSOR_WANTED:.2f}: {'ok' if share <= PROCESSOR_WANTED else 'TOO MUCH'}"
    )
    if options.json:
        figures = {"ours": [our_s, our_cpu], "java": [java_s, java_cpu], "ratio": ratio, "processor_ratio": share}
        Path(options.json).write_text(json.dumps(figures, indent=1))
    return 0 if ratio >= WANTED and share <= PROCESSOR_WANTED else 1
