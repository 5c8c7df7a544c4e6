"""Messages that wait in a later slot than their own, which was passed over before they were put into it. Pure."""

from __future__ import annotations

import math

from understudy.broker.timer.done import Again, Read


class Late:
    """See above: for each slot, from the first to the last of them, and the least place that one has of its own."""

    def __init__(self) -> None:
        self._slots: dict[int, Again] = {}

    def add(self, slot_ms: int, offset: int, own: Read) -> None:
        """Note that a message waits in another slot.

        Args:
            slot_ms: in which.
            offset: of the message in the timer topic.
            own: where it would have been delivered.
        """
        before = self._slots.get(slot_ms, Again(offset, offset + 1, own))
        self._slots[slot_ms] = Again(min(before.first, offset), max(before.end, offset + 1), min(before.was, own))

    def passed(self, second_ms: int) -> None:
        """Forget those of slots before *second_ms*: they are delivered, or left to do once more."""
        for slot_ms in [slot_ms for slot_ms in self._slots if slot_ms < second_ms]:
            del self._slots[slot_ms]

    def forget(self) -> None:
        """Forget all of them: whom this broker follows looks after them."""
        self._slots.clear()

    def parts(self, second_ms: float = math.inf) -> tuple[Again, ...]:
        """Return what is left to do for the sake of those that wait in slots before *second_ms*."""
        return tuple(part for slot_ms, part in self._slots.items() if slot_ms < second_ms)
