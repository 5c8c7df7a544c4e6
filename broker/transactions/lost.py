"""Half messages that were missing in the log of their broker, and are back: what became of them, and who looks at them.

A half queue is worked off in its order, and passes what is missing. One that comes back into a place that was passed is
looked at by nobody, unless it is put again (:mod:`~understudy.container.put_again`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import attrs

from understudy.broker.transactions.half import Half
from understudy.broker.transactions.log import HalfLog
from understudy.broker.transactions.ops import decided_of
from understudy.format import names
from understudy.store.message_store import MessageStore

Named = Mapping[int, list[int]]
"""Queue offsets of half messages to where the op messages lie in the log (bytes) that name them."""


@attrs.frozen
class LostHalves:
    """The half queues of one broker, as seen from what was missing in them.

    Attributes:
        store: the messages.
        halves: the half messages, as they are at work.
    """

    store: MessageStore
    halves: HalfLog

    def reached(self, number: int) -> int:
        """Return up to which queue offset the half queue *number* was read by those who check."""
        queue = self.halves.queues.get(number)
        return max(self._done(number), 0 if queue is None else queue.reached)

    def comes(self, number: int, offset: int) -> bool:
        """Return whether the half message at *offset* is looked at in its turn, or is decided though it is not passed.

        Args:
            number: of the half queue.
            offset: queue offset of a half message that was missing.
        """
        queue = self.halves.queues.get(number)
        if queue is not None and offset < queue.reached and not queue.ledger.is_decided(offset):
            return False  # the round that is under way found nothing there
        return offset >= self._done(number)

    def _done(self, number: int) -> int:
        queue = self.halves.queues.get(number)
        return max(self.halves.reader.noted(number), 0 if queue is None else queue.ledger.done)

    def was_put(self, half: Half, offset: int, *, in_place: bool) -> None:
        """Take note that *half* was put again at queue *offset*: a decision about it counts for that copy.

        Args:
            half: what came back.
            offset: of its copy.
            in_place: *half* stands at its own queue offset, not another one.
        """
        queue = self.halves.queues.get(half.record.queue_id)
        if queue is None:
            return  # learnt later, with the copy
        if in_place and half.offset >= queue.ledger.done:
            queue.ledger.renew(half, offset)
        else:
            queue.ledger.copied(half, offset)
        self.halves.counts.add(half.topic)

    def named_in_steps(self, number: int, since: int) -> Generator[None, None, Named]:
        """Return which half messages the op messages behind byte *since* of the log name.

        Args:
            number: of the half queue.
            since: where the first half message that is asked about lies.
        """
        topic, read = names.HALF_OPERATION_TOPIC, self.halves.reader.read
        low, high = self.store.min_queue_offset(topic, number), self.store.max_queue_offset(topic, number)
        while low < high:  # op messages stand in their queue as they do in the log
            middle = (low + high) // 2
            records, _ = read(topic, number, middle, 1)
            if records and records[0].physical_offset < since:
                low = records[0].queue_offset + 1
            else:
                high = middle
            yield
        found: dict[int, list[int]] = {}
        at = low
        while True:
            records, following = read(topic, number, at)
            if not records and following <= at:
                return found
            for record in records:
                for offset in decided_of(record):
                    found.setdefault(offset, []).append(record.physical_offset)
            at = following
            yield

    def is_named(self, named: Named, half: Half, *, in_place: bool) -> bool:
        """Return whether an op message says that *half* is decided.

        It lies behind it in the log, and before another one that has got its queue offset.

        Args:
            named: what op messages name.
            half: what came back.
            in_place: it stands at its own queue offset.
        """
        begin, end = half.record.physical_offset, float("inf")
        if not in_place:
            others, _ = self.halves.reader.read(names.HALF_TOPIC, half.record.queue_id, half.offset, 1)
            end = others[0].physical_offset if others and others[0].queue_offset == half.offset else begin
        return any(begin < each < end for each in named.get(half.offset, ()))
