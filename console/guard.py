"""Whom the page answers: names it is called by, pages of its own only, and who may change something. Pure.

* A request must name the page as its address, or as a name that was given: a foreign site whose name was made to point
  here (DNS rebinding) names its own.
* What is not a page's own address bar comes from a page of ours: browsers say so (``Sec-Fetch-Site``, ``Origin``).
* A change needs a sign-in, with the token or as a user. Its cookie is kept from scripts and from requests of other
  sites, and a change must be JSON besides, which no foreign form can send.
* A page that other hosts reach, by its address or by a name behind a reverse proxy, shows nothing without sign-in, and
  neither does one for users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

import attrs

from understudy.console.sign_ins import SIGNED_IN_SECONDS, SignIns, same

_JSON = "application/json"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@attrs.frozen
class Refusal:
    """Why a request is not answered."""

    status: HTTPStatus
    text: str


@attrs.define
class Guard:
    """The rules of one page.

    Attributes:
        host: address that is listened on.
        port: the real one.
        token: who knows it may change something; ``""``: nobody may.
        names: further names and addresses the page is called by, ``host`` or ``host:port``.
        closed: nothing is shown without sign-in.
        now: monotonic seconds.
        sign_ins: cookies of those who have signed in.
    """

    host: str
    port: int
    token: str = ""
    names: tuple[str, ...] = ()
    closed: bool = False
    now: Callable[[], float] = attrs.field(kw_only=True)
    sign_ins: SignIns = attrs.field(factory=SignIns)

    def hosts(self) -> frozenset[str]:
        """Return what a Host header may say."""
        own = {f"{name}:{self.port}" for name in (*_LOOPBACK_NAMES, _bracketed(self.host))}
        if self.port == 80:
            own |= {name.rpartition(":")[0] for name in own}
        return frozenset(own | {name.lower() for name in self.names} | {f"{n}:{self.port}".lower() for n in self.names})

    @property
    def cookie(self) -> str:
        """The name of its cookie: browsers keep one jar for all ports of a host, so each page has its own."""
        return f"understudy-console-{self.port}"

    def refuses(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused before anything looks at it; ``None`` when it may go on.

        Args:
            method: in capitals.
            path: what is asked for.
            headers: by name in small letters.
        """
        host = headers.get("host", "").lower()
        if host not in self.hosts():
            return Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this page is not served under that name; use its address, or name it with --name when it starts",
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
        navigates = headers.get("sec-fetch-mode") == "navigate" and method == "GET" and not path.startswith("/api/")
        if not own or (site not in ("same-origin", "none") and not navigates):
            return Refusal(HTTPStatus.FORBIDDEN, "another site asks: only the pages of this console may")
        if method in ("GET", "HEAD"):
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a change is sent as {_JSON}")
        return None

    def may_read(self, headers: Mapping[str, str]) -> bool:
        """Return whether the cluster may be shown."""
        return not self.closed or self.may_change(headers)

    def may_change(self, headers: Mapping[str, str]) -> bool:
        """Return whether whoever asks has signed in, or gives the token as ``Authorization: Bearer``."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if self.token and kind.lower() == "bearer" and same(given.strip(" \t").encode("latin-1"), self.token):
            return True
        cookie = self.cookie_of(headers)
        return bool(cookie) and self.sign_ins.holds(cookie, self.now())

    def sign_in(self, token: str, secret: str, headers: Mapping[str, str]) -> str | None:
        """Return the cookie header of a new session; ``None`` when *token* is not the one.

        Args:
            token: what was given.
            secret: a fresh random text for the cookie.
            headers: of the request, by name in small letters.
        """
        if not self.token or not same(token, self.token):
            return None
        self.sign_ins.begin(secret, self.now())
        return self.cookie_for(secret, headers)

    def cookie_for(self, secret: str, headers: Mapping[str, str]) -> str:
        """Return the cookie header of a sign-in, which takes the place of the one that *headers* show."""
        self.sign_ins.end(self.cookie_of(headers))
        return self._set_cookie(secret, SIGNED_IN_SECONDS, headers)

    def sign_out(self, headers: Mapping[str, str]) -> str:
        """End the session that *headers* show; return the cookie header that ends it in the browser."""
        self.sign_ins.end(self.cookie_of(headers))
        return self._set_cookie("", 0, headers)

    def _set_cookie(self, value: str, seconds: float, headers: Mapping[str, str]) -> str:
        """Return a cookie header; of a page behind a proxy with TLS the cookie never goes over plain HTTP."""
        secure = "; Secure" if headers.get("origin", "").lower().startswith("https:") else ""
        return f"{self.cookie}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds:.0f}{secure}"

    def cookie_of(self, headers: Mapping[str, str]) -> str:
        """Return the secret of the sign-in that *headers* show; ``""`` for none."""
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return ""


def listed_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names in texts of one or several, divided by commas."""
    return tuple(name.strip().lower() for text in texts for name in text.split(",") if name.strip())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
