"""Send messages: one, one to a chosen queue, a batch, one that is delivered later.

.venv/bin/python examples/send.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys

import trio

from understudy.mqclient.api import message, open_producer, real_world


async def main(name_servers: str) -> None:
    async with open_producer(real_world(), name_servers, "example_producers") as producer:
        result = await producer.send(message("Example", b"hello", tag="greeting", keys="k1"))
        print(f"{result.message_id} is at {result.queue} offset {result.queue_offset}")

        # Messages of one customer stay in order when they go to one queue.
        await producer.send(
            message("Example", b"order of customer 7"), select=lambda queues, wanted: queues[7 % len(queues)]
        )

        await producer.send_batch([message("Example", f"part {number}".encode()) for number in range(10)])

        await producer.send(message("Example", b"a little later", delay_level=1))


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
