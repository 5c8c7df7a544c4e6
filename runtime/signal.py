"""A signal that something has changed, given any number of times, for any number of tasks."""

from __future__ import annotations

import trio


class Signal:
    """Wakes those who wait for the next change; none is lost to a task that remembers how many it has handled.

    A task that looks at a condition and waits without an ``await`` between the two needs no memory::

        while not condition():
            await signal.wait()

    One that awaits while it works hands in the count it got last, and is woken at once if there was a change meanwhile,
    whatever their number. From 0, it also learns of a change before its first wait::

        handled = 0
        while True:
            handled = await signal.wait(handled)
            await work()

    To set it costs an addition while nobody waits. Each waiting task is woken by each change, so a signal may have any
    number of them. Not to be used from other threads.

    Attributes:
        count: how often it has been set.
    """

    __slots__ = ("_next", "count")

    def __init__(self) -> None:
        self.count = 0
        self._next: trio.Event | None = None

    def set(self) -> None:
        """Wake every task that waits now."""
        self.count += 1
        if self._next is not None:
            self._next.set()
            self._next = None

    async def wait(self, handled: int | None = None) -> int:
        """Wait for a change.

        Args:
            handled: the count that the caller has dealt with; a later change returns at once. None: the next change.

        Returns:
            The count to hand in next time.
        """
        if handled is not None and handled != self.count:
            await trio.lowlevel.checkpoint()
            return self.count
        if self._next is None:
            self._next = trio.Event()
        await self._next.wait()
        return self.count
