"""A console of a real cluster, for a real browser, and what tests do in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import trio
from real_browser import watched

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

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "a long token"
WAIT_MS = 60_000
"""How long a page may take until it shows what a test waits for, on a slow machine."""


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


# --- in the browser --------------------------------------------------------------------------------------------------


@contextmanager
def page_of(chromium: Browser, address: str) -> Iterator[Page]:
    """Open the page at *address*; when the block ends, nothing must have gone wrong in it."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.set_default_timeout(WAIT_MS)
    wrong = watched(page)
    page.goto(address)
    page.wait_for_selector("tr[data-group]")
    yield page
    page.close()
    assert [] == wrong


def go(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
    page.wait_for_function("name => document.title.startsWith(name)", arg=name)


def contrast(page: Page, selector: str) -> float:
    """Return by how much text stands out from the ground of the page (WCAG 2)."""
    ratio: float = page.evaluate(
        """(selector) => {
          const parts = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
            .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
          const light = (colour) => { const [r, g, b] = parts(colour); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const text = light(getComputedStyle(document.querySelector(selector)).color);
          const ground = light(getComputedStyle(document.documentElement).backgroundColor);
          return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        }""",
        selector,
    )
    return ratio
