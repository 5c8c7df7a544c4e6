"""Bounded waiting for facts that nobody announces; for tests, on real and on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


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
    question: Callable[[], Awaitable[object]], seconds: float = 20.0, pause_seconds: float = 0.01
) -> float:
    """Wait until what *question* awaits is true; else as :func:`until`."""
    began = trio.current_time()
    with trio.fail_after(seconds):
        while True:
            if await question():
                return trio.current_time() - began
            await trio.sleep(pause_seconds)
