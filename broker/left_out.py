"""What an operator has a deferred queue leave out, or have wait once more, in the place of what is due.

The source of the queue asks at each read what is decided, and gives the queue nothing, or what waits once more, to put:
so the queue's own laws hold, it is put once, and progress moves past it when that is stored. Then it is over for good,
here and at every replica that follows. Until then only this process knows of it, and only as long as the service runs:
what stands in front of it may be stuck as well, and in another role the log may have something else there.
"""

from __future__ import annotations

import attrs

from understudy.runtime.signal import Signal


@attrs.define(eq=False)
class Decided:
    """One decision.

    Attributes:
        position: of the message, in the measure of the queue's progress.
        again: it waits once more; else nobody gets it.
        met: the queue has read it since, and put nothing else for it.
        passed: progress is past it.
    """

    position: int
    again: bool
    met: bool = False
    passed: bool = False


class LeftOut:
    """The messages of one kind of deferred queues about which an operator has decided.

    A message is named by its queue and its offset there; the position of a queue may be of another measure.
    """

    def __init__(self) -> None:
        self._decided: dict[tuple[int, int], Decided] = {}
        self._ended = Signal()

    def __contains__(self, place: object) -> bool:
        return place in self._decided

    def add(self, queue: int, offset: int, position: int, *, again: bool) -> Decided | None:
        """Decide about the message at *offset* of *queue*; ``None`` when that was done before.

        Args:
            queue: of the message.
            offset: of the message.
            position: see :class:`Decided`; progress is not past it.
            again: see :class:`Decided`.
        """
        if (queue, offset) in self._decided:
            return None
        decided = self._decided[queue, offset] = Decided(position, again)
        return decided

    def meets(self, queue: int, offset: int) -> Decided | None:
        """Return what is decided about a message that was just read."""
        decided = self._decided.get((queue, offset))
        if decided is not None:
            decided.met = True
        return decided

    def moved(self, queue: int, position: int) -> None:
        """Take note that everything of *queue* before *position* is done."""
        passed = [place for place, each in self._decided.items() if place[0] == queue and each.position < position]
        for place in passed:
            self._decided.pop(place).passed = True
        if passed:
            self._ended.set()

    def forget(self) -> None:
        """Take note that the queues are read anew, in a role that may have another log."""
        self._decided.clear()
        self._ended.set()

    async def ended(self, decided: Decided) -> None:
        """Return once progress is past what was decided, or the decision was forgotten."""
        while decided in self._decided.values():
            await self._ended.wait()
