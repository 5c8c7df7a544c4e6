"""A small service of one's own: for each order it sends an invoice. Its world is an argument, so it can be simulated.

.venv/bin/python examples/invoice_service.py 127.0.0.1:9876
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
    World,
    message,
    open_producer,
    open_push_consumer,
    real_world,
)

OPTIONS = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


async def run(world: World, name_servers: str) -> None:
    async with open_producer(world, name_servers, "invoices") as producer:

        async def invoice(orders: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for order in orders:  # what fails here comes again later
                await producer.send(message("Invoices", b"invoice for " + order.body, keys=order.keys or ()))

        async with open_push_consumer(world, name_servers, "invoicing", {"Orders": "*"}, invoice, OPTIONS):
            await trio.sleep_forever()


if __name__ == "__main__":
    try:
        trio.run(run, real_world(), sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
    except KeyboardInterrupt:
        print("progress stored, goodbye")
