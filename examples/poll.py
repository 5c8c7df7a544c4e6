"""Read a topic from its beginning with poll, for example in a batch job.

.venv/bin/python examples/poll.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys

import trio

from understudy.mqclient.api import ConsumeFrom, PullConsumerOptions, open_pull_consumer, real_world


async def main(name_servers: str) -> None:
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False)
    async with open_pull_consumer(real_world(), name_servers, "example_jobs", options) as consumer:
        await consumer.subscribe({"Example": "*"})
        while batch := await consumer.poll(timeout_ms=5_000):
            print(f"{len(batch)} messages of {batch[0].queue}")
            await consumer.commit()  # only what was worked on counts as consumed


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
