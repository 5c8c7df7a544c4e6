"""The cluster map in a real browser: containers, the SyncStateSet, and the roster of a broker with its reasons.

Needs Debian's ``chromium`` and playwright; without them it is left out with that reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browser_rig import console_of, contrast, go, page_of
from led_rig import ALONE, GROUP, REPLICAS, LedCluster, led_cluster
from real_browser import MISSING, browser_path

from understudy.testkit.port_blocks import PortBlocks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_path() is None, reason=MISSING),
]


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory, port_blocks: PortBlocks) -> Iterator[LedCluster]:
    with led_cluster(tmp_path_factory.mktemp("led"), port_blocks.take()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def address(led: LedCluster) -> Iterator[str]:
    with console_of(led.namesrv_address) as address:
        yield address


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    with page_of(chromium, address) as page:
        go(page, "Cluster")
        page.wait_for_selector(f"{SET} caption:has-text('{REPLICAS} of {REPLICAS} replicas')")
        yield page


SET = f"[aria-label='SyncStateSet of {GROUP}']"


def cells(row: Locator) -> list[str]:
    return [" ".join(text.split()) for text in row.locator("th, td").all_inner_texts()]


def test_containers_are_shown_with_their_brokers_and_so_is_a_process_of_its_own(page: Page, led: LedCluster) -> None:
    table = page.get_by_role("table", name="Containers, and the brokers that each hosts")
    row = table.locator(f"tr[data-container='{led.container}']")
    process, state, _ = cells(row)
    assert f"{led.container} 3 brokers" == process
    assert f"answers all of {GROUP} is in it" == state
    brokers = [" ".join(text.split()) for text in row.get_by_role("listitem").all_inner_texts()]
    assert f"{GROUP} 0 master" == brokers[0]
    assert [f"{GROUP} slave"] * 2 == [f"{each.split()[0]} {each.split()[2]}" for each in brokers[1:]]
    own = table.locator("tr[data-container=own]")
    assert [f"{ALONE} 0 master"] == [" ".join(each.split()) for each in own.get_by_role("listitem").all_inner_texts()]
    # and each broker says in its group where it runs
    group = page.get_by_role("region", name=f"broker group {GROUP}")
    assert REPLICAS == group.locator(f"tbody td:has-text('in {led.container}')").count()
    other = page.get_by_role("region", name=f"broker group {ALONE}")
    assert 1 == other.locator("tbody td:has-text('a process of its own')").count()


def test_the_set_is_shown_with_its_epochs_of_groups_that_are_led_alone(page: Page, led: LedCluster) -> None:
    told = page.locator(f"{SET} caption").inner_text()
    assert "master epoch" in told
    assert "syncStateSetEpoch" in told
    assert f"told by the controller {led.controller}" in told
    rows = page.locator(f"{SET} tbody tr")
    assert ["in hear it"] * REPLICAS == [" ".join(cells(rows.nth(number))[2:4]) for number in range(REPLICAS)]
    assert 1 == page.locator(f"{SET} tbody th:has-text('master')").count()
    assert 1 == page.locator("[aria-label^='SyncStateSet of']").count()


def test_a_roster_opens_by_keyboard_and_says_why_each_service_runs_or_rests(page: Page, led: LedCluster) -> None:
    button = page.get_by_role("button", name=f"Services of broker 0 at {led.alone}")
    button.focus()
    page.keyboard.press("Enter")
    assert "true" == button.get_attribute("aria-expanded")
    roster = page.get_by_role("table", name=f"What runs on {led.alone}, and why")
    roster.get_by_role("rowheader", name="schedule", exact=True).wait_for()
    found = {row[0]: row[1:] for row in map(cells, roster.locator("tbody tr").all())}
    assert ["running", "master"] == [found["schedule"][0], found["schedule"][2]]
    assert ["off", "–"] == found["metadata sync"][:2]
    assert all(why for _, _, why in found.values()), found
    # when it is closed, then it is gone
    page.keyboard.press("Space")
    roster.wait_for(state="detached")
    assert "false" == button.get_attribute("aria-expanded")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_map_is_readable_in_light_and_dark(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two
    for selector in (".containers td", ".containers small", ".hosted li", ".hosted .state", ".warn", f"{SET} caption",
                     f"{SET} caption small", f"{SET} td", f"{SET} thead th"):  # fmt: skip
        assert contrast(page, selector) >= 4.5, selector


def test_the_map_has_headings_and_names_and_fits_a_narrow_window(page: Page) -> None:
    assert 0 == page.locator("table:not(:has(th[scope=col]))").count()
    assert 0 == page.locator("tbody tr:not(:has(th[scope=row])):not(:has(td.inner))").count()
    assert 0 == page.locator("main table:not(:has(caption)):not(.group > .wide > table)").count()
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((each) => each.tagName)")
    assert ["H1", "H2", "H2", "H3", "H3"] == levels
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_slave_that_is_lost_is_seen_out_of_the_set_with_the_reason_without_reload(
    page: Page, led: LedCluster
) -> None:
    lost = led.remove_slave()
    page.wait_for_selector(f"{SET} caption:has-text('2 of {REPLICAS} replicas')")
    row = page.locator(f"{SET} tbody tr.out")
    row.locator("td:has-text('the controllers hear nothing from it')").wait_for()
    assert lost in row.inner_text()
    assert "out" == cells(row)[2]
    # and the container shows that it is gone, and the first screen that somebody is missing
    page.wait_for_selector(f".hosted li[title='{lost}']:has-text('gone')")
    go(page, "Overview")
    page.wait_for_selector(f"tr[data-group={GROUP}]:has-text('1 of {REPLICAS} not in the SyncStateSet')")
