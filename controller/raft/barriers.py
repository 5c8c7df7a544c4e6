"""Read barriers: a read is fresh when its leader was still followed by a majority after the read had been asked for."""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from understudy.controller.raft.errors import NotLeaderError
from understudy.controller.raft.followers import Followers


class Ticket(Protocol):
    """A proposal or barrier whose answer will come."""

    def deliver(self, value: Any, error: Exception | None) -> None:
        """Called once, after the answer is durable."""
        ...


Result = tuple[Ticket, Any, Exception | None]
"""A finished ticket with its value or its error."""


@attrs.define(eq=False)
class _Barrier:
    ticket: Ticket
    term: int
    round: int | None
    index: int | None = None


class Barriers:
    """Barriers on their way. Each passes when, in this order or the other:

    * a round that left after it was opened is followed by a majority (alone in the quorum: nothing to ask)
    * everything committed when the leader was ready is applied
    """

    def __init__(self) -> None:
        self._waiting: list[_Barrier] = []

    def open(self, ticket: Ticket, term: int, alone: bool) -> None:
        """Begin one in *term*."""
        self._waiting.append(_Barrier(ticket, term, 0 if alone else None))

    def close(self, ticket: Ticket) -> None:
        """Nobody waits for *ticket* any longer."""
        self._waiting = [barrier for barrier in self._waiting if barrier.ticket is not ticket]

    def need_round(self) -> bool:
        """Whether a round must leave for some of them."""
        return any(barrier.round is None for barrier in self._waiting)

    def use_round(self, number: int) -> None:
        """Round *number* has left after all of them were opened."""
        for barrier in self._waiting:
            if barrier.round is None:
                barrier.round = number

    def settle(
        self, term: int | None, ready_commit: int | None, applied: int, leader: str | None, followers: Followers
    ) -> list[Result]:
        """Return what passed or failed.

        Args:
            term: of the leadership, ``None`` when this member does not lead.
            ready_commit: the commit index when everything of earlier terms is applied, else ``None``.
            applied: index of the last applied entry.
            leader: who leads, for those that failed.
            followers: who has heard which round.
        """
        finished: list[Result] = []
        waiting: list[_Barrier] = []
        for barrier in self._waiting:
            if barrier.term != term:
                finished.append((barrier.ticket, None, NotLeaderError(leader)))
                continue
            if barrier.index is None:
                barrier.index = ready_commit
            proved = barrier.round is not None and (barrier.round == 0 or followers.followed_round(barrier.round))
            if proved and barrier.index is not None and applied >= barrier.index:
                finished.append((barrier.ticket, barrier.index, None))
            else:
                waiting.append(barrier)
        self._waiting = waiting
        return finished
