"""The page over HTTP: what it serves, whom it refuses, and that no request costs it more than its bounds."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from console_rig import HOST, PORT, TOKEN, Browser, serving
from trio.testing import MockClock

from understudy.console.asset_files import load
from understudy.console.gatherer import Gatherer
from understudy.console.server import LIMITS, MOST_LIVE
from understudy.console.sign_ins import IDLE_SECONDS
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

OWN = f"Host: {HOST}:{PORT}\r\n".encode()
ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def page(host: str = HOST, **options: Any) -> AsyncIterator[Browser]:
    """Serve a console of a cluster that is not there."""
    source = random.Random(1)
    network = SimNetwork(source)
    world = World(VirtualClock(), network.host(host), SimDisk(source), source)
    async with serving(world, "nobody:9876", host, **options):
        yield Browser(network.host("browser" if host == HOST else host), host)


class TestFiles:
    async def test_the_page_and_all_that_it_names_are_served_with_a_strict_policy(
        self, autojump_clock: MockClock
    ) -> None:
        async with page() as browser:
            assert load().keys() >= {"/", "/index.html", "/main.js", "/style.css", "/vendor/htm-preact.js"}
            for path, asset in load().items():
                reply = await browser.ask(path, {"Authorization": ""})
                assert (200, asset.content) == (reply.status, reply.body)
                policy = reply.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert "nosniff" == reply.headers["x-content-type-options"]

    async def test_what_a_browser_has_is_not_sent_again(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            first = await browser.ask("/main.js")
            again = await browser.ask("/main.js", {"If-None-Match": first.headers["etag"]})
            assert (304, b"") == (again.status, again.body)

    @pytest.mark.parametrize(
        "path",
        ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/vendor", "/vendor/", "/server.py", "/%00",
         "/api/", "/api/../main.js", "/api/no-such", "/main.js/", "/assets/main.js", "/.."],
    )  # fmt: skip
    async def test_nothing_else_can_be_asked_for(self, path: str, autojump_clock: MockClock) -> None:
        async with page() as browser:
            reply = await browser.ask(path)
            assert (404, {"error": "there is no such page"}) == (reply.status, reply.json)

    def test_no_file_of_the_page_asks_another_host_or_makes_markup_of_text(self) -> None:
        for path, asset in load().items():
            text = asset.content.decode()
            if "/vendor/" in path or asset.content_type.startswith(("text/plain", "image/svg")):
                continue
            assert "http://" not in text, path
            assert "https://" not in text, path
            for risky in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("):
                assert risky not in text, path


class TestRefusals:
    async def test_a_foreign_name_gets_nothing_not_even_the_page(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            for path in ("/", "/api/session", "/api/live"):
                reply = await browser.ask(path, {"Host": f"evil.example:{PORT}"})
                assert 421 == reply.status
                assert "not served under that name" in reply.json["error"]

    async def test_other_sites_get_nothing(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            assert 403 == (await browser.ask("/api/history", {"Origin": "http://evil.example"})).status
            assert 403 == (await browser.ask("/api/live", {"Sec-Fetch-Site": "cross-site"})).status
            forged = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
            assert 403 == (await browser.ask("/api/session", forged, method="POST", body={"token": TOKEN})).status

    async def test_who_has_not_signed_in_sees_no_cluster_on_a_page_that_others_reach(
        self, autojump_clock: MockClock
    ) -> None:
        async with page() as browser:
            for path in ("/api/live", "/api/history"):
                assert 401 == (await browser.ask(path, {"Authorization": ""})).status
            session = (await browser.ask("/api/session", {"Authorization": ""})).json
            shown = {"signedIn": False, "closed": True, "user": "", "nameServers": ""}
            assert {"token": True, "users": False, **shown} == session

    async def test_signing_in_gives_a_cookie_and_signing_out_ends_it(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            nobody = {"Authorization": ""}
            wrong = await browser.ask("/api/session", nobody, method="POST", body={"token": "wrong token"})
            assert (403, "that is not the token") == (wrong.status, wrong.json["error"])
            right = await browser.ask("/api/session", nobody, method="POST", body={"token": TOKEN})
            cookie, _, rest = right.headers["set-cookie"].partition(";")
            assert TOKEN not in cookie
            assert "HttpOnly; SameSite=Strict" in rest
            held = {**nobody, "Cookie": cookie}
            assert (await browser.ask("/api/session", held)).json["signedIn"]
            assert 200 == (await browser.ask("/api/history", held)).status
            assert 200 == (await browser.ask("/api/session", held, method="DELETE")).status
            assert 401 == (await browser.ask("/api/history", held)).status

    async def test_a_name_that_other_hosts_know_closes_a_page_of_this_host_alone(
        self, autojump_clock: MockClock
    ) -> None:
        nobody = {"Authorization": ""}
        async with page("127.0.0.1") as browser:
            assert 200 == (await browser.ask("/api/history", nobody)).status
        async with page("127.0.0.1", names=("console.example",)) as browser:
            assert 401 == (await browser.ask("/api/history", nobody)).status
            assert 401 == (await browser.ask("/api/history", {**nobody, "Host": "console.example"})).status
            assert 200 == (await browser.ask("/api/history")).status

    async def test_a_sign_out_ends_what_a_closed_page_follows(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            nobody = {"Authorization": ""}
            reply = await browser.ask("/api/session", nobody, method="POST", body={"token": TOKEN})
            held = {**nobody, "Cookie": reply.headers["set-cookie"].partition(";")[0]}
            async with aclosing(browser.live(held)) as screens:
                await anext(screens)
                await browser.ask("/api/session", held, method="DELETE")
                with trio.fail_after(30):
                    rest = [screen async for screen in screens]
                assert len(rest) <= 1

    async def test_a_token_that_is_no_text_is_a_wrong_one(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            reply = await browser.ask("/api/session", {"Authorization": ""}, method="POST", body={"token": "\ud800"})
            assert (403, "that is not the token") == (reply.status, reply.json["error"])

    async def test_a_sign_in_that_nobody_uses_ends(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            nobody = {"Authorization": ""}
            reply = await browser.ask("/api/session", nobody, method="POST", body={"token": TOKEN})
            held = {**nobody, "Cookie": reply.headers["set-cookie"].partition(";")[0]}
            await trio.sleep(IDLE_SECONDS - 60)
            assert 200 == (await browser.ask("/api/history", held)).status
            await trio.sleep(IDLE_SECONDS + 60)
            assert 401 == (await browser.ask("/api/history", held)).status

    async def test_very_many_wrong_tokens_are_few_lines_in_the_log(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with page() as browser:
            for count in (20, 1):
                for number in range(count):
                    wrong = {"token": f"wrong token {number}"}
                    assert 403 == (await browser.ask("/api/session", method="POST", body=wrong)).status
                await trio.sleep(5)
        lines = [record.getMessage() for record in caplog.records if "a wrong token" in record.getMessage()]
        told = sum(int(line.rpartition("left_out=")[2]) for line in lines if "left_out=" in line)
        assert (4, 21) == (len(lines), len(lines) + told)
        assert "wrong token 1" not in caplog.text

    async def test_a_console_without_token_takes_none(self, autojump_clock: MockClock) -> None:
        async with page(token="") as browser:
            reply = await browser.ask("/api/session", method="POST", body={"token": ""})
            assert 403 == reply.status
            assert "without a token" in reply.json["error"]

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"[" * 100_000, b"\xff"])
    async def test_a_body_that_is_no_object_is_one_sentence(self, body: bytes, autojump_clock: MockClock) -> None:
        async with page() as browser:
            head = b"POST /api/session HTTP/1.1\r\n" + OWN + b"Content-Type: application/json\r\n"
            reply = await browser.raw(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert reply.status in (400, 403)
            assert reply.json["error"]


class TestBounds:
    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"GET / HTTP/1.1\r\n" + OWN + b"X: " + b"x" * 2 * LIMITS.head_bytes + b"\r\n\r\n", 431),
            (b"GET /" + b"x" * 2 * LIMITS.head_bytes, 431),
            (b"POST /api/session HTTP/1.1\r\n" + OWN + b"Content-Length: 99999999\r\n\r\n" + b"x" * 300_000, 413),
            (
                b"POST /api/session HTTP/1.1\r\n" + OWN + b"Transfer-Encoding: chunked\r\n\r\n"
                + b"8000\r\n" + b"x" * 0x8000 + b"\r\n" + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 9,
                413,
            ),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + OWN + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
            (b"GET http://evil.example/ HTTP/1.1\r\n" + OWN + b"\r\n", 404),
            (b"DELETE /main.js HTTP/1.1\r\n" + OWN + b"Content-Type: application/json\r\n\r\n", 405),
            (b"BREW / HTTP/1.1\r\n" + OWN + b"\r\n", 415),
        ],
    )  # fmt: skip
    async def test_large_and_odd_requests_are_answered_and_forgotten(
        self, data: bytes, status: int, autojump_clock: MockClock
    ) -> None:
        async with page() as browser:
            assert status == (await browser.raw(data)).status
            assert 200 == (await browser.ask("/")).status

    async def test_a_slow_request_ends_in_time(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            stream = await browser.connect()
            began = trio.current_time()
            with trio.move_on_after(60):
                for byte in b"GET / HTTP/1.1\r\n" + OWN:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(0.5)
                    if trio.current_time() - began > LIMITS.request_seconds + 1:
                        break
            assert b"" == await stream.receive_some(100)
            assert trio.current_time() - began < LIMITS.request_seconds + 3

    async def test_connections_have_a_number_and_pages_that_are_kept_alive_a_smaller_one(
        self, autojump_clock: MockClock
    ) -> None:
        async with page() as browser, trio.open_nursery() as nursery:

            async def look() -> None:
                async with aclosing(browser.live()) as screens:
                    async for _ in screens:
                        pass

            for _ in range(MOST_LIVE):
                nursery.start_soon(look)
            await trio.sleep(1)
            reply = await browser.ask("/api/live")
            assert 503 == reply.status
            assert "close some" in reply.json["error"]
            assert 200 == (await browser.ask("/")).status
            # connections that say nothing shut nobody out, and give way to each other
            idle = [await browser.connect() for _ in range(2 * LIMITS.connections)]
            await trio.sleep(0.1)
            began = trio.current_time()
            assert 200 == (await browser.raw(b"GET / HTTP/1.1\r\n" + OWN + b"\r\n")).status
            for stream in idle[: LIMITS.connections]:
                assert b"" == await stream.receive_some(100)
            assert trio.current_time() - began < 1
            # pages that are kept up to date are not ended for them
            assert 503 == (await browser.ask("/api/live")).status
            nursery.cancel_scope.cancel()

    async def test_a_page_that_does_not_read_is_dropped(self, autojump_clock: MockClock) -> None:
        async with page() as browser:
            silent = await browser.connect()
            await silent.send_all(
                b"GET /api/live HTTP/1.1\r\n" + OWN + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            await trio.sleep(30)
            # a name server that is not there is a look, too
            async with aclosing(browser.live()) as screens:
                seen = [await anext(screens), await anext(screens)]
            assert ["unknown"] * 2 == [each["verdict"]["state"] for each in seen]


async def test_looks_that_fail_send_a_screen_that_a_page_can_draw(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Gatherer, nursery: trio.Nursery) -> None:
        raise RuntimeError("an odd answer")

    monkeypatch.setattr(Gatherer, "_look", fail)
    async with page() as browser, aclosing(browser.live()) as screens:
        screen = await anext(screens)
        assert ([], [], "Nothing was asked yet.") == (screen["rate"], screen["groups"], screen["verdict"]["text"])


def test_the_vendored_library_has_its_licence_beside_it() -> None:
    folder = ROOT / "console" / "assets" / "vendor"
    text = (folder / "LICENSES.txt").read_text()
    for name in folder.glob("*.js"):
        assert name.name in text
