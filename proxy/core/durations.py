"""Durations and points in time of messages, as milliseconds."""

from __future__ import annotations

from typing import Protocol


class SecondsAndNanos(Protocol):
    """A Duration or a Timestamp; the private pool of messages has classes of its own for them."""

    seconds: int
    nanos: int


def to_ms(value: SecondsAndNanos) -> int:
    """Return *value* in milliseconds, cut off."""
    return value.seconds * 1000 + value.nanos // 1_000_000


def set_ms(value: SecondsAndNanos, milliseconds: int) -> None:
    """Make *value* so many milliseconds; below zero both parts are, as durations want it."""
    sign = -1 if milliseconds < 0 else 1
    seconds, rest = divmod(abs(milliseconds), 1000)
    value.seconds, value.nanos = sign * seconds, sign * rest * 1_000_000
