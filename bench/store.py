"""How fast is the store on one core, without any client: append, batch append, pulls, start after a killed process.

    ./understudy bench store [--messages N] [--light N] [--only-light] [--folder DIR] [--json]

Rates are per second of processor time, so that other work on the machine disturbs them less; the starts are in seconds
of wall time and happen in a process of their own. Light queues are measured with a quarter of them, too: what one costs
must not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from understudy.broker.property_filter import PropertyFilter
from understudy.broker.sql_filter.expression import compile_expression
from understudy.format.batch import encode_batch
from understudy.format.names import LIGHT_PREFIX
from understudy.format.properties import format_properties
from understudy.format.record import encode_host
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore

BODY = b"x" * 1024
PRODUCER = encode_host("127.0.0.1", 5000)
QUEUES = 8
BATCH = 32
PULL = 32

_OPEN = """
import sys, time, trio
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
async def main():
    started = time.perf_counter()
    store = await MessageStore.open(real_world(), StoreConfig(sys.argv[1]), ("127.0.0.1", 10911))
    seconds = time.perf_counter() - started
    status = open("/proc/self/status").read()
    anonymous_kb = int(status.split("RssAnon:")[1].split()[0])
    print(seconds, anonymous_kb, sum(store.max_queue_offset(*queue) for queue in store.queues()))
trio.run(main)
"""


def rate(count: int, work: Callable[[], None]) -> float:
    """Return how many of *count* steps *work* does in a second of processor time."""
    started = time.process_time()
    work()
    return count / (time.process_time() - started)


def properties_of(number: int) -> bytes:
    """Return properties like those of a Java client's message."""
    key = f"7F0000010A2018B4AAC2{number >> 5 & 0xFFFFFFFF:08X}{number & 0xFFFF:04X}"
    pairs = {"a": str(number % 10), "UNIQ_KEY": key, "WAIT": "true", "CLUSTER": "DefaultCluster"}
    return format_properties(pairs).encode()


async def measure(folder: str, messages: int) -> dict[str, float]:
    """Return the figures by name."""
    config = StoreConfig(folder)
    store = await MessageStore.open(real_world(), config, ("127.0.0.1", 10911))
    properties = [properties_of(number) for number in range(messages)]
    figures: dict[str, float] = {}

    def single() -> None:
        append = store.append
        now = time.time_ns() // 1_000_000
        for number, each in enumerate(properties):
            append("Bench", number % QUEUES, BODY, each, 1, PRODUCER, now_ms=now)

    figures["append 1 KiB, messages/s"] = rate(messages, single)

    batches = [
        encode_batch([(0, BODY, each) for each in properties[first : first + BATCH]])
        for first in range(0, min(messages, 100_000), BATCH)
    ]

    def batched() -> None:
        append_batch = store.append_batch
        now = time.time_ns() // 1_000_000
        for number, body in enumerate(batches):
            append_batch("Batches", number % QUEUES, body, 1, PRODUCER, now_ms=now)

    figures["append in batches of 32, messages/s"] = rate(len(batches) * BATCH, batched)

    end = store.max_queue_offset("Batches", 0)

    def pull() -> None:
        get = store.get
        for number in range(100_000):
            get("Batches", 0, number % (end - PULL), PULL, 1 << 20)

    figures["pull 32 neighbours, pulls/s"] = rate(100_000, pull)

    def pull_scattered() -> None:
        get = store.get
        for number in range(20_000):
            get("Bench", 0, number % (messages // QUEUES - PULL), PULL, 1 << 20)

    figures["pull 32 of one queue among eight, pulls/s"] = rate(20_000, pull_scattered)

    condition = PropertyFilter(compile_expression("a = 3"))

    def pull_by_condition() -> None:
        for queue in range(QUEUES):
            offset = 0
            while offset < store.max_queue_offset("Batches", queue):
                found = store.get("Batches", queue, offset, PULL, 1 << 20, None, condition.reading())
                offset = found.next_begin_offset

    figures["pull by a condition, messages looked at/s"] = rate(len(batches) * BATCH, pull_by_condition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        await trio.sleep(1)  # as long as a running broker needs to note its progress
        nursery.cancel_scope.cancel()
    total = messages + len(batches) * BATCH
    for label in ("start after a killed process, s", "start after a clean end, s"):
        if "clean" in label:
            await store.close()
        else:
            await trio.to_thread.run_sync(copy_sparse, folder, folder + "-killed")
        target = folder if "clean" in label else folder + "-killed"
        done = await trio.to_thread.run_sync(start, target)
        figures[label] = done[0]
        figures[label.replace(", s", ", RssAnon MB")] = done[1] / 1024
        assert done[2] == total, f"{done[2]} messages after the start, {total} before"
    return figures


async def measure_light(folder: str, queues: int) -> dict[str, float]:
    """Return what so many light queues take, in microseconds of processor time for each."""
    config = StoreConfig(folder, enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=queues)
    store = await MessageStore.open(real_world(), config, ("127.0.0.1", 10911))
    names = [f"{LIGHT_PREFIX}device-{number}" for number in range(queues)]
    named = [properties_of(n) + f"INNER_MULTI_DISPATCH\x01{name}\x02".encode() for n, name in enumerate(names)]

    def send() -> None:
        for number in range(queues):
            store.append("Parent", number % QUEUES, BODY[:100], named[number], 1, PRODUCER)

    def pull() -> None:
        for name in names:
            assert store.get(name, 0, 0, PULL, 1 << 20).next_begin_offset == 3

    figures = {}
    for what, work in (("made by a send", send), ("sent to", send), ("sent to again", send), ("pulled", pull)):
        figures[f"{queues} light queues, {what}, us each"] = 1e6 / rate(queues, work)
    await store.close()
    return figures


def copy_sparse(source: str, target: str) -> None:
    """Copy a store as a killed process leaves it, holes as holes."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


def start(folder: str) -> tuple[float, float, int]:
    """Open a store in a new process; return (seconds, anonymous memory in KB, messages)."""
    done = subprocess.run([sys.executable, "-c", _OPEN, folder], capture_output=True, text=True, check=True)
    seconds, anonymous_kb, count = done.stdout.split()
    return float(seconds), float(anonymous_kb), int(count)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--light", type=int, default=20_000, help="light queues")
    parser.add_argument("--only-light", action="store_true", help="nothing but light queues")
    parser.add_argument("--folder", help="where to write (default: a temporary folder)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="understudy-bench-store-")) / "store"
    try:
        figures = {} if options.only_light else trio.run(measure, str(folder), options.messages)
        for count in (options.light // 4, options.light):
            figures |= trio.run(measure_light, f"{folder}-light-{count}", count)
    finally:
        for each in (folder, *folder.parent.glob(f"{folder.name}-*")):
            shutil.rmtree(each, ignore_errors=True)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<45} {value:>12,.3f}" if value < 100 else f"{name:<45} {value:>12,.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
