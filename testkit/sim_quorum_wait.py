"""Bounded waiting on a condition, for tests."""

from __future__ import annotations

from collections.abc import Callable

import trio


async def until(condition: Callable[[], object], seconds: float = 20.0, pause_seconds: float = 0.01) -> None:
    """Return once *condition* gives something true. Raises ``trio.TooSlowError`` after *seconds*."""
    with trio.fail_after(seconds):
        while True:
            if condition():
                return
            await trio.sleep(pause_seconds)
