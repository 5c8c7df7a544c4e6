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

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.api import message, open_producer, real_world

TOPIC, GROUP = "BenchDoors", "bench_doors"
WANTED = {"blocking": 0.6, "asyncio": 0.8}
"""Least share of the trio client's rate."""

Round = Callable[[str, int, int], "Took"]
"""Sends so many messages with so many tasks; its first argument is the name server."""


@attrs.frozen
class Took:
    """What a round took.

    Attributes:
        seconds: of wall time.
        processor_seconds: of this process, all threads.
    """

    seconds: float
    processor_seconds: float

    @classmethod
    def since(cls, wall: float, processor: float) -> Took:
        """Return what has gone since these readings of ``perf_counter`` and ``process_time``."""
        return cls(time.perf_counter() - wall, time.process_time() - processor)


@attrs.frozen
class Door:
    """One door beside the trio client.

    Attributes:
        name: of the door.
        tasks: sends at the same time.
        door: best of its rounds.
        trio: best of those of the trio client.
    """

    name: str
    tasks: int
    door: Took
    trio: Took

    @property
    def ratio(self) -> float:
        """The door's share of the trio client's rate."""
        return self.trio.seconds / self.door.seconds

    @property
    def processor_ratio(self) -> float:
        """The same if both had the processor for themselves: what a send costs with trio, of what it costs here."""
        return self.trio.processor_seconds / self.door.processor_seconds


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


def trio_round(namesrv: str, tasks: int, messages: int) -> Took:
    """Send with the trio client.

    Args:
        namesrv: name server, ``host:port``.
        tasks: that send at the same time.
        messages: how many, all together.
    """

    async def run() -> Took:
        async with open_producer(real_world(), namesrv, GROUP) as producer:

            async def some(count: int) -> None:
                for _ in range(count):
                    await producer.send(message(TOPIC, b"x" * 100))

            await some(1)
            begin = time.perf_counter(), time.process_time()
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(some, messages // tasks)
            return Took.since(*begin)

    return trio.run(run)


def blocking_round(namesrv: str, tasks: int, messages: int) -> Took:
    """Send with the blocking client from this thread, see :func:`trio_round`."""
    with blocking.open_producer(namesrv, GROUP) as producer:
        producer.send(message(TOPIC, b"x"))
        begin = time.perf_counter(), time.process_time()
        for _ in range(messages):
            producer.send(message(TOPIC, b"x" * 100))
        return Took.since(*begin)


def asyncio_round(namesrv: str, tasks: int, messages: int) -> Took:
    """Send with the asyncio client, see :func:`trio_round`."""

    async def run() -> Took:
        async with aio.open_producer(namesrv, GROUP) as producer:

            async def some(count: int) -> None:
                for _ in range(count):
                    await producer.send(message(TOPIC, b"x" * 100))

            await some(1)
            begin = time.perf_counter(), time.process_time()
            await asyncio.gather(*(some(messages // tasks) for _ in range(tasks)))
            return Took.since(*begin)

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
    took: dict[str, list[Took]] = {"trio": [], name: []}
    for _ in range(rounds):
        for kind, play in (("trio", trio_round), (name, door)):
            took[kind].append(play(namesrv, tasks, messages))
    return Door(name, tasks, _best(took[name]), _best(took["trio"]))


def _best(rounds: list[Took]) -> Took:
    return Took(min(each.seconds for each in rounds), min(each.processor_seconds for each in rounds))


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
        rates = [options.messages / took.seconds for took in (door.door, door.trio)]
        costs = [took.processor_seconds / options.messages * 1e6 for took in (door.door, door.trio)]
        print(
            f"{door.name:9}{door.tasks:4} at a time{rates[0]:9,.0f}/s, trio{rates[1]:9,.0f}/s: {door.ratio:6.1%}, "
            f"at least {WANTED[door.name]:.0%}: {'ok' if enough else 'TOO SLOW'}; "
            f"processor {costs[0]:.0f} us a send, trio {costs[1]:.0f} us: {door.processor_ratio:.1%}"
        )
    if options.json:
        figures = {
            door.name: {**attrs.asdict(door), "ratio": door.ratio, "processor_ratio": door.processor_ratio}
            for door in doors
        }
        Path(options.json).write_text(json.dumps(figures, indent=1))
    return 0 if good else 1
