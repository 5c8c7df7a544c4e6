"""The history of clients of real processes, with the time of everything, and what it says of each kind of message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import trio

from understudy.testkit.drills.acting_kinds import DELAYED, ORDERED, Kind
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.met_faults import Met
from understudy.testkit.history import History

DELAYED_SENDER = "delayed"
"""Keys of its messages begin with it."""


class TimedHistory(History):
    """A history that notes when something happened, in seconds of trio's clock.

    Args:
        delay_seconds: how long what is delayed waits.

    Attributes:
        answered: when each message was answered, well or not.
        came: when each message was delivered, by group and key.
    """

    def __init__(self, delay_seconds: float) -> None:
        super().__init__()
        self._delay_seconds = delay_seconds
        self.answered: dict[str, float] = {}
        self.came: dict[tuple[str, str], list[float]] = {}

    def sent(self, key: str, sender: str, queue: tuple[str, str, int] | None, *, acknowledged: bool) -> None:
        """See :meth:`understudy.testkit.history.History.sent`."""
        self.answered[key] = trio.current_time()
        super().sent(key, sender, queue, acknowledged=acknowledged)

    def delivered(self, key: str, group: str, queue: tuple[str, str, int], offset: int) -> None:
        """See :meth:`understudy.testkit.history.History.delivered`."""
        self.came.setdefault((group, key), []).append(trio.current_time())
        super().delivered(key, group, queue, offset)

    def due(self, key: str) -> float:
        """Return when a message was due that was answered: not before, for one that is delayed is stored before."""
        return self.answered[key] + (self._delay_seconds if key.startswith(DELAYED_SENDER) else 0.0)

    def kinds(self, groups: Sequence[str]) -> Iterator[Kind]:
        """Return the figures of ordered and of delayed messages: a message of each group counts on its own.

        Args:
            groups: that were subscribed all the time.
        """
        acknowledged = [each.key for each in self.sends if each.acknowledged]
        for name, delayed in ((ORDERED, False), (DELAYED, True)):
            wanted = {
                (group, key) for group in groups for key in acknowledged if key.startswith(DELAYED_SENDER) is delayed
            }
            came = wanted & self.came.keys()
            again = sum(
                len(times) - 1 for (_, key), times in self.came.items() if key.startswith(DELAYED_SENDER) is delayed
            )
            late = tuple(self.came[group, key][0] - self.due(key) for group, key in came)
            yield Kind(name, len(wanted), len(came), again, len(wanted - came), 0, late)

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """Return what came to a group more than once.

        Args:
            met_by: the faults of the run, seen from the group of brokers that stored a message.
            hosts: returns those that have a member of a group of brokers.
        """
        stored = {sent.key: None if sent.queue is None else sent.queue[1] for sent in self.sends}
        found = []
        for (group, key), came in self.came.items():
            if len(came) > 1:
                delayed, owner = key.startswith(DELAYED_SENDER), stored.get(key)
                due = self.due(key) if delayed and key in self.answered else came[0]
                found.append(Repeat(f"{key} to {group}", delayed, due, tuple(came), met_by(owner), hosts(owner)))
        return found
