"""What an attack did to a server: counts that prove that it was made, and not refused at the door."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

PATIENCE_S = 15.0
"""How long a busy machine may take to show an effect."""
REST_S = 0.7
"""What has not grown for so long is as large as it will be."""


@attrs.frozen
class Effect:
    """One thing that an attack counted.

    Attributes:
        what: was counted.
        count: how much of it there was.
        least: how much there must be for the attack to count as made.
    """

    what: str
    count: int
    least: int = 1

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}"


def missing(effects: list[Effect]) -> list[str]:
    """Return why an attack does not count as made; empty when it does."""
    if not effects:
        return ["NO ATTACK: nothing shows that it was made"]
    few = [each for each in effects if each.count < each.least]
    return [f"NO ATTACK: {each}, of at least {each.least:,}" for each in few]


def come(what: str, count: Callable[[], int], least: int) -> Effect:
    """Return what *count* says, once it is *least* or :data:`PATIENCE_S` have passed."""
    until = time.monotonic() + PATIENCE_S
    while (found := count()) < least and time.monotonic() < until:
        time.sleep(0.05)
    return Effect(what, found, least)


def settled(what: str, count: Callable[[], int], least: int) -> Effect:
    """Return what *count* says, once it is *least* and has stopped growing, or :data:`PATIENCE_S` have passed."""
    until, found, since = time.monotonic() + PATIENCE_S, count(), time.monotonic()
    while time.monotonic() < until and (found < least or time.monotonic() < since + REST_S):
        time.sleep(0.05)
        if (now := count()) > found:
            found, since = now, time.monotonic()
    return Effect(what, found, least)
