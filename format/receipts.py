"""Receipt handles, and the texts by which a pop's answer says what its records are. Pure.

A client builds the handle of each record from the answer (``startOffsetInfo`` and ``msgOffsetInfo``), unless the record
carries one (``POP_CK``), and gives it back with an acknowledgement.

Source: ExtraInfoUtil.java.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from understudy.format import names

ORDER_QUEUE = 999
"""Stands for the queue of the revive topic in handles of messages that were popped in order."""
LONGEST_MS = 1 << 53
"""Beyond any time that a clock or a client can mean, and exact in every reader of JSON."""

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
RECEIPT = "POP_CK"
FIRST_POP = "1ST_POP_TIME"


class ReceiptError(ValueError):
    """A text that is no receipt handle; the message says why."""


@attrs.frozen
class Receipt:
    """A receipt handle.

    Attributes:
        start_offset: queue offset where the pop began to read.
        pop_ms: wall time of the pop.
        invisible_ms: how long nobody else gets the message.
        revive_queue: queue of the revive topic that has the check point; :data:`ORDER_QUEUE` when there is none.
        retry: which kind of topic it was popped from, see :func:`retry_mark`.
        broker_name: the group of brokers that handed it out.
        queue_id, offset: the message.
    """

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """The handle as clients know it."""
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue} {self.retry} "
            f"{self.broker_name} {self.queue_id} {self.offset}"
        )

    @property
    def revive_ms(self) -> int:
        """When the message may be given to somebody else, in wall time."""
        return self.pop_ms + self.invisible_ms


def read_receipt(text: str) -> Receipt:
    """Read a receipt handle.

    Raises:
        ReceiptError: fewer than eight parts, or a part that is no number of its kind.
    """
    parts = text.split(" ")
    if len(parts) < 8:
        raise ReceiptError(f"the receipt handle has {len(parts)} parts, not 8: send the one that came with the message")
    retry, broker_name = parts[4], parts[5]
    if retry not in (NORMAL, RETRY_V1, RETRY_V2) or not broker_name:
        raise ReceiptError("the receipt handle names no broker or an unknown kind of topic")
    numbers = [_number(part) for part in (*parts[:4], *parts[6:8])]
    start, pop_ms, invisible_ms, revive_queue, queue_id, offset = numbers
    return Receipt(start, pop_ms, invisible_ms, revive_queue, retry, broker_name, queue_id, offset)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16) or int(text) > LONGEST_MS:
        raise ReceiptError(f"the receipt handle holds {text[:32]!r} where a number must be")
    return int(text)


def retry_mark(topic: str) -> str:
    """Return which kind of topic *topic* is: 0 a normal one, 1 or 2 a retry topic in the first or second form."""
    if not topic.startswith(names.RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def topic_of(mark: str, group: str, topic: str) -> str:
    """Return the topic a message was popped from: *topic* itself, or the retry topic that *mark* says."""
    if mark == NORMAL:
        return topic
    return names.pop_retry_topic(group, topic, second_form=mark == RETRY_V2)


def start_info(mark: str, queue_id: int, start_offset: int) -> str:
    """Return one entry of ``startOffsetInfo``."""
    return f"{mark} {queue_id} {start_offset}"


def offsets_info(mark: str, queue_id: int, offsets: Sequence[int]) -> str:
    """Return one entry of ``msgOffsetInfo``."""
    return f"{mark} {queue_id} {','.join(map(str, offsets))}"


def starts_of(text: str) -> dict[tuple[str, int], int]:
    """Read ``startOffsetInfo``.

    Returns:
        Start offsets by mark and queue id.

    Raises:
        ValueError: an entry is none.
    """
    found: dict[tuple[str, int], int] = {}
    for each in filter(None, text.split(";")):
        mark, queue_id, start = each.split(" ")
        found[mark, int(queue_id)] = int(start)
    return found


def count_info(mark: str, queue_id: int, counts: dict[int, int], least: int) -> list[str]:
    """Return the entries of ``orderCountInfo`` for one queue.

    Args:
        mark, queue_id: the queue.
        counts: by queue offset, how often a message was consumed before.
        least: how often each message of the answer was consumed at least.
    """
    return [
        *(f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts.items()),
        f"{mark} {queue_id} {least}",
    ]
