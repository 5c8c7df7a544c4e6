"""What the blocking and the asyncio client cost beside the trio client: sends to one broker in a process of its own.

Each kind sends for some rounds in turn; of each the best round counts. `blocking` is one thread that waits for each
answer, beside one trio task that does; `asyncio` is so many tasks at the same time, beside as many of trio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from understudy.mqclient import aio, blocking
from understudy.mqclient.api import message, open_producer, real_world

TOPIC, GROUP = "BenchDoors", "bench_doors"
WANTED = {"blocking": 0.6, "asyncio": 0.8}
"""Least share of the trio client's rate."""

Round = Callable[[str, int, int], float]
"""Sends messages with so many tasks at the name server; returns seconds."""


@attrs.frozen
class Door:
    """One door beside the trio client.

    Attributes:
        name: of the door.
        tasks: sends at the same time.
        door_s, trio_s: best rates, messages a second.
    """

    name: str
    tasks: int
    door_s: float
    trio_s: float

    @property
    def ratio(self) -> float:
        """The door's share of the trio client's rate."""
        return self.door_s / self.trio_s


@contextmanager
def cluster_process() -> Iterator[str]:
    """Run a name server and a broker in a process of their own; give the name server's address."""
    program = (
        "import sys\n"
        "from understudy.testkit.blocking import local_cluster\n"
        "with local_cluster() as cluster:\n"
        "    print(cluster.namesrv_address, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()  # its end


def trio_round(namesrv: str, tasks: int, messages: int) -> float:
    """Send with the trio client.

    Args:
        namesrv: name server, ``host:port``.
        tasks: that send at the same time.
        messages: how many, all together.

    Returns:
        Seconds.
    """

    async def run() -> float:
        async with open_producer(real_world(), namesrv, GROUP) as producer:

            async def some(count: int) -> None:
                for _ in range(count):
                    await producer.send(message(TOPIC, b"x" * 100))

            await some(1)
            begin = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(some, messages // tasks)
            return time.perf_counter() - begin

    return trio.run(run)


def blocking_round(namesrv: str, tasks: int, messages: int) -> float:
    """Send with the blocking client from this thread, see :func:`trio_round`."""
    with blocking.open_producer(namesrv, GROUP) as producer:
        producer.send(message(TOPIC, b"x"))
        begin = time.perf_counter()
        for _ in range(messages):
            producer.send(message(TOPIC, b"x" * 100))
        return time.perf_counter() - begin


def asyncio_round(namesrv: str, tasks: int, messages: int) -> float:
    """Send with the asyncio client, see :func:`trio_round`."""

    async def run() -> float:
        async with aio.open_producer(namesrv, GROUP) as producer:

            async def some(count: int) -> None:
                for _ in range(count):
                    await producer.send(message(TOPIC, b"x" * 100))

            await some(1)
            begin = time.perf_counter()
            await asyncio.gather(*(some(messages // tasks) for _ in range(tasks)))
            return time.perf_counter() - begin

    return asyncio.run(run())


def compare(namesrv: str, name: str, door: Round, tasks: int, messages: int, rounds: int) -> Door:
    """Play rounds of a door and of the trio client in turn.

    Args:
        namesrv: name server, ``host:port``.
        name: of the door.
        door: plays one round.
        tasks: sends at the same time.
        messages: of one round.
        rounds: of each.
    """
    best = {"trio": 0.0, name: 0.0}
    for _ in range(rounds):
        for kind, play in (("trio", trio_round), (name, door)):
            best[kind] = max(best[kind], messages / play(namesrv, tasks, messages))
    return Door(name, tasks, best[name], best["trio"])


def main(arguments: list[str]) -> int:
    """Run the benchmark; return 0 when both doors are quick enough, else 1."""
    parser = argparse.ArgumentParser(
        prog="understudy bench doors", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=5_000, help="of one round (default 5000)")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind (default 5)")
    parser.add_argument("--tasks", type=int, default=64, help="that send at the same time with asyncio (default 64)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures")
    options = parser.parse_args(arguments)
    with cluster_process() as namesrv:
        doors = [
            compare(namesrv, "blocking", blocking_round, 1, options.messages, options.rounds),
            compare(namesrv, "asyncio", asyncio_round, options.tasks, options.messages, options.rounds),
        ]
    good = True
    for door in doors:
        enough = door.ratio >= WANTED[door.name]
        good = good and enough
        print(
            f"{door.name:9}{door.tasks:4} at a time{door.door_s:10,.0f}/s, trio{door.trio_s:10,.0f}/s: "
            f"{door.ratio:6.1%}, at least {WANTED[door.name]:.0%}: {'ok' if enough else 'TOO SLOW'}"
        )
    if options.json:
        figures = {door.name: {**attrs.asdict(door), "ratio": door.ratio} for door in doors}
        Path(options.json).write_text(json.dumps(figures, indent=1))
    return 0 if good else 1
