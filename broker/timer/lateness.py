"""Whether a timer is in time: how far it is behind the clock, or ahead of it. Pure."""

from __future__ import annotations

from understudy.broker.timer.timer import Timer


def behind_ms(timer: Timer, now_ms: int) -> int:
    """Return how long the oldest message of *timer* is overdue at *now_ms* (wall time); 0 when none is."""
    due_ms = timer.next_due_ms()
    return 0 if due_ms is None else max(now_ms - due_ms - timer.precision_ms, 0)


def ahead_ms(timer: Timer, now_ms: int) -> int:
    """Return the last second that what comes now may wait for although it is due; 0 when *timer* is in time.

    It has passed seconds that are still to come at *now_ms* (wall time): a clock was ahead, here or where another
    replica delivered.
    """
    next_ms = timer.progress.read.second_ms
    return next_ms + timer.precision_ms if next_ms > timer.floor(now_ms) else 0


def may_hold(timer: Timer, now_ms: int) -> bool:
    """Return whether something whose second is over at *now_ms* (wall time) may not have come out of *timer* yet."""
    until_ms = max(ahead_ms(timer, now_ms), timer.floor(now_ms) - timer.precision_ms)
    return timer.behind > 0 or timer.holds(until_ms)


def out_before_ms(timer: Timer, now_ms: int) -> int:
    """Return the wall time before which everything has come out of *timer*, as far as it is here; 0: none is known."""
    if timer.behind > 0 or late_ones_wait(timer, now_ms, timer.topic.end):
        return 0
    due_ms = timer.next_due_ms(timer.floor(now_ms))
    return now_ms if due_ms is None else due_ms


def late_ones_wait(timer: Timer, until_ms: int, end: int) -> bool:
    """Return whether something that was for a second up to *until_ms* waits in a later one, or is put there yet.

    Args:
        timer: that has it.
        until_ms: wall time of that second.
        end: what stands in the timer's topic from this queue offset on does not count.
    """
    end = min(end, timer.topic.end)
    return any(each.first < end and each.was.second_ms <= until_ms for each in timer.done.left)
