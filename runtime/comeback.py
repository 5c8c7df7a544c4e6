"""Busy polling: whether a peer is worth waiting for awake, as one that came back at once the last time probably is.

Who sleeps has to be woken: that costs both sides more than many a request, on a virtual machine most of all. So a
server may look for the next bytes of such a peer a while before it sleeps. The rules keep what that costs in bounds:
nobody looks for a peer that is slow, and where looking is in vain it is tried more and more rarely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TRIAL = 8
"""Credit to begin with: it takes some exchanges until threads that wake each other have settled on one processor."""
MOST_CREDIT = 32
IN_VAIN = 2
"""What looking in vain costs; when it helped, credit grows by 1."""
FIRST_REST, LONGEST_REST = 16, 1024
"""Receives without looking when the credit is spent."""


class IdlePoll(NamedTuple):
    """How long the event loop of a server looks for the next bytes of a quick peer before it sleeps.

    Attributes:
        window_s: seconds; 0 is never.
        busy: whether threads of this process work, for which it must not look: it would keep the interpreter from them.
    """

    window_s: float = 0.0
    busy: Callable[[], bool] = bool


class Comeback:
    """What is known of one peer.

    Args:
        window_s: seconds for which a server looks; nobody looks when it is 0.
    """

    __slots__ = ("_credit", "_next_rest", "_rest", "_soon", "window_s")

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._soon = False
        self._credit = TRIAL
        self._rest = 0
        self._next_rest = FIRST_REST

    def expected(self) -> bool:
        """Return whether to look for its bytes now; asked once before each wait."""
        if not self._soon:
            return False
        if self._rest:
            self._rest -= 1
            return False
        return True

    def came(self, waited_s: float, looked: bool) -> None:
        """Learn from a wait.

        Args:
            waited_s: seconds until the bytes came.
            looked: whether somebody looked for them, for at most the window.
        """
        # Who has to be woken comes late: what takes twice the window asleep may come within it to one who looks.
        self._soon = waited_s < 2 * self.window_s
        if not looked:
            return
        if waited_s < self.window_s:
            if self._credit < MOST_CREDIT:
                self._credit += 1
            else:
                self._next_rest = FIRST_REST
            return
        self._credit -= IN_VAIN
        if self._credit <= 0:
            self._credit, self._rest = TRIAL, self._next_rest
            self._next_rest = min(2 * self._next_rest, LONGEST_REST)
