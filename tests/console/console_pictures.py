"""Makes the pictures of the console in ``docs/``: the first screen, also dark while a slave acts, and a failover.

Run it when the page has changed, where ``chromium`` and playwright are:

    .venv/bin/python tests/console/console_pictures.py [FOLDER]

Two groups run in real processes and stand in for each other; the process with one master is killed, and comes back.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1]))  # pytest does that for its own

from browser_rig import console_of, consume, produce
from real_browser import MISSING, browser, browser_path, watched

from understudy.testkit.acting_pair import acting_pair

if TYPE_CHECKING:
    from playwright.sync_api import Page

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOPIC = "Orders"
_WARM_UP_SECONDS = 90  # how fast messages are stored is told of whole minutes
_WAIT_MS = 60_000


def pictures(folder: Path, *, every_page: bool) -> None:
    """Write the pictures into *folder*, with *every_page* one of each page, light and dark."""
    with acting_pair() as pair:
        pair.make_topic(TOPIC, 4)
        servers = pair.namesrv_address
        traffic = (
            partial(produce, servers, TOPIC, 40),
            partial(consume, servers, TOPIC, "billing"),
            partial(consume, servers, TOPIC, "analytics", 0.2),
        )
        with browser() as opened, console_of(servers, *traffic) as address:
            page = opened.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
            wrong = watched(page)
            page.goto(address)
            page.wait_for_selector("tr[data-group]", timeout=_WAIT_MS)
            time.sleep(_WARM_UP_SECONDS)
            page.screenshot(path=folder / "console.png")
            page.goto(f"{address}#/cluster")
            page.wait_for_selector("text=broker-a", timeout=_WAIT_MS)
            time.sleep(2)
            page.screenshot(path=folder / "console-map.png")
            page.goto(address)
            page.wait_for_selector("tr[data-group]", timeout=_WAIT_MS)
            pair.kill("broker-a")
            page.wait_for_selector("tr.acting[data-group='broker-a']", timeout=_WAIT_MS)
            page.wait_for_selector("text=it gives out messages", timeout=_WAIT_MS)
            time.sleep(6)
            page.emulate_media(color_scheme="dark")
            page.screenshot(path=folder / "console-dark.png")
            page.emulate_media(color_scheme="light")
            if every_page:
                _each(page, address, folder, "acting")
            pair.restart("broker-a")
            pair.await_complete()
            page.goto(f"{address}#/failovers")
            page.wait_for_selector("text=the master is registered again", timeout=_WAIT_MS)
            page.wait_for_selector("article[aria-label='report of broker-a']", timeout=_WAIT_MS)
            page.screenshot(path=folder / "console-failover.png")
            if every_page:
                _each(page, address, folder, "after")
            if wrong:
                raise SystemExit("\n".join(wrong))


def _each(page: Page, address: str, folder: Path, name: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        places = ("", "cluster", "topics", f"topics?name={TOPIC}", "consumers", "consumers?name=analytics", "waiting",
                  "failovers", "rates", "messages")  # fmt: skip
        for number, place in enumerate(places):
            page.goto(f"{address}#/{place}")
            time.sleep(1.5)
            page.screenshot(path=folder / f"{name}-{scheme}-{number}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    page.goto(address)


if __name__ == "__main__":
    if browser_path() is None:
        raise SystemExit(f"console_pictures.py {MISSING}")
    into = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    into.mkdir(parents=True, exist_ok=True)
    pictures(into, every_page=into != DOCS)
