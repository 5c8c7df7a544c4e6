"""Messages of one queue between pull and commit: in order, counted, with the offset that may be committed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from operator import lt

import attrs

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
        self._unfinished: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        """Their offsets, each once and ascending; those of finished messages stay until they are at an end of it."""
        self._next_offset = -1  # one after the highest offset ever added
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def lowest(self) -> int:
        return self._order[0] if self._unfinished else 0

    @property
    def highest(self) -> int:
        while self._order and self._order[-1] not in self._unfinished:
            self._order.pop()
        return self._order[-1] if self._order else 0

    def add(self, pulled: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Take what was *pulled* and return the messages that were not there yet."""
        messages = list(pulled)
        offsets = [message.queue_offset for message in messages]
        if offsets and offsets[0] >= self._next_offset and all(map(lt, offsets, offsets[1:])):  # nearly always
            self._unfinished.update(zip(offsets, messages, strict=True))
            self._order += offsets
            self._next_offset = offsets[-1] + 1
            self.size_bytes += sum([len(message.body) for message in messages])
            return messages
        return self._add_each(messages)

    def _add_each(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        fresh = []
        unfinished, order, following = self._unfinished, self._order, self._next_offset
        in_order = True
        for message in messages:
            offset = message.queue_offset
            if offset not in unfinished:
                unfinished[offset] = message
                self.size_bytes += len(message.body)
                fresh.append(message)
                order.append(offset)
                if offset >= following:
                    following = offset + 1
                else:
                    in_order = False
        self._next_offset = following
        if not in_order:  # a broker that answers with what it has answered before
            self._order = deque(sorted(unfinished))
        return fresh

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return up to *count* messages from the front, for consumption in order; they stay unfinished.

        One that cannot be read is alone.
        """
        unfinished = self._unfinished
        front = list(itertools.islice((unfinished[offset] for offset in self._order if offset in unfinished), count))
        damaged = next((number for number, message in enumerate(front) if message.damage), len(front))
        return front[:damaged] if damaged else front[:1]

    def finish(self, messages: Iterable[ReceivedMessage]) -> int:
        """Remove *messages* and return the offset up to which all is finished, -1 when nothing was ever added."""
        unfinished, order = self._unfinished, self._order
        for message in messages:
            if unfinished.pop(message.queue_offset, None) is not None:
                self.size_bytes -= len(message.body)
        while order and order[0] not in unfinished:
            order.popleft()
        return self.committable

    @property
    def committable(self) -> int:
        return self._order[0] if self._order else self._next_offset

    def full(self, limits: WindowLimits, *, ordered: bool) -> str | None:
        """Return why pulling must pause, or ``None``. The span does not count for ordered consumption."""
        if len(self._unfinished) > limits.messages:
            return f"{len(self._unfinished)} unfinished messages"
        if self.size_bytes > limits.size_bytes:
            return f"{self.size_bytes} unfinished bytes"
        if not ordered and self._unfinished and self.highest - self.lowest > limits.span:
            return f"offsets {self.lowest} to {self.highest} unfinished"
        return None
