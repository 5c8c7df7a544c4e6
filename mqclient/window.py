"""Messages of one queue between pull and commit: in order, counted, with the offset that may be committed."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from sortedcontainers import SortedDict

from understudy.mqclient.message import ReceivedMessage


@attrs.frozen
class WindowLimits:
    """When pulling of one queue pauses.

    Attributes:
        messages: pulled and not yet finished.
        size_bytes: bodies of those.
        span: distance of the lowest and highest unfinished offset (a stuck message must not pile up repeats).
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000


class Window:
    """Unfinished messages of one queue by offset (ProcessQueue.java without its locks)."""

    def __init__(self) -> None:
        self._unfinished: SortedDict[int, ReceivedMessage] = SortedDict()
        self._next_offset = -1  # one after the highest offset ever added
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def lowest(self) -> int:
        return self._unfinished.peekitem(0)[0] if self._unfinished else 0

    @property
    def highest(self) -> int:
        return self._unfinished.peekitem(-1)[0] if self._unfinished else 0

    def add(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Take pulled *messages* and return those that were not there yet."""
        fresh = []
        for message in messages:
            if message.queue_offset not in self._unfinished:
                self._unfinished[message.queue_offset] = message
                self.size_bytes += len(message.body)
                fresh.append(message)
        if fresh:
            self._next_offset = max(self._next_offset, fresh[-1].queue_offset + 1)
        return fresh

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return up to *count* messages from the front, for consumption in order; they stay unfinished.

        One that cannot be read is alone.
        """
        front = list(self._unfinished.values()[:count])
        damaged = next((number for number, message in enumerate(front) if message.damage), len(front))
        return front[:damaged] if damaged else front[:1]

    def finish(self, messages: Iterable[ReceivedMessage]) -> int:
        """Remove *messages* and return the offset up to which all is finished, -1 when nothing was ever added."""
        for message in messages:
            if self._unfinished.pop(message.queue_offset, None) is not None:
                self.size_bytes -= len(message.body)
        return self.committable

    @property
    def committable(self) -> int:
        return self._unfinished.peekitem(0)[0] if self._unfinished else self._next_offset

    def full(self, limits: WindowLimits, *, ordered: bool) -> str | None:
        """Return why pulling must pause, or ``None``. The span does not count for ordered consumption."""
        if len(self._unfinished) > limits.messages:
            return f"{len(self._unfinished)} unfinished messages"
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} unfinished bytes"
        if not ordered and self._unfinished and self.highest - self.lowest > limits.span:
            return f"offsets {self.lowest} to {self.highest} unfinished"
        return None
