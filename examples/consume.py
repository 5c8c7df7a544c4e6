"""Consume messages until Ctrl-C; a listener that raises gets its message again later.

.venv/bin/python examples/consume.py 127.0.0.1:9876
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeFrom,
    PushConsumerOptions,
    ReceivedMessage,
    open_push_consumer,
    real_world,
)


async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
    for received in messages:
        print(f"{context.queue.broker_name} queue {context.queue.queue_id}: {received.body.decode(errors='replace')}")


async def main(name_servers: str) -> None:
    options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with open_push_consumer(real_world(), name_servers, "example_consumers", {"Example": "*"}, listen, options):
        await trio.sleep_forever()


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
    except KeyboardInterrupt:
        print("progress stored, goodbye")
