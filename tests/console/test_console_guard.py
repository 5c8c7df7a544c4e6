"""Whom the page answers: its own names, its own pages, and for changes whoever gave the token."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from understudy.console.guard import Guard, listed_names
from understudy.console.server import others_reach
from understudy.console.sign_ins import MOST_SIGNED_IN, SIGNED_IN_SECONDS

COOKIE = "understudy-console-8082"
OWN = {"host": "127.0.0.1:8082"}
JSON = {"content-type": "application/json"}


def guard(token: str = "a long token", **more: object) -> Guard:
    return Guard("127.0.0.1", 8082, token, **{"now": lambda: 0.0, **more})  # type: ignore[arg-type]  # checked by the caller's test


class TestNames:
    @pytest.mark.parametrize("host", ["127.0.0.1:8082", "localhost:8082", "LOCALHOST:8082", "[::1]:8082"])
    def test_its_own_are_answered(self, host: str) -> None:
        assert guard().refuses("GET", "/", {"host": host}) is None

    @pytest.mark.parametrize(
        "host", ["", "evil.example", "evil.example:8082", "127.0.0.1", "127.0.0.1:80", "localhost:8082.evil.example"]
    )
    def test_a_foreign_one_that_points_here_is_not(self, host: str) -> None:
        refusal = guard().refuses("GET", "/", {"host": host})
        assert refusal is not None
        assert refusal.status == HTTPStatus.MISDIRECTED_REQUEST

    def test_further_ones_are_given(self) -> None:
        named = guard(names=listed_names(["Console.Example", "b.example:443, c.example"]))
        for host in ("console.example", "console.example:8082", "b.example:443", "c.example"):
            assert named.refuses("GET", "/", {"host": host}) is None
        assert named.refuses("GET", "/", {"host": "b.example:444"}) is not None


@pytest.mark.parametrize(
    ("host", "names", "reached"),
    [
        ("127.0.0.1", [], False), ("::1", [], False), ("0.0.0.0", [], True),
        ("127.0.0.1", ["localhost:80", "[::1]:8082", "127.0.0.2"], False),
        ("127.0.0.1", ["localhost", "console.example"], True), ("127.0.0.1", ["10.0.0.1:443"], True),
        ("127.0.0.1", ["[fe80::1]"], True),
    ],
)  # fmt: skip
def test_other_hosts_reach_it_by_its_address_or_by_a_name_that_is_not_this_host_alone(
    host: str, names: list[str], reached: bool
) -> None:
    assert reached == others_reach(host, listed_names(names))


class TestOtherSites:
    @pytest.mark.parametrize(
        ("method", "path", "headers"),
        [
            ("GET", "/api/live", {"origin": "http://evil.example"}),
            ("GET", "/api/live", {"sec-fetch-site": "cross-site"}),
            ("GET", "/api/live", {"sec-fetch-site": "same-site"}),
            ("GET", "/api/live", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
            ("GET", "/main.js", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}),
            ("POST", "/api/session", {"origin": "null", **JSON}),
            ("POST", "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", **JSON}),
            ("POST", "/api/session", {"origin": "http://127.0.0.1:8083", **JSON}),
        ],
    )
    def test_they_ask_for_nothing(self, method: str, path: str, headers: dict[str, str]) -> None:
        refusal = guard().refuses(method, path, {**OWN, **headers})
        assert refusal is not None
        assert refusal.status == HTTPStatus.FORBIDDEN

    def test_they_may_have_a_link_to_the_page(self) -> None:
        headers = {**OWN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert guard().refuses("GET", "/", headers) is None

    def test_a_change_is_json_which_no_form_can_send(self) -> None:
        for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            refusal = guard().refuses("POST", "/api/session", {**OWN, "content-type": kind})
            assert refusal is not None
            assert refusal.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        own = {**OWN, "origin": "http://127.0.0.1:8082", "sec-fetch-site": "same-origin", **JSON}
        assert guard().refuses("POST", "/api/session", own) is None


class TestSignIn:
    def test_nobody_may_change_anything_without_a_token(self) -> None:
        open_page = guard(token="")
        assert open_page.sign_in("", "s", {}) is None
        for headers in ({}, {"cookie": f"{COOKIE}="}, {"authorization": "Bearer "}):
            assert not open_page.may_change(headers)
        assert open_page.may_read({})

    def test_behind_a_proxy_with_tls_the_cookie_never_goes_over_plain_http(self) -> None:
        page = guard(names=("console.example",))
        for origin, secure in (("https://console.example", True), ("http://console.example", False)):
            headers = {"origin": origin}
            for cookie in (page.sign_in("a long token", "secret", headers), page.sign_out(headers)):
                assert secure == str(cookie).endswith("; Secure")

    def test_a_sign_in_takes_the_place_of_the_one_before_in_that_browser(self) -> None:
        page = guard()
        page.sign_in("a long token", "first", {})
        page.sign_in("a wrong token", "second", {"cookie": f"{COOKIE}=first"})
        assert page.may_change({"cookie": f"{COOKIE}=first"})
        page.sign_in("a long token", "second", {"cookie": f"{COOKIE}=first"})
        assert not page.may_change({"cookie": f"{COOKIE}=first"})
        assert page.may_change({"cookie": f"{COOKIE}=second"})

    def test_the_token_gives_a_cookie_that_scripts_and_other_sites_cannot_use(self) -> None:
        page = guard()
        assert page.sign_in("a wrong token", "secret", {}) is None
        assert not page.may_change({"cookie": f"{COOKIE}=secret"})
        cookie = page.sign_in("a long token", "secret", {})
        assert cookie == f"{COOKIE}=secret; HttpOnly; SameSite=Strict; Path=/; Max-Age=28800"
        assert page.may_change({"cookie": f"other=1; {COOKIE}=secret"})
        assert not page.may_change({"cookie": f"{COOKIE}=secre"})
        assert not page.may_change({"cookie": f"{COOKIE}=a long token"})
        assert "Max-Age=0" in page.sign_out({"cookie": f"{COOKIE}=secret"})
        assert not page.may_change({"cookie": f"{COOKIE}=secret"})

    def test_a_script_gives_it_as_a_header(self) -> None:
        assert guard().may_change({"authorization": "Bearer a long token"})
        assert not guard().may_change({"authorization": "Basic a long token"})
        assert not guard().may_change({"authorization": "Bearer é"})

    def test_a_token_may_have_any_letters_and_what_is_no_text_is_a_wrong_one(self) -> None:
        page = guard("schlüssel à")
        as_sent = "schlüssel à".encode().decode("latin-1")
        assert page.may_change({"authorization": f"Bearer {as_sent}"})
        assert not page.may_change({"authorization": "Bearer schlüssel à"})
        assert page.sign_in("schlüssel à", "s", {}) is not None
        assert page.sign_in("\ud800", "s", {}) is None

    def test_two_pages_of_one_host_keep_their_sign_ins_apart(self) -> None:
        page, other = guard(), Guard("127.0.0.1", 8083, "a long token", now=lambda: 0.0)
        cookies = [str(each.sign_in("a long token", f"of-{each.port}", {})).partition(";")[0] for each in (page, other)]
        headers = {"cookie": "; ".join(cookies)}
        assert page.may_change(headers)
        assert other.may_change(headers)
        other.sign_out(headers)
        assert page.may_change(headers)

    def test_a_page_that_others_reach_shows_nothing_without_it(self) -> None:
        page = guard(closed=True)
        assert not page.may_read({})
        assert page.may_read({"authorization": "Bearer a long token"})

    def test_sessions_are_bounded(self) -> None:
        page = guard()
        for number in range(MOST_SIGNED_IN + 1):
            page.sign_in("a long token", f"s{number}", {})
        assert not page.may_change({"cookie": f"{COOKIE}=s0"})
        assert page.may_change({"cookie": f"{COOKIE}=s1"})

    def test_a_sign_in_ends_after_some_hours(self) -> None:
        times = [0.0]
        page = guard(now=lambda: times[-1])
        page.sign_in("a long token", "secret", {})
        while times[-1] < SIGNED_IN_SECONDS - 600:
            times.append(times[-1] + 600)
            assert page.may_change({"cookie": f"{COOKIE}=secret"})
        times.append(SIGNED_IN_SECONDS)
        assert not page.may_change({"cookie": f"{COOKIE}=secret"})
