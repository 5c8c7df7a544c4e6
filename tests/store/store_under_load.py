"""A process that writes messages and says which are acknowledged, until it is killed.

    python store_under_load.py FOLDER FLUSH

Each line on standard output: ``topic queue_id queue_offset number`` of an acknowledged message; the body of message
*number* is made of that number (see :func:`body_of`).
"""

from __future__ import annotations

import sys

import trio

from understudy.format.batch import encode_batch
from understudy.format.properties import format_properties
from understudy.format.record import encode_host
from understudy.runtime.world import real_world
from understudy.store.config import SYNC_FLUSH, StoreConfig
from understudy.store.message_store import MessageStore

PRODUCER = encode_host("127.0.0.1", 5000)


def body_of(number: int) -> bytes:
    """Return the body of one message, from a few bytes to some kilobytes."""
    return f"{number}|".encode() * (1 + number * 7919 % 700)


def properties_of(number: int) -> bytes:
    """Return the properties of one message."""
    return format_properties({"UNIQ_KEY": f"7F000001{number:024X}", "TAGS": f"tag{number % 3}"}).encode()


def config_for(folder: str, flush: str) -> StoreConfig:
    """Return settings with small files, so that many are begun while the process lives."""
    return StoreConfig(
        folder=folder,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2_000,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_disk_type=flush,
    )


async def main(folder: str, flush: str) -> None:
    """Write until killed."""
    store = await MessageStore.open(real_world(), config_for(folder, flush), ("127.0.0.1", 10911))
    number = store.max_physical_offset
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        while True:
            written = []
            for _ in range(20):
                number += 1
                topic, queue_id = f"Topic{number % 3}", number % 2
                if number % 5 == 0:
                    numbers = [number, number + 1, number + 2]
                    number += 2
                    items = [(0, body_of(each), properties_of(each)) for each in numbers]
                    batch = store.append_batch(topic, queue_id, encode_batch(items), 1, PRODUCER)
                    written += [
                        (topic, queue_id, batch.first_queue_offset + index, each) for index, each in enumerate(numbers)
                    ]
                else:
                    appended = store.append(topic, queue_id, body_of(number), properties_of(number), 1, PRODUCER)
                    written.append((topic, queue_id, appended.queue_offset, number))
            if flush == SYNC_FLUSH:
                await store.wait_flushed(store.max_physical_offset, 5_000)
            else:
                await trio.lowlevel.checkpoint()
            lines = "".join(f"{topic} {queue} {offset} {each}\n" for topic, queue, offset, each in written)
            sys.stdout.write(lines)
            sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
