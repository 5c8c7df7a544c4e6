"""What a leader knows of the members that follow it: which rounds each has heard, and when those were sent."""

from __future__ import annotations

from collections import deque

MAX_REMEMBERED_ROUNDS = 4096


def is_majority(count: int, members: int) -> bool:
    """Whether *count* of *members* decide."""
    return 2 * count > members


class Followers:
    """Rounds of the present leadership. A round is one message to each member; acknowledgements repeat its number.

    Args:
        members: size of the quorum, the leader included.
    """

    def __init__(self, members: int) -> None:
        self.round = 0
        self._members = members
        self._sent: deque[tuple[int, float]] = deque(maxlen=MAX_REMEMBERED_ROUNDS)
        self._heard: dict[str, int] = {}
        self._heard_at: dict[str, float] = {}
        self._voters: set[str] = set()

    def begin(self) -> None:
        """A leadership begins: nobody has followed it yet."""
        self._sent.clear()
        self._heard.clear()
        self._heard_at.clear()
        self._voters.clear()

    def new_round(self, now: float) -> None:
        """A round leaves at *now* (monotonic seconds)."""
        self.round += 1
        self._sent.append((self.round, now))

    def heard(self, peer: str, sequence: int) -> None:
        """*peer*, which may vote, has heard the rounds up to *sequence*."""
        self._voters.add(peer)
        if sequence <= self._heard.get(peer, 0):
            return
        self._heard[peer] = sequence
        for number, sent in reversed(self._sent):
            if number <= sequence:
                self._heard_at[peer] = max(sent, self._heard_at.get(peer, sent))
                return

    def without_vote(self, peer: str) -> None:
        """*peer* follows but may not vote yet: it counts for nothing."""
        self._voters.discard(peer)

    def forget(self, peer: str) -> None:
        """Whatever *peer* has heard was heard with another disk."""
        self._voters.discard(peer)
        self._heard.pop(peer, None)
        self._heard_at.pop(peer, None)

    def followed_since(self, since: float, without: str | None = None) -> bool:
        """Whether a majority, the leader included and *without* left out, followed a round sent after *since*."""
        count = 1
        for peer, sent in self._heard_at.items():
            if peer != without and peer in self._voters and sent > since:
                count += 1
        return is_majority(count, self._members)

    def followed_round(self, number: int) -> bool:
        """Whether a majority, the leader included, has heard round *number*."""
        count = 1 + sum(heard >= number for peer, heard in self._heard.items() if peer in self._voters)
        return is_majority(count, self._members)
