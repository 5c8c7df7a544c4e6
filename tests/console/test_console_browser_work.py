"""Plots of what goes through and rows of what is stuck, in a real browser before a cluster that works.

Needs Debian's ``chromium`` and playwright; without them it is left out with that reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import left_work
import pytest
from browser_rig import call, console_of, consume, contrast, go, page_of, produce
from real_browser import MISSING, browser_path

from understudy.broker.statistics import BrokerStatistics
from understudy.runtime.portal import Portal
from understudy.testkit.blocking import BlockingCluster, local_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_path() is None, reason=MISSING),
]
TOPIC, GROUP = "Orders", "billing"
IN, OUT, STORED = "in", "out", "99 of 100 stored within"
NOW = "label => document.querySelector(`svg[role=img][aria-label^='${label}:']`).getAttribute('aria-label')"


@pytest.fixture(scope="module")
def shop() -> Iterator[BlockingCluster]:
    with local_cluster(broker_config=left_work.KEYS) as cluster:
        cluster.make_topic(TOPIC)
        yield cluster


@pytest.fixture
def page(chromium: Browser, shop: BlockingCluster) -> Iterator[Page]:
    with console_of(shop.namesrv_address) as address, page_of(chromium, address) as page:
        yield page


@contextmanager
def load(name_servers: str) -> Iterator[None]:
    """Send and consume as long as the block lasts."""
    with Portal() as portal:
        portal.submit(partial(produce, name_servers, TOPIC, 50))
        portal.submit(partial(consume, name_servers, TOPIC, GROUP))
        yield


def wait_for_plot(page: Page, title: str, condition: str) -> None:
    """Wait until what the plot *title* says to a screen reader (``said``) is as *condition*, in JavaScript."""
    page.wait_for_function(f"label => {{ const said = ({NOW})(label); return {condition}; }}", arg=title)


def heights(page: Page, title: str) -> set[str]:
    """Return at which heights the line of the plot *title* is drawn."""
    path = page.locator(f"svg[role=img][aria-label^='{title}:'] path.line").get_attribute("d") or ""
    return {point.split(" ")[1] for point in path.replace("L", "M").split("M") if point}


def test_rates_and_latencies_are_drawn_and_follow_the_load(
    page: Page, shop: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # brokers tell how fast messages are stored of the last full minute: here, of the one under way
    monkeypatch.setattr(BrokerStatistics, "put_time_buckets", lambda self: tuple(self._put_times))
    # given a cluster in which nothing happens
    for title in (IN, OUT):
        wait_for_plot(page, title, "said.includes(': 0 now')")
    wait_for_plot(page, STORED, "said.endsWith('nothing known yet')")
    # when messages are sent and consumed
    with load(shop.namesrv_address):
        for title in (IN, OUT, STORED):
            wait_for_plot(page, title, "/: [0-9,.]*[1-9]/.test(said) && said.includes(' now')")
        # then the numbers beside the plots are those, and the lines rise
        figures = page.locator(".plot output").all_inner_texts()
        assert all(text != "–" for text in figures), figures
        assert figures[2].endswith(" ms")
        assert len(heights(page, IN)) > 1
        assert len(heights(page, OUT)) > 1
        # and the page of rates has the same of the broker that leads
        go(page, "Rates")
        page.wait_for_function(
            "() => [1, 2].every((cell) => Number(document.querySelectorAll('tbody td')[cell].innerText) > 0)"
        )
        go(page, "Overview")
    # when it ends, then so do they, and what was stays in sight
    for title in (IN, OUT):
        wait_for_plot(page, title, "said.includes(': 0 now') && !said.includes('at most 0 ')")
    # and the arrow keys tell what was before
    plot = page.locator(f"svg[role=img][aria-label^='{IN}:']")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".plot output:has-text(' at ')")
    page.keyboard.press("Tab")
    page.wait_for_selector(".plot output:has-text(' at ')", state="detached")


def test_what_is_stuck_has_a_row_of_its_kind_with_the_reason_and_what_to_do(
    page: Page, shop: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_work.refuse_poison(monkeypatch)
    (name,) = shop.broker_addresses
    for topic in (left_work.TOPIC, left_work.HALVES):
        shop.make_topic(topic)
    go(page, "Waiting")
    rows = page.locator("main tbody tr")

    def see(kind: str, place: str, why: str, advice: str) -> None:
        what = page.locator(f"td:has-text('{kind}'):has(small:has-text('{place}'))")
        row = rows.filter(has_text=why).filter(has=what)
        row.wait_for()
        assert name == row.locator("th[scope=row]").inner_text()
        assert advice in row.inner_text()

    call(partial(left_work.pop_poison, shop.namesrv_address, name))
    see("pop", "revive queue", "what was not acknowledged cannot be put into its retry topic", "look into the log")
    call(partial(left_work.leave_the_others, shop.namesrv_address))
    see("half", "half queue 0, offset 0", "no producer of payers is connected", "start a producer of payers")
    see("timer", "timer", "what is due is not taken where it goes", "look into the log")
    see("delay", "delay level 1", "what is due is not taken where it goes", "look into the log")
    # what only waits for its time is left out, until it is asked for
    in_time = rows.filter(has=page.locator("small:text-is('delay level 18')"))
    assert 0 == in_time.count()
    page.get_by_label("also what only waits for its time").focus()
    page.keyboard.press("Space")
    in_time.wait_for()
    assert "nothing is wrong: its time has not come" in in_time.inner_text()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two
        assert min(contrast(page, selector) for selector in ("tbody td", "tbody td small", "tbody th")) >= 4.5
    # and the first screen counts them by kind
    go(page, "Overview")
    section = page.locator("section", has=page.locator("#waiting"))
    for kind in ("half messages", "popped messages", "timer messages", "delayed messages"):
        section.get_by_role("rowheader", name=kind, exact=True).wait_for()
    assert 4 <= section.locator(".stuck").count()
