"""Sends that are answered only when their bytes survive: a power loss here, the loss of this broker, or both.

A send that waits takes a slot in a queue, not a task: whatever moves (a flush, a report of a slave, a deadline) answers
everything it covered, each connection in one write. Sends arrive in log order, so each queue is in order of offsets;
sends that need different numbers of copies stand in different queues, so that none holds up another.

Source of the rules: CommitLog.java, GroupTransferService.java (which waits for one send after the other).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import trio

from understudy.remoting.codes import ResponseCode
from understudy.remoting.frame import Buffer, with_code
from understudy.runtime.clock import Clock
from understudy.runtime.signal import Signal


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


class Waiting(NamedTuple):
    """One send that waits; deadlines in monotonic seconds."""

    offset: int
    flush_deadline: float
    copies_deadline: float
    connection: AnswerTo
    answer: bytes


class Acknowledgements:
    """The waiting sends of one broker.

    Args:
        log: whose flushes are waited for.
        clock: for deadlines.
        timeout_ms: longest wait of a send for the flush, asked for each send.
        limit: most sends that may wait; above it sends are refused as busy.
        flushes: whether sends wait for the flush at all (``SYNC_FLUSH``).
        copied: from a number of copies to the offset in bytes before which so many replicas have everything.
        copies_timeout_ms: longest wait of a send for its copies, asked for each send.
        late: from the frame for success and a response code to the frame that says so.
    """

    def __init__(
        self,
        log: FlushedLog,
        clock: Clock,
        timeout_ms: Callable[[], int],
        limit: Callable[[], int],
        *,
        flushes: bool = True,
        copied: Callable[[int], int] = lambda copies: 0,
        copies_timeout_ms: Callable[[], int] = lambda: 0,
        late: Callable[[bytes, int], bytes] = with_code,
    ) -> None:
        self._log = log
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._limit = limit
        self._flushes = flushes
        self._copied = copied
        self._copies_timeout_ms = copies_timeout_ms
        self._late = late
        self._queues: dict[int, deque[Waiting]] = {}
        self._unflushed: deque[tuple[int, float]] = deque()
        self._count = 0
        self._flush_wanted = Signal()
        self._copies_wanted = Signal()
        self._rest = Signal()

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no further send may wait."""
        return self._count >= self._limit()

    def add(self, offset: int, connection: AnswerTo, answer: bytes, copies: int = 1) -> None:
        """Answer a send once it is safe, or tell that it is late: for missing copies before a late flush.

        Args:
            offset: end of its bytes in the log.
            connection: where the answer goes.
            answer: frame for success.
            copies: replicas that must have it, this one included.
        """
        now = self._clock.monotonic()
        flush_deadline = now + self._timeout_ms() / 1000 if self._flushes else now
        copies_deadline = now + self._copies_timeout_ms() / 1000 if copies > 1 else now
        queue = self._queues.get(copies)
        if queue is None:
            queue = self._queues[copies] = deque()
        queue.append(Waiting(offset, flush_deadline, copies_deadline, connection, answer))
        self._count += 1
        if self._flushes:
            self._unflushed.append((offset, flush_deadline))
            if len(self._unflushed) == 1:
                self._flush_wanted.set()
        if copies > 1:
            self._copies_wanted.set()

    async def run(self) -> None:
        """Answer sends until cancelled; asleep while none waits."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_flushes)
            nursery.start_soon(self._watch_deadlines)

    async def _watch_flushes(self) -> None:
        unflushed = self._unflushed
        while True:
            flushed, now = self._log.flushed_offset, self._clock.monotonic()
            while unflushed and (unflushed[0][0] <= flushed or unflushed[0][1] <= now):
                unflushed.popleft()
            if not unflushed:
                await self._flush_wanted.wait()
            offset, deadline = unflushed[0]
            left_ms = max((deadline - self._clock.monotonic()) * 1000, 0)
            await self._log.wait_flushed(offset, int(left_ms) + 1)
            self.settle()

    async def _watch_deadlines(self) -> None:
        while True:
            now = self._clock.monotonic()
            heads = [queue[0] for copies, queue in self._queues.items() if queue and copies > 1]
            if not heads:
                await self._copies_wanted.wait()
                continue
            due = min(max(h.copies_deadline, h.flush_deadline if h.copies_deadline <= now else 0) for h in heads)
            await self._clock.sleep(max(due - now, 0) + 0.001)
            self.settle()

    async def emptied(self) -> None:
        """Wait until no send waits; each of them has a deadline."""
        while self._count:
            await self._rest.wait()

    async def drain(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Flush by *wait* and answer what is covered, for a clean stop."""
        if self._count:
            await wait()
            self.settle()

    def give_up(self) -> None:
        """Answer every send: one that is not safe now as one whose time is over."""
        self.settle(math.inf)

    def settle(self, now: float | None = None) -> None:
        """Answer every send that is safe now or whose time is over.

        Args:
            now: monotonic seconds; the clock's when ``None``.
        """
        now = self._clock.monotonic() if now is None else now
        flushed = self._log.flushed_offset if self._flushes else None
        answers: dict[AnswerTo, list[Buffer]] = {}
        for copies, queue in self._queues.items():
            if queue:
                self._settle_queue(queue, flushed, self._copied(copies) if copies > 1 else None, now, answers)
        for connection, frames in answers.items():
            connection.write(frames)
        if not self._count:
            self._rest.set()

    def _settle_queue(
        self,
        queue: deque[Waiting],
        flushed: int | None,
        copied: int | None,
        now: float,
        answers: dict[AnswerTo, list[Buffer]],
    ) -> None:
        while queue:
            offset, flush_deadline, copies_deadline, connection, frame = queue[0]
            durable = flushed is None or offset <= flushed
            safe = copied is None or offset <= copied
            if not (durable or flush_deadline <= now) or not (safe or copies_deadline <= now):
                return
            queue.popleft()
            self._count -= 1
            if not safe and (durable or copied != flushed):  # else nothing but the disk is late
                frame = self._late(frame, ResponseCode.FLUSH_SLAVE_TIMEOUT)
            elif not durable:
                frame = self._late(frame, ResponseCode.FLUSH_DISK_TIMEOUT)
            known = answers.get(connection)
            if known is None:
                answers[connection] = [frame]
            else:
                known.append(frame)
