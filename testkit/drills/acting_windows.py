"""In which part of a failover delayed messages fell due: each has its own way to deliver one, or not to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from understudy.testkit.drills.acting_faults import DEAF, LONG_FAULTS, SILENT, Accident
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.drill_result import Step

DUE = "due, "
"""Counts whose name begins like this say how many delayed messages of the lost master's group fell due in a window."""
BEFORE, SILENCE, ACTING, LOST, GIVE_BACK, AFTER = WINDOWS = (
    "before",
    "silence",
    "while a slave acts",
    "while the slave that acted is hit",
    "give-back",
    "after",
)
WINDOW_SEEDS = 25
"""So many seeds whose messages wait for long have some that fall due in each window."""
PAIR_SEEDS = 250
"""So many have some that fall due in each window of each kind of accident that meets the master in them."""


@attrs.frozen
class Failover:
    """One failover as it was; all times are virtual seconds.

    Attributes:
        lost, ends: when the master was lost, and until when.
        online: when it was online again.
        acted: when slaves of its group began to act, and their hosts.
        faults: when accidents of hosts began and ended, and whom they met.
    """

    lost: float
    ends: float
    online: float
    acted: Sequence[tuple[float, str]]
    faults: Sequence[tuple[float, float, str]]

    def window(self, due: float) -> str:
        """Return which of :data:`WINDOWS` *due* lies in."""
        if due < self.lost:
            return BEFORE
        if due >= self.online:
            return AFTER
        if due >= self.ends:
            return GIVE_BACK
        if any(
            begin <= due <= end and any(host == met and self.lost <= at <= begin for at, host in self.acted)
            for begin, end, met in self.faults
        ):
            return LOST
        return ACTING if any(self.lost <= at <= due for at, _ in self.acted) else SILENCE

    def counts(self, kind: str, dues: Iterable[float]) -> Counter[str]:
        """Return how many of *dues* lie in each window of this accident of the master, by :func:`due_name`."""
        return Counter(due_name(kind, self.window(due)) for due in dues)


def due_name(kind: str, window: str) -> str:
    """Return what is counted: messages that fell due in a *window* of a failover whose master met a *kind* of fault."""
    return f"{DUE}{kind}: {window}"


def in_windows(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many messages fell due in each window, whatever met the master, by the *counts* of a run."""
    return {
        window: sum(count for name, count in counts.items() if name.startswith(DUE) and name.endswith(f": {window}"))
        for window in WINDOWS
    }


def empty_windows(counts: Mapping[str, int]) -> list[str]:
    """Return the windows in which nothing fell due in a run with these *counts*."""
    return [window for window, count in in_windows(counts).items() if not count]


def empty_pairs(counts: Mapping[str, int]) -> list[str]:
    """Return the windows, each of one kind of fault, in which nothing fell due in a run of long delays."""
    names = [due_name(kind, window) for kind in LONG_FAULTS for window in WINDOWS]
    return [name.removeprefix(DUE) for name in names if not counts.get(name)]


def due_counts(
    lost: float,
    steps: Iterable[Step],
    watch: RingWatch,
    group: str,
    accidents: Iterable[Accident],
    dues: Iterable[float],
) -> Counter[str]:
    """Return how many messages of *group* fell due in each part of its failover; nothing where its master stayed.

    Args:
        lost: when its master met its accident; virtual seconds, as *dues*.
        steps: the timeline.
        watch: has seen who acted.
        group: of brokers.
        accidents: of all hosts.
        dues: when the messages were due.
    """
    accidents = list(accidents)
    kinds = [each.fault.kind for each in accidents if each.began_at == lost and each.fault.kind in (*SILENT, *DEAF)]
    if not kinds:
        return Counter()
    times = {step.name[:2]: lost + step.seconds for step in steps}
    failover = Failover(
        lost,
        times["R0"],
        min((each for each in watch.online[group] if each >= times["R0"]), default=times["R2"]),
        [(at, host) for at, _, host in watch.began[group]],
        [(each.began_at, each.ended_at, each.fault.host) for each in accidents],
    )
    return failover.counts(kinds[0], dues)
