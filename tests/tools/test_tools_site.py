"""The documentation as a site, in a real browser: every link leads somewhere, pictures are there, the search finds.

Needs Debian's ``chromium`` and playwright; without them it is left out with that reason.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag

import documentation
import pytest
from real_browser import MISSING, browser, browser_path, watched

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(browser_path() is None, reason=MISSING)]
LOOK = """() => ({
    links: [...document.querySelectorAll('a[href]')].map(each => each.href),
    anchors: [...document.querySelectorAll('[id], [name]')].flatMap(each => [each.id, each.getAttribute('name')]),
    broken: [...document.images].filter(each => !each.complete || !each.naturalWidth).map(each => each.src),
})"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built as the gate builds it."""
    folder: Path = tmp_path_factory.mktemp("site") / "site"
    documentation.build(folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def open_all(page: Page, start: str) -> tuple[dict[str, set[str]], dict[str, set[str]], list[str]]:
    """Follow all links from *start* on; return anchors and links of each page, and what was wrong."""
    anchors: dict[str, set[str]] = {}
    links: dict[str, set[str]] = {}
    wrong: list[str] = []
    left = [start]
    while left:
        address = left.pop()
        if address in anchors:
            continue
        answer = page.goto(address)
        if answer is None or not answer.ok:
            wrong.append(f"{address}: {answer and answer.status}")
            continue
        if not answer.headers.get("content-type", "").startswith("text/html"):
            anchors[address] = set()
            continue
        seen = page.evaluate(LOOK)
        anchors[address], links[address] = set(seen["anchors"]), set(seen["links"])
        wrong += [f"{address}: no picture {each}" for each in seen["broken"]]
        left += [urldefrag(link).url for link in links[address] if link.startswith(start)]
    return anchors, links, wrong


def test_every_link_leads_somewhere_and_nothing_fails(site: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        complaints = watched(page)
        anchors, links, wrong = open_all(page, site)
        for address, of_it in links.items():
            for link in of_it:
                there, anchor = urldefrag(link)
                if anchor and there in links and unquote(anchor) not in anchors[there]:
                    wrong.append(f"{address}: {link}")
        assert len(links) > 40
        assert (wrong, complaints) == ([], [])


def test_the_search_finds_a_setting(site: str) -> None:
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"{site}search.html?q=fileReservedTime")
        found = page.locator("#mkdocs-search-results a", has_text="Settings")
        found.first.wait_for(timeout=60_000)
        assert "/settings/" in (found.first.get_attribute("href") or "")
