"""What decides whether, and where, a message waits before consumers may have it."""

from __future__ import annotations

import attrs

from understudy.broker.timer.request import Door


@attrs.frozen
class DelayRules:
    """The two ways to wait at one broker.

    Attributes:
        levels: how many delay levels there are.
        timer_door: lets messages that name a time into the timer.
    """

    levels: int
    timer_door: Door
