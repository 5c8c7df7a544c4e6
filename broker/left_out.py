"""What an operator has a deferred queue leave out: its source passes it as if it were done, and nothing is put for it.

Progress moves past it in the queue's own time, and then it is over for good, here and at every replica that follows.
Until then only this process knows of it: what stands in front of it may be stuck as well.
"""

from __future__ import annotations

from understudy.runtime.signal import Signal


class LeftOut:
    """The messages of one kind of deferred queues that are left out.

    A message is named by its queue and its offset there; the position of a queue may be of another measure.
    """

    def __init__(self) -> None:
        self._met: dict[tuple[int, int], int | None] = {}
        self._passed = Signal()

    def __contains__(self, place: object) -> bool:
        return place in self._met

    def add(self, queue: int, offset: int) -> None:
        """Leave out the message at *offset* of *queue*."""
        self._met.setdefault((queue, offset), None)

    def meets(self, queue: int, offset: int, position: int) -> bool:
        """Tell whether a message that was just read is left out.

        Args:
            queue: of the message.
            offset: of the message.
            position: where its queue has it, in the measure of :meth:`moved`.
        """
        if (queue, offset) not in self._met:
            return False
        self._met[queue, offset] = position
        return True

    def moved(self, queue: int, position: int) -> None:
        """Take note that everything of *queue* before *position* is done."""
        passed = [place for place, met in self._met.items() if place[0] == queue and met is not None and met < position]
        for place in passed:
            del self._met[place]
        if passed:
            self._passed.set()

    async def passed(self, queue: int, offset: int) -> None:
        """Return once progress is past the message at *offset* of *queue*."""
        while (queue, offset) in self._met:
            await self._passed.wait()
