"""Messages per second of one core without any client: decode, encode, append, batches, pull.

Each figure is the best of some repetitions on this machine; compare figures of one run only. `--profile NAME` prints
where the time of one of them goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from understudy.format.properties import format_properties
from understudy.format.record import encode_host
from understudy.remoting import frame
from understudy.remoting.command import request
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore

SEND_MESSAGE_V2 = 310
FRAMES_PER_READ = 64
QUEUES = 4
BATCH = 32
PULL = 32
TOPIC = "BenchTopic"
BORN_HOST = encode_host("127.0.0.1", 50_000)
UNIQ_KEY = "7F0000010A2B18B4AAC21234567890AB"
PROPERTIES = format_properties({"UNIQ_KEY": UNIQ_KEY, "WAIT": "true", "CLUSTER": "DefaultCluster"}).encode()


@dataclass(frozen=True)
class Measured:
    """One figure: messages a second in the best repetition."""

    name: str
    messages_s: float

    @property
    def microseconds(self) -> float:
        return 1e6 / self.messages_s


def send_frame(opaque: int, body: bytes) -> bytes:
    """Returns the frame of one send as the Java client writes it."""
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(opaque % QUEUES),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": PROPERTIES.decode(),
        "j": "0",
        "k": "false",
        "m": "false",
    }
    command = request(SEND_MESSAGE_V2, fields, body)
    command.opaque = opaque
    return frame.encode(command)


def decode_frames(body: bytes) -> Callable[[], int]:
    data = b"".join(send_frame(opaque, body) for opaque in range(FRAMES_PER_READ))

    def once() -> int:
        return len(frame.FrameReader().feed(data))

    return once


def encode_replies() -> Callable[[], int]:
    ext = b'"queueId":"1","msgId":"7F00000100002A9F0000000000000000","queueOffset":"12345","regionId":"DefaultRegion"'

    def once() -> int:
        return len([frame.reply(opaque, 0, ext) for opaque in range(FRAMES_PER_READ)])

    return once


def append(store: MessageStore, body: bytes) -> Callable[[], int]:
    def once() -> int:
        now_ms = int(time.time() * 1000)
        for number in range(FRAMES_PER_READ):
            store.append(
                TOPIC,
                number % QUEUES,
                body,
                PROPERTIES,
                now_ms,
                BORN_HOST,
                tags_code=0,
                uniq_key=UNIQ_KEY.encode(),
                now_ms=now_ms,
            )
        return FRAMES_PER_READ

    return once


def append_batch(store: MessageStore, body: bytes) -> Callable[[], int]:
    item = (
        (22 + len(body) + len(PROPERTIES)).to_bytes(4, "big")
        + bytes(12)
        + len(body).to_bytes(4, "big")
        + body
        + len(PROPERTIES).to_bytes(2, "big")
        + PROPERTIES
    )
    items = item * BATCH

    def once() -> int:
        store.append_batch(TOPIC, 0, items, int(time.time() * 1000), BORN_HOST)
        return BATCH

    return once


def pull(store: MessageStore) -> Callable[[], int]:
    end = store.max_queue_offset(TOPIC, 1)
    offsets = iter(range(0))

    def once() -> int:
        nonlocal offsets
        offset = next(offsets, None)
        if offset is None:
            offsets = iter(range(0, end - PULL, PULL))
            offset = next(offsets)
        return store.get(TOPIC, 1, offset, PULL, 1 << 20).count

    return once


def measure(name: str, once: Callable[[], int], seconds: float, repetitions: int) -> Measured:
    """Repeat *once* and keep the best repetition.

    Args:
        name: of the figure.
        once: returns how many messages it handled.
        seconds: of one repetition.
        repetitions: how many.
    """
    best = 0.0
    for _ in range(repetitions):
        handled, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < seconds:
            handled += once()
        best = max(best, handled / took)
    return Measured(name, best)


@contextmanager
def scratch_folder(parent: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def run(options: argparse.Namespace, folder: Path) -> list[Measured]:
    body = bytes(options.size)
    store = await MessageStore.open(real_world(), StoreConfig(folder=str(folder)), ("127.0.0.1", 10911))
    benchmarks: dict[str, Callable[[], Callable[[], int]]] = {
        "decode": lambda: decode_frames(body),
        "encode": encode_replies,
        "append": lambda: append(store, body),
        "append-batch": lambda: append_batch(store, body),
        "pull": lambda: pull(store),
    }
    measured = []
    try:
        for number in range(10_000):
            store.append(TOPIC, number % QUEUES, body, PROPERTIES, int(time.time() * 1000), BORN_HOST)
        for name, prepare in benchmarks.items():
            once = prepare()
            if options.profile == name:
                profile = cProfile.Profile()
                profile.runcall(measure, name, once, options.seconds, 1)
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            elif options.profile is None:
                measured.append(measure(name, once, options.seconds, options.repetitions))
    finally:
        await store.close()
    return measured


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="understudy bench micro", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="each repetition (default 0.5)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--folder", help="where the scratch store is made (default: the system's)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures")
    parser.add_argument("--profile", choices=["decode", "encode", "append", "append-batch", "pull"])
    options = parser.parse_args(arguments)
    with scratch_folder(options.folder) as folder:
        measured = trio.run(run, options, folder)
    for one in measured:
        print(f"{one.name:14}{one.messages_s:14,.0f} messages/s{one.microseconds:10.2f} us each")
    if options.json:
        Path(options.json).write_text(json.dumps({one.name: round(one.messages_s) for one in measured}, indent=1))
    return 0
