"""Bounded waiting for facts that nobody announces; for tests, on real and on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

_MOST_HINDERED = 9.0


async def until(condition: Callable[[], object], seconds: float = 20.0, pause_seconds: float = 0.01) -> float:
    """Wait until *condition* gives something true.

    Args:
        condition: asked again and again; must not wait.
        seconds: longest wait.
        pause_seconds: between two looks.

    Returns:
        How many seconds it took.

    Raises:
        trio.TooSlowError: after *seconds*.
    """

    async def asked() -> object:
        return condition()

    return await eventually(asked, seconds, pause_seconds)


async def eventually(
    question: Callable[[], Awaitable[object]],
    seconds: float = 20.0,
    pause_seconds: float = 0.01,
    hindered: Callable[[], float] = lambda: 0.0,
) -> float:
    """Wait until what *question* awaits is true; else as :func:`until`.

    Args:
        question: asked again and again.
        seconds: longest wait.
        pause_seconds: between two looks.
        hindered: returns for how many seconds so far nothing could happen, as others had the machine; they are not
            counted, up to nine times *seconds*.
    """
    began, allowed = trio.current_time(), 0.0
    while allowed < (limit := seconds + min(hindered(), _MOST_HINDERED * seconds)):
        allowed = limit
        with trio.move_on_at(began + limit):
            while True:
                if await question():
                    return trio.current_time() - began
                await trio.sleep(pause_seconds)
    raise trio.TooSlowError
