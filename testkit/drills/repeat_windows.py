"""Messages that a group got more than once while replicas were replaced: when, and why. Pure.

A message comes again because it stands in the log twice, or because one place was read twice. The first is the doing of
whoever stored the copy: a real replica that is elected puts again what was delivered since it copied its master's
progress last. The second may happen to a client that begins again at the offset it had committed: when it finds another
master, or its own again after that ended. While a slave is replaced, and in a quiet window, nobody has cause to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from understudy.testkit.history import Delivered

READ_AGAIN = "read again"
PUT_BY_REAL = "stored a second time by a real master"
PUT_BY_OURS = "stored a second time by ours"
PUT_BY = {"java": PUT_BY_REAL, "ours": PUT_BY_OURS}
UNKNOWN = "stored a second time by nobody known"
_SHOWN = 5


@attrs.frozen
class Window:
    """A part of the run; it lasts until the next one begins.

    Attributes:
        begin: monotonic seconds.
        what: happened in it.
        quiet: nothing did.
        master_stays: the master neither ended nor was replaced.
    """

    begin: float
    what: str
    quiet: bool = False
    master_stays: bool = attrs.field(default=attrs.Factory(lambda self: self.quiet, takes_self=True))


@attrs.frozen
class Repeat:
    """A delivery beyond the first one of its message to its group.

    Attributes:
        window: in which it came.
        group: that got it.
        why: :data:`READ_AGAIN`, or who stored the copy that came again.
        what: the delivery.
        at: when it came (monotonic seconds).
        before: when that place was read first; for a copy, when the message had come first.
    """

    window: Window
    group: str
    why: str
    what: Delivered = attrs.field(eq=False)
    at: float = attrs.field(eq=False)
    before: float = attrs.field(eq=False)

    @property
    def may_be(self) -> bool:
        """Whether it is the real system's own doing, or comes of what happened in its window."""
        return self.why == PUT_BY_REAL or (self.why == READ_AGAIN and not self.window.master_stays)


def repeats(
    deliveries: Sequence[Delivered],
    came: Sequence[float],
    windows: Sequence[Window],
    copies: Mapping[tuple[int, int], str],
) -> Iterator[Repeat]:
    """Return what came more than once.

    Args:
        deliveries: all, in the order in which they came.
        came: when each did (monotonic seconds).
        windows: of the run, in order; the first begins before the first delivery.
        copies: who stored the second copies (a value of :data:`PUT_BY`), by queue id and queue offset.
    """
    begins = [window.begin for window in windows]
    read: dict[tuple[str, object, int], float] = {}
    got: dict[tuple[str, str], float] = {}
    for each, at in zip(deliveries, came, strict=True):
        place, whose = (each.group, each.queue, each.offset), (each.group, each.key)
        if whose in got:
            why = READ_AGAIN if place in read else copies.get((each.queue[2], each.offset), UNKNOWN)
            window = windows[bisect_right(begins, at) - 1]
            yield Repeat(window, each.group, why, each, at, read.get(place, got[whose]))
        read.setdefault(place, at)
        got.setdefault(whose, at)


def told(found: Sequence[Repeat], windows: Sequence[Window]) -> list[str]:
    """Return a line for each window: what came again in it, how often, and why."""
    lines = []
    for window in windows:
        counted = Counter((each.group, each.why) for each in found if each.window is window)
        rows = [f"{group}: {count} {why}" for (group, why), count in sorted(counted.items())]
        lines.append(f"{'(quiet) ' if window.quiet else ''}{window.what}: {', '.join(rows) or 'nothing came again'}")
        again = [each for each in found if each.window is window and each.why != PUT_BY_REAL]
        lines += [f"    {_detail(each)}" for each in again[:_SHOWN]]
    return lines


def _detail(again: Repeat) -> str:
    what, first, second = again.what, again.before - again.window.begin, again.at - again.window.begin
    where = f"{what.key}, offset {what.offset} of queue {what.queue[2]}, to {again.group}"
    return f"{where}: {first:.3f} and {second:.3f} s after that began: {again.why}"
