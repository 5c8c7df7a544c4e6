"""A console of a real cluster, for a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import trio

from understudy.console.report_files import ReportFolder
from understudy.console.server import Console, ConsoleOptions
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeFrom,
    PushConsumerOptions,
    ReceivedMessage,
    WindowLimits,
    message,
    open_producer,
    open_push_consumer,
    real_world,
)
from understudy.mqclient.errors import ClientError
from understudy.runtime.portal import Portal
from understudy.runtime.portal_held import Held

TOKEN = "a long token"


@asynccontextmanager
async def _console(options: ConsoleOptions) -> AsyncIterator[str]:
    console = Console(real_world(), options)
    await console.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.run)
        yield console.address
        nursery.cancel_scope.cancel()


@contextmanager
def console_of(
    name_servers: str, *beside: Callable[[], Awaitable[None]], reports: str = "", users: bool = False
) -> Iterator[str]:
    """Serve a console in a thread; yields its address.

    Args:
        name_servers: of the cluster that it shows.
        beside: what else runs in that thread as long, such as traffic.
        reports: folder of Spark jobs' reports.
        users: it is for users of the cluster, not for who has the token.
    """
    with Portal() as portal:
        token = "" if users else TOKEN
        options = ConsoleOptions(
            "127.0.0.1", 0, name_servers, token, users=users, spark_reports=ReportFolder(reports) if reports else None
        )
        held = Held(portal, _console(options))
        address = held.open().result()
        for each in beside:
            portal.submit(each)
        try:
            yield address
        finally:
            held.close().result()


def call(work: Callable[[], Awaitable[None]]) -> None:
    """Run *work* to its end in a thread of its own: the browser's driver has this one."""
    with Portal() as portal:
        portal.call(work)


async def produce(name_servers: str, topic: str, per_second: float, count: int = 1_000_000) -> None:
    """Send *count* messages to *topic*; one that no broker takes is left out."""
    async with open_producer(real_world(), name_servers, "checkout") as producer:
        for number in range(count):
            body = f'{{"order": {number}, "amount": "12.50"}}'.encode()
            try:
                await producer.send(message(topic, body, tag="paid", keys=f"order-{number}"))
            except ClientError:
                await trio.sleep(0.2)
            await trio.sleep(1 / per_second)


async def consume(name_servers: str, topic: str, group: str, seconds_each: float = 0.0) -> None:
    """Consume *topic* as *group*, so slowly, until cancelled; who is slow has little of what waits at hand."""

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        await trio.sleep(seconds_each * len(messages))

    limits = WindowLimits(messages=4) if seconds_each else WindowLimits()
    options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, consume_tasks=1, pull_batch=4, limits=limits)
    async with open_push_consumer(real_world(), name_servers, group, {topic: "*"}, listen, options):
        await trio.sleep_forever()
