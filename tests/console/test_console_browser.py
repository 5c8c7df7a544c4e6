"""The page in a real browser: every page, a failover seen without reload, many rows, keyboard, labels, light and dark.

Needs Debian's ``chromium`` and playwright; without them it is left out with that reason.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
from browser_rig import WAIT_MS, call, console_of, contrast, go, page_of, produce
from real_browser import MISSING, browser_path, watched

from understudy.mqclient.admin import groups, topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.api import message, open_producer, real_world
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import open_session
from understudy.spark_tools.report import Report, Table, as_json
from understudy.testkit.acting_pair import acting_pair
from understudy.testkit.blocking import local_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_path() is None, reason=MISSING),
]
PAGES = ("Overview", "Cluster", "Topics", "Consumers", "Messages", "Waiting", "Failovers", "Rates", "Reports")
TOPICS, GROUPS = 1_000, 500
HOSTILE = '<img src="/icon.svg" onerror="document.title = 1"><script>document.title = 2</script>'
REPORT = Report(
    "Offsets of broker-a",
    "Differ: 2 queues of groups on 2 stores, 1 differ, 1 changes proposed",
    {"plan": HOSTILE},
    [],
    [Table("Offsets", ("group", "offset", "oldest age (ms)"), [("billing", 40, 61_000), (HOSTILE, None, 5)])],
)
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"a long secret"}',
}


async def fill(name_servers: str, broker: str, name: str) -> None:
    """Make many topics, and many groups that have consumed from two of them each."""
    async with open_session(real_world(), name_servers) as session:
        rows = [TopicSettings(f"topic-{number:04}", 1, 1).body() for number in range(TOPICS)]
        await topics.save_topics(session, broker, rows)
        await groups.save_groups(session, broker, [{"groupName": f"group-{number:03}"} for number in range(GROUPS)])
        for number in range(GROUPS):
            for topic in (f"topic-{number:04}", f"topic-{number + 1:04}"):
                queue = MessageQueue(topic, name, 0)
                await groups.set_offset(session, broker, f"group-{number:03}", queue, 0)
    await produce(name_servers, "topic-0007", 1_000, 5)
    async with open_producer(real_world(), name_servers, "strangers") as producer:
        await producer.send(message("topic-0999", HOSTILE.encode(), keys="evil"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console before a broker with a thousand topics and five hundred groups, with a Spark report."""
    reports = tmp_path_factory.mktemp("reports")
    (reports / "after-failover").mkdir()
    (reports / "after-failover" / "report.json").write_text(as_json(REPORT))
    (reports / "report.json").write_text("{")
    with local_cluster() as cluster:
        (name, broker), *_ = cluster.broker_addresses.items()
        assert name.startswith("broker")
        call(partial(fill, cluster.namesrv_address, broker, name))
        with console_of(cluster.namesrv_address, reports=str(reports)) as address:
            yield address


@pytest.fixture
def page(chromium: Browser, large: str) -> Iterator[Page]:
    with page_of(chromium, large) as opened:
        yield opened


def test_every_page_can_be_reached_and_says_what_it_is(page: Page) -> None:
    for name in PAGES:
        go(page, name)
        assert name == page.get_by_role("heading", level=1).inner_text()
        assert name == page.locator("nav a[aria-current=page]").inner_text()
        page.wait_for_selector("[role=status]:has-text('Asking')", state="detached")
        assert 0 == page.get_by_role("alert").count(), page.get_by_role("alert").all_inner_texts()


def test_the_first_screen_answers_without_a_click(page: Page) -> None:
    assert "The group has its master." == page.locator(".verdict").inner_text().strip()
    page.wait_for_selector("section:has(#lag) td:has-text('5')")
    rows = page.locator("section", has=page.locator("#lag")).locator("tbody tr")
    assert {"group-006", "group-007"} == {rows.nth(number).locator("th").inner_text().split()[0] for number in (0, 1)}
    page.wait_for_selector("text=Nothing waits.")


@pytest.mark.parametrize(
    ("name", "rows", "first"), [("Topics", TOPICS, "topic-0000"), ("Consumers", GROUPS, "group-006")]
)
def test_many_rows_scroll_smoothly_as_only_those_in_sight_are_drawn(
    page: Page, name: str, rows: int, first: str
) -> None:
    go(page, name)
    page.wait_for_selector(".list tr.row")
    total = int(page.locator(".list table").get_attribute("aria-rowcount") or 0)
    assert total > rows
    if name == "Topics":
        page.get_by_role("searchbox").fill("topic-")
        page.wait_for_function("rows => document.querySelector('.list table').ariaRowCount == rows + 1", arg=rows)
    assert first == page.locator(".list tr.row th").first.inner_text()
    # when it is scrolled through from end to end, a screen with each frame
    spent = page.context.new_cdp_session(page)
    spent.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = work_seconds(spent)
    frames, most = page.evaluate(
        """async () => {
          const box = document.querySelector('.list .scroll');
          const frame = () => new Promise(requestAnimationFrame);
          let frames = 0, most = 0;
          for (let top = 0; top < box.scrollHeight; top += box.clientHeight / 2) {
            box.scrollTop = top;
            await frame(); await frame();
            frames += 1;
            most = Math.max(most, box.querySelectorAll('tr.row').length);
          }
          return [frames, most];
        }"""
    )
    # then few rows are in the page at any time, the last one is reached, and a frame is little work
    assert most <= 60
    reached = page.locator(".list tr.row").last.get_attribute("aria-rowindex")
    assert page.locator(".list table").get_attribute("aria-rowcount") == reached
    assert (work_seconds(spent) - before) / frames < 0.05


def work_seconds(spent: CDPSession) -> float:
    """Return the processor time that the page's scripts and its layout have taken."""
    metrics = {each["name"]: each["value"] for each in spent.send("Performance.getMetrics")["metrics"]}
    return sum(metrics[name] for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration"))


def test_a_list_is_sorted_and_narrowed_by_keyboard_alone(page: Page) -> None:
    go(page, "Topics")
    page.wait_for_selector(".list tr.row")
    page.get_by_label("Find").focus()
    page.keyboard.type("topic-05")
    page.wait_for_function("() => document.querySelector('.list table').ariaRowCount == 101")
    page.keyboard.press("Tab")  # to the list, which scrolls by keys
    assert "region" == page.evaluate("document.activeElement.getAttribute('role')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "descending" == page.get_by_role("columnheader", name="Topic").get_attribute("aria-sort")
    assert "topic-0599" == page.locator(".list tr.row th").first.inner_text()
    page.get_by_role("link", name="topic-0599").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Who consumes it")
    assert "topic-0599" == page.locator("h2.name").inner_text()


def test_whatever_can_be_used_has_a_name_and_every_table_has_headings(page: Page) -> None:
    for name in PAGES:
        go(page, name)
        page.wait_for_selector("[role=status]:has-text('Asking')", state="detached")
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, select, svg[role=img]')]
                 .filter((each) => !(each.innerText || each.getAttribute('aria-label') || each.labels?.length))
                 .map((each) => each.outerHTML)"""
        )
        assert [] == nameless
        assert 0 == page.locator("table:not(:has(th[scope=col]))").count()
        assert 1 == page.locator("h1").count()
        levels = [
            int(tag[1]) for tag in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((e) => e.tagName)")
        ]
        assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels)), levels


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_both_readable_and_chosen_by_the_system_or_by_hand(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two
    for selector in ("h2", "thead th", "tbody td", "small", "nav a", ".fine"):
        assert contrast(page, selector) >= 4.5, selector
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    other = {"light": "dark", "dark": "light"}[scheme]
    page.get_by_label("Colours").select_option(other)
    assert ground != page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert contrast(page, "thead th") >= 4.5
    page.get_by_label("Colours").select_option("system")
    assert ground == page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def test_a_narrow_window_needs_no_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    for name in PAGES:
        go(page, name)
        page.wait_for_selector("[role=status]:has-text('Asking')", state="detached")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, name


def test_signing_in_with_a_wrong_token_says_so(page: Page) -> None:
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill("a wrong token")
    page.keyboard.press("Enter")
    assert "that is not the token" == page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill("a long token")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in").wait_for()


def test_users_of_the_cluster_sign_in_and_are_named(chromium: Browser) -> None:
    with local_cluster(broker_config=USERS) as cluster, console_of(cluster.namesrv_address, users=True) as address:
        page = chromium.new_page()
        page.set_default_timeout(WAIT_MS)
        wrong = watched(page)
        page.goto(address)
        page.wait_for_selector("text=Sign in to see the cluster.")
        page.get_by_label("User").fill("root")
        page.get_by_label("Password").fill("a wrong one")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]:has-text('the brokers refuse that user and password')")
        page.get_by_label("Password").fill("a long secret")
        page.keyboard.press("Enter")
        page.wait_for_selector("tr[data-group]")
        assert "root" in page.locator("header").inner_text()
        assert "a long secret" not in page.content()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("text=Sign in to see the cluster.")
        assert 0 == page.locator("tr[data-group]").count()
        page.close()
        assert [] == wrong


def find(page: Page, topic: str, way: str, wanted: str) -> None:
    go(page, "Messages")
    page.get_by_label("Topic").fill(topic)
    page.get_by_label(way, exact=True).check()
    page.get_by_label({"id": "Message id", "key": "Key"}[way], exact=True).fill(wanted)
    page.get_by_role("button", name="Find").click()
    page.wait_for_selector("text=1 message found.")


def test_a_message_is_found_and_what_stands_in_it_is_only_text(page: Page) -> None:
    find(page, "topic-0999", "key", "evil")
    assert HOSTILE == page.locator("details.message pre").inner_text()
    assert 0 == page.locator("main img, main script").count()
    assert page.title().startswith("Messages")
    # by its id it is told, too, who consumed it
    page.get_by_label("id", exact=True).check()
    page.get_by_label("Message id").fill(page.locator("details.message summary code").inner_text())
    page.get_by_role("button", name="Find").click()
    page.wait_for_selector("text=No group consumes its topic.")
    # and that its clients trace nothing, or elsewhere
    page.wait_for_selector("text=Not told: no broker has the topic RMQ_SYS_TRACE_TOPIC")


def test_a_spark_report_is_shown_and_what_stands_in_it_is_only_text(page: Page) -> None:
    go(page, "Reports")
    page.wait_for_selector("text=report.json is damaged")
    assert "differ" == page.locator(".list tr.row .state").inner_text().strip()
    page.get_by_role("link", name="Offsets of broker-a").click()
    page.wait_for_selector("h2.name")
    rows = page.locator("#rows-0 tr.row")
    assert ["billing", "40", "1 min 1 s"] == rows.first.locator("th, td").all_inner_texts()
    assert [HOSTILE, "–", "0.0 s"] == rows.last.locator("th, td").all_inner_texts()
    assert HOSTILE == page.locator("dd code").inner_text()
    assert 0 == page.locator("main img, main script").count()


def test_a_group_is_moved_after_a_preview_and_taken_back(page: Page) -> None:
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill("a long token")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sign out").wait_for()
    go(page, "Consumers")
    page.get_by_role("link", name="group-007").click()
    page.get_by_label("Topic").select_option("topic-0007")
    page.get_by_role("button", name="Preview").click()
    plan = page.get_by_role("table", name="What it would do").locator("tbody tr")
    plan.first.wait_for()
    assert ["0", "5", "5 skipped"] == plan.first.locator("td").all_inner_texts()
    page.get_by_role("button", name="Move 1 queue").click()
    page.wait_for_selector("text=1 queue moved.")
    page.wait_for_selector("text=Not behind")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("text=1 queue moved back.")
    page.wait_for_selector("text=messages behind")


def test_a_failover_is_seen_without_reload(chromium: Browser) -> None:
    with acting_pair() as pair, console_of(pair.namesrv_address) as address:
        page = chromium.new_page()
        page.set_default_timeout(WAIT_MS)
        wrong = watched(page)
        loads: list[str] = []
        page.on("framenavigated", lambda frame: loads.append(frame.url))
        page.goto(address)
        page.wait_for_selector(".verdict:has-text('Both groups have a master.')")
        # when the process with the master of a group is killed
        pair.kill("broker-a")
        # then the first screen says so by itself, and who acts, and why
        page.wait_for_selector(".verdict:has-text('Without master, a slave acts: broker-a.')")
        row = page.locator("tr[data-group=broker-a]")
        assert re.search(r"slave acts.*slave 1", row.inner_text(), re.DOTALL)
        assert "no master, and the smallest id of the group" in row.inner_text()
        page.wait_for_selector(".timeline li:has-text('T4')")
        # and the map says which container that was, and why each service of the slave that acts runs or rests
        go(page, "Cluster")
        lost = page.locator("tr[data-container]:has-text('no broker answers')")
        lost.wait_for()
        hosted = [" ".join(text.split()) for text in lost.get_by_role("listitem").all_inner_texts()]
        assert ["broker-a 0", "broker-b 1"] == sorted(" ".join(text.split()[:2]) for text in hosted)
        page.get_by_role("button", name="Services of broker 1 at").first.click()
        roster = page.get_by_role("table", name="What runs on")
        roster.locator("tr.running:has-text('acting: no master, and the smallest id of the group')").first.wait_for()
        roster.locator("tr:not(.running):has-text('acting: there is no master to copy')").first.wait_for()
        go(page, "Overview")
        # and that it is back, with the whole timeline and what was taken over
        pair.restart("broker-a")
        pair.await_complete()
        page.wait_for_selector(".verdict:has-text('Both groups have a master.')")
        page.wait_for_selector(".timeline li:has-text('R2')")
        go(page, "Failovers")
        page.wait_for_selector("article[aria-label='report of broker-a']")
        assert 1 == len([url for url in loads if "#" not in url])
        page.close()
        assert [] == wrong
