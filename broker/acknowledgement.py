"""Sends that are answered only when their bytes survive a power loss.

A send that waits takes a slot in one queue, not a task: one service waits for the next flush and answers everything it
covered, each connection in one write. Sends arrive in log order, so the queue is in order of offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from understudy.remoting.frame import Buffer
from understudy.runtime.clock import Clock


class AnswerTo(Protocol):
    """The part of a connection that is needed here."""

    def write(self, frame: Buffer | list[Buffer]) -> None:
        """Send whole frames without waiting."""
        ...


class FlushedLog(Protocol):
    """The part of the message store that is needed here."""

    @property
    def flushed_offset(self) -> int:
        """Bytes before this physical offset are durable."""
        ...

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until :attr:`flushed_offset` reaches *offset*."""
        ...


Waiting = tuple[int, float, AnswerTo, bytes, bytes]
"""Offset to reach, monotonic deadline, connection, answer when reached, answer when late."""


class Acknowledgements:
    """The queue of waiting sends of one broker.

    Args:
        log: whose flushes are waited for.
        clock: for deadlines.
        timeout_ms: longest wait of a send, asked for each send.
        limit: most sends that may wait; above it sends are refused as busy.
    """

    def __init__(self, log: FlushedLog, clock: Clock, timeout_ms: Callable[[], int], limit: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._limit = limit
        self._queue: deque[Waiting] = deque()
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether no further send may wait."""
        return len(self._queue) >= self._limit()

    def add(self, offset: int, connection: AnswerTo, answer: bytes, late: bytes) -> None:
        """Answer a send once the log is durable up to *offset*, or with *late* when that takes too long."""
        deadline = self._clock.monotonic() + self._timeout_ms() / 1000
        self._queue.append((offset, deadline, connection, answer, late))
        if len(self._queue) == 1:
            self._wake.set()

    async def run(self) -> None:
        """Answer sends until cancelled; asleep while none waits."""
        while True:
            if not self._queue:
                self._wake = trio.Event()
                await self._wake.wait()
            offset, deadline, *_ = self._queue[0]
            left_ms = max((deadline - self._clock.monotonic()) * 1000, 0)
            await self._log.wait_flushed(offset, int(left_ms) + 1)
            self._answer()

    async def drain(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Flush by *wait* and answer what is covered, for a clean stop."""
        if self._queue:
            await wait()
            self._answer()

    def _answer(self) -> None:
        queue, flushed, now = self._queue, self._log.flushed_offset, self._clock.monotonic()
        answers: dict[AnswerTo, list[Buffer]] = {}
        while queue:
            offset, deadline, connection, answer, late = queue[0]
            if offset <= flushed:
                frame = answer
            elif deadline <= now:
                frame = late
            else:
                break
            queue.popleft()
            known = answers.get(connection)
            if known is None:
                answers[connection] = [frame]
            else:
                known.append(frame)
        for connection, frames in answers.items():
            connection.write(frames)
