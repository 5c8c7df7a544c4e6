"""Callers that wait for the actor: one answer each, and the time at which waiting ends."""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class Answer(Generic[T]):
    """What one task waits for. Set once; cheaper than an event, which any number of tasks may wait for."""

    __slots__ = ("_task", "done", "error", "expires", "value")

    def __init__(self, expires: float = math.inf) -> None:
        self.expires = expires
        self.done = False
        self.value: T | None = None
        self.error: Exception | None = None
        self._task: trio.lowlevel.Task | None = None

    def deliver(self, value: T | None, error: Exception | None) -> None:
        """Give the answer; only the first one counts."""
        if self.done:
            return
        self.done, self.value, self.error = True, value, error
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> None:
        """Wait until the answer is there. One task only."""
        if self.done:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def _give_up(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Deadlines:
    """Answers that end at a time of their own, without a timer each.

    The earliest end is kept as a lower bound; when it is reached, all are looked through. An answer that came early
    costs nothing but its place in a set.
    """

    def __init__(self) -> None:
        self._pending: dict[Answer[Any], None] = {}
        self.next_at = math.inf

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, answer: Answer[Any]) -> None:
        """Watch *answer* until :meth:`remove`."""
        self._pending[answer] = None
        if answer.expires < self.next_at:
            self.next_at = answer.expires

    def remove(self, answer: Answer[Any]) -> None:
        """Nobody waits for *answer* any longer."""
        self._pending.pop(answer, None)

    def take_expired(self, now: float) -> list[Answer[Any]]:
        """Return those without answer at *now* (monotonic seconds), in the order they were added."""
        if now < self.next_at:
            return []
        expired = [answer for answer in self._pending if answer.expires <= now]
        for answer in expired:
            del self._pending[answer]
        self.next_at = min((answer.expires for answer in self._pending), default=math.inf)
        return expired

    def take_all(self) -> list[Answer[Any]]:
        """Return all of them and forget them."""
        answers, self._pending, self.next_at = list(self._pending), {}, math.inf
        return answers
