"""A popped message as whoever brings it back finds it: here, or in another group of brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from understudy.format.record import Record


@attrs.frozen
class Popped:
    """What became of the look for a popped message.

    Attributes:
        record: the message; ``None`` when it is not there.
        retry: nobody could tell, or it may come back: it is asked for again.
        lacks: who was asked does not have it, though its queue does not begin behind it: perhaps it is only behind.
    """

    record: Record | None
    retry: bool = False
    lacks: bool = False


ReadAway = Callable[[str, str, int, int], Awaitable[Popped]]
"""Reads a message of another group of brokers: its name, topic, queue id and queue offset."""
