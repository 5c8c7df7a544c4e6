"""Who has signed in, for how long, and how soon after wrong passwords the next one is looked at. Pure."""

from __future__ import annotations

import hmac

import attrs

MOST_SIGNED_IN = 64
SIGNED_IN_SECONDS = 8 * 3600.0
"""After so long a sign-in ends, used or not."""
IDLE_SECONDS = 30 * 60.0
"""After so long without a request; an open page asks all the time."""
MOST_NAMES = 1_000
LONGEST_WAIT_SECONDS = 30.0
_FREE_TRIES = 3


@attrs.define
class _SignIn:
    secret: str = attrs.field(repr=False)
    began: float
    used: float

    def lasts(self, now: float) -> bool:
        return now < self.began + SIGNED_IN_SECONDS and now < self.used + IDLE_SECONDS


@attrs.define
class SignIns:
    """The cookies of one page. Times are monotonic, in seconds."""

    _all: list[_SignIn] = attrs.field(factory=list)

    def begin(self, secret: str, now: float) -> None:
        """Take *secret* for the cookie of a new sign-in; of more than :data:`MOST_SIGNED_IN` the oldest ends."""
        self._all = [*self._lasting(now), _SignIn(secret, now, now)][-MOST_SIGNED_IN:]

    def holds(self, cookie: str, now: float) -> bool:
        """Return whether *cookie* is that of a sign-in that lasts; it is used by that."""
        for each in self._all:
            if same(cookie, each.secret) and each.lasts(now):
                each.used = now
                return True
        return False

    def end(self, cookie: str) -> None:
        """End the sign-in of *cookie*, if there is one."""
        self._all = [each for each in self._all if not same(cookie, each.secret)]

    def secrets(self, now: float) -> frozenset[str]:
        """Return the cookies of all sign-ins that last."""
        self._all = self._lasting(now)
        return frozenset(each.secret for each in self._all)

    def _lasting(self, now: float) -> list[_SignIn]:
        return [each for each in self._all if each.lasts(now)]


@attrs.define
class Tries:
    """Wrong passwords by user: three are free, then each one doubles how long the next is not looked at."""

    _wrong: dict[str, tuple[int, float]] = attrs.field(factory=dict)  # of each: how many in a row, and when the last

    def wait_seconds(self, name: str, now: float) -> float:
        """Return how long *name* has to wait at monotonic time *now*."""
        count, last = self._wrong.get(name, (0, now))
        if count < _FREE_TRIES:
            return 0.0
        return max(last + min(2.0 ** (count - _FREE_TRIES), LONGEST_WAIT_SECONDS) - now, 0.0)

    def after(self, name: str, right: bool, now: float) -> None:
        """Note a try of *name*; of too many names the one that was wrong first is forgotten."""
        count, _ = self._wrong.pop(name, (0, now))
        if right:
            return
        while len(self._wrong) >= MOST_NAMES:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[name] = count + 1, now


def same(one: str | bytes, other: str) -> bool:
    """Return whether two secrets are the same; it takes as long when they are not."""
    given = one if isinstance(one, bytes) else one.encode("utf-8", "surrogatepass")
    return hmac.compare_digest(given, other.encode("utf-8", "surrogatepass"))
