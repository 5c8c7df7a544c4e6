"""One queue of the revive topic beyond its progress: which check points are open, and which are ripe. Pure.

The laws:

* Entries come in the order of the queue, and each is looked at once. What was read and is not done stays here.
* The queue has a time of its own, the latest delivery time seen in it: the timer delivers in the order of time, so what
  was due before that is here. Only when nothing came for :data:`QUIET_MS`, and the timer is not behind, it is the
  clock's; it is never beyond that.
* A check point is ripe when the queue's time is :data:`PATIENCE_MS` beyond its own: all its acknowledgements that came
  in time are here. Those in front of it are ripe before it, so that progress never passes one that is open.
* Its own time is later by what the clock was set forward meanwhile (:mod:`stepped_clock`).
* One that came so late that it would be ripe at once waits for :data:`LATE_MS` of the clock: its acknowledgements come
  a second after it. Where a clock was set back, the timer keeps both until the clock is again where the timer was.
* What is put into the timer late comes out at once, before what waits there for an earlier second while the timer is
  behind, acknowledgements among it: nothing is ripe before the timer is past its time, and has given up what was put
  there before the check point came out and waits in a later second than its own.
* What belongs to a check point may stand far behind it: a master writes what a slave handed out all at once. It is ripe
  when the queue is read up to where it ended when the time had come, or for :data:`FAR_BEHIND` entries.
* A check point that came much too early is no work of now: it goes around again (:attr:`Ripe.early`), and holds up
  nothing. Only somebody who writes into the revive topic by hand makes such.
* Acknowledgements that came before their check point wait for it, :data:`MOST_ORPHANS` of them; they hold up nothing.

Source: PopReviveService.java (consumeReviveMessage, mergeAndRevive). Differs: the reference reads everything beyond its
progress again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice

import attrs

from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint, Entry, Key
from understudy.broker.pop.stepped_clock import ClockSteps

PATIENCE_MS = 2_000
QUIET_MS = 3_000
LATE_MS = AHEAD_MS + PATIENCE_MS
TOO_EARLY_MS = 60_000
MOST_ORPHANS = 10_000
FAR_BEHIND = 65_536
"""Entries of one queue that are read, and kept as far as they are open, before the first of them is ripe."""
NEVER = float("inf")


@attrs.frozen
class Ripe:
    """A check point whose time has come.

    Attributes:
        position: its offset in the queue.
        point: with everything done that was acknowledged.
        early: its time has not come at all, it must go around again.
        not_before_ms: wall time until which acknowledgements may still come, of one that came late.
        timer_end: end of the timer's topic when it was read: what is in front of it may be its acknowledgements.
        queue_end: what is in front of this offset may be so, too; ``None`` until its time has come.
    """

    position: int
    point: CheckPoint
    early: bool = False
    not_before_ms: int = 0
    timer_end: int = 0
    queue_end: int | None = None


class ReviveWindow:
    """What was read beyond the progress of one queue.

    Args:
        position: where reading begins.
        steps: of the clock.

    Attributes:
        next: the offset to read next.
        time_ms: the queue's own time; 0 before the first entry.
        held_until_ms: nothing is to be taken as ripe until the timer is past this second, for what comes out
            of it until then is not in the order of its time; 0: it is.
        timer_end: the end of the timer's topic.
        queue_end: the end of the queue, what readers may not see yet included.
    """

    def __init__(self, position: int, steps: ClockSteps) -> None:
        self._steps = steps
        self.begin = position
        self.next = position
        self.time_ms = 0
        self.held_until_ms = 0
        self.timer_end = 0
        self.queue_end = 0
        self._now_ms = 0
        self._came_ms = 0
        self._points: dict[Key, Ripe] = {}
        self._orphans: dict[tuple[Key, int], None] = {}

    def __len__(self) -> int:
        return len(self._points)

    @property
    def resume(self) -> int:
        """Everything before this offset is done."""
        return next((each.position for each in self._points.values()), self.next)

    @property
    def oldest_due_ms(self) -> int:
        """Wall time of the first check point that is open; 0 when none is."""
        return next((self._due_ms(each.point) for each in self._points.values()), 0)

    @property
    def open_points(self) -> Collection[Ripe]:
        """All check points that are open, in order."""
        return self._points.values()

    def add(self, position: int, entry: Entry | None, deliver_ms: int) -> None:
        """Take note of the next entry.

        Args:
            position: its offset.
            entry: ``None`` for a message that is none.
            deliver_ms: when the timer was to deliver it.
        """
        self.next = position + 1
        self._came_ms = self._now_ms
        if isinstance(entry, CheckPoint):
            self._add_point(position, entry, deliver_ms)
        elif entry is not None:
            self.add_ack(entry)
        self.time_ms = max(self.time_ms, deliver_ms)

    def skip_to(self, position: int) -> None:
        """Take note that nothing can be read before *position*."""
        self.next = max(self.next, position)

    def _add_point(self, position: int, point: CheckPoint, deliver_ms: int) -> None:
        known = self._points.get(point.key)
        if known is not None:  # written twice: by a broker that was not sure, or by two
            merged = attrs.evolve(known.point, offsets=tuple(dict.fromkeys((*known.point.offsets, *point.offsets))))
            for offset in set(point.offsets) - set(point.open_offsets):
                merged = merged.acked(offset)
            self._points[point.key] = attrs.evolve(known, point=merged)
            return
        for offset in point.open_offsets if self._orphans else ():
            if (point.key, offset) in self._orphans:
                del self._orphans[point.key, offset]
                point = point.acked(offset)
        early = point.revive_ms - AHEAD_MS - deliver_ms > TOO_EARLY_MS
        late = (self.time_ms or self._now_ms) - self._due_ms(point) > PATIENCE_MS  # the first one by the clock
        not_before_ms = self._now_ms + LATE_MS if late else 0
        self._points[point.key] = Ripe(position, point, early, not_before_ms, self.timer_end)

    def add_ack(self, ack: Ack) -> None:
        """Take an acknowledgement, wherever it came from."""
        known = self._points.get(ack.key)
        if known is not None:
            point = known.point
            for offset in ack.offsets:
                point = point.acked(offset)
            self._points[ack.key] = attrs.evolve(known, point=point)
            return
        for offset in ack.offsets:
            if len(self._orphans) >= MOST_ORPHANS:
                del self._orphans[next(iter(self._orphans))]
            self._orphans[ack.key, offset] = None

    def not_beyond(self, now_ms: int) -> None:
        """Take note of the wall time: the queue's own is never beyond it, also when the clock was set back."""
        self.time_ms, self._came_ms = min(self.time_ms, now_ms), min(self._came_ms, now_ms)
        self._now_ms = now_ms

    def reached_end(self, now_ms: int, timer_behind: bool) -> None:
        """Take note that nothing follows now.

        Args:
            now_ms: wall time.
            timer_behind: something that was due before now may not have come yet.
        """
        if self.time_ms and now_ms - self._quiet_since_ms > QUIET_MS and not timer_behind:
            self.time_ms = now_ms

    def ripe(self, limit: int, may_come: Callable[[Ripe], bool] = lambda ripe: False) -> list[Ripe]:
        """Return the first check points as far as they are ripe; they stay until :meth:`pass_to`.

        Args:
            limit: of check points.
            may_come: tells whether acknowledgements of one are still on their way, whatever the time is.
        """
        found: list[Ripe] = []
        for key, each in self._points.items():
            done = self.time_ms - self._due_ms(each.point) > PATIENCE_MS and self._now_ms >= each.not_before_ms
            if len(found) == limit or not (each.early or (done and not may_come(each))):
                break
            end = each.queue_end
            if end is None:  # noted once, for the queue may grow as fast as it is read
                end = min(self.queue_end, each.position + FAR_BEHIND)
                self._points[key] = each = attrs.evolve(each, queue_end=end)
            if self.next < end and not each.early:
                break
            found.append(each)
        return found

    def after(self, ripe: Sequence[Ripe]) -> int:
        """Return the offset before which everything is done once *ripe*, the first ones, are."""
        rest = next(islice(self._points.values(), len(ripe), None), None)
        return self.next if rest is None else rest.position

    def pass_to(self, position: int) -> None:
        """Forget what is in front of *position*: it is done."""
        self.begin = max(self.begin, position)
        while self._points:
            key, first = next(iter(self._points.items()))
            if first.position >= position:
                return
            del self._points[key]

    def due_ms(self) -> float:
        """Return the wall time when the first open check point can be ripe if nothing comes any more."""
        first = next(iter(self._points.values()), None)
        if first is None:
            return NEVER
        return max(self._due_ms(first.point) + PATIENCE_MS, self._quiet_since_ms + QUIET_MS, first.not_before_ms) + 1

    @property
    def _quiet_since_ms(self) -> int:
        """Since when nothing came: what was due long ago may have come just now, with what belongs to it behind it."""
        return max(self.time_ms, self._came_ms)

    def _due_ms(self, point: CheckPoint) -> int:
        return self._steps.due_ms(point.pop_ms, point.revive_ms)
