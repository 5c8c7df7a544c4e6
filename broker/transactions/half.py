"""A half message: how it is kept until its producer decides, and every copy that is made of it. Pure.

A half message stands in the half topic with its real place in its properties. It is never changed: a check stores it
anew, with one more check counted, and what was there before is done. All copies of one half message have the same
unique key and the same birth, which is its identity.

Source: TransactionalMessageBridge.java, TransactionalMessageUtil.java, EndTransactionProcessor.java,
AbstractTransactionalMessageCheckListener.java.
"""

from __future__ import annotations

import attrs

from understudy.broker import delay
from understudy.broker.inner import PUT_AGAIN_FROM, InnerMessage, copy_of
from understudy.format import names
from understudy.format.properties import format_properties
from understudy.format.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    Record,
    offset_message_id,
)
from understudy.store.status import Appended

PREPARED = "TRAN_MSG"
GROUP = "PGROUP"
UNIQUE = "UNIQ_KEY"
TRANSACTION_ID = "__transactionId__"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
"""In a copy that was made because its time for a check had not come: the queue offset of the first one."""
OF_COPIES = (CHECK_TIMES, FIRST_OFFSET, PUT_AGAIN_FROM)
"""Copies of a half message have one of these."""
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
WAIT = "WAIT"
ESCAPED_FROM = "ESCAPED_FROM"
"""Of ours, in a half message that a slave took to the master of another group: group, queue and queue offset there."""

Identity = tuple[str, int]
"""Unique key and birth (wall time in milliseconds): the same in all copies of one half message, and in no other."""


def is_half(pairs: dict[str, str], reconsume_times: int, level: int) -> bool:
    """Return whether a send with the properties *pairs* is a half message.

    Args:
        pairs: its properties.
        reconsume_times, level: of the send; a delayed retry of a message that was transactional once is none.
    """
    return pairs.get(PREPARED, "").lower() == "true" and not (reconsume_times > 0 and level > 0)


def to_half(topic: str, queue_id: int, pairs: dict[str, str], sys_flag: int) -> tuple[str, int, int]:
    """Turn a message into a half message.

    Args:
        topic, queue_id: where it shall be once it is committed; noted in *pairs*.
        pairs: its properties.
        sys_flag: its system flags.

    Returns:
        Topic and queue to store it in now, and its system flags there.
    """
    if pairs.get(UNIQUE):
        pairs[TRANSACTION_ID] = pairs[UNIQUE]
    pairs[delay.REAL_TOPIC] = topic
    pairs[delay.REAL_QUEUE] = str(queue_id)
    return names.HALF_TOPIC, 0, sys_flag & ~FLAG_TRANSACTION_MASK


@attrs.frozen
class Half:
    """A half message as it stands in the half topic, or in the topic of those that were given up.

    Attributes:
        record: the record.
        pairs: its properties.
        topic, queue_id: where it shall be once it is committed.
    """

    record: Record
    pairs: dict[str, str]
    topic: str
    queue_id: int

    @classmethod
    def of(cls, record: Record) -> Half | None:
        """Return *record* as a half message; ``None`` when it is none."""
        return cls.with_pairs(record, record.properties)

    @classmethod
    def with_pairs(cls, record: Record, pairs: dict[str, str]) -> Half | None:
        """Return *record*, whose properties are *pairs*, as a half message; ``None`` when it is none."""
        if record.topic not in (names.HALF_TOPIC, names.CHECK_TIMES_TOPIC):
            return None
        topic, queue_text = pairs.get(delay.REAL_TOPIC, ""), pairs.get(delay.REAL_QUEUE, "")
        if names.topic_name_error(topic) is not None or topic in names.CLOSED_TOPICS:
            return None
        if not (queue_text.isascii() and queue_text.isdecimal() and len(queue_text) < 10):
            return None
        return cls(record, pairs, topic, int(queue_text))

    @property
    def offset(self) -> int:
        """Its queue offset."""
        return self.record.queue_offset

    @property
    def group(self) -> str | None:
        """The producer group, whose members decide; ``None`` when it was stored without one."""
        return self.pairs.get(GROUP)

    @property
    def identity(self) -> Identity | None:
        """What it has in common with all its copies; ``None`` when it was stored without a unique key."""
        unique = self.pairs.get(UNIQUE)
        return (unique, self.record.born_ms) if unique else None

    @property
    def was_renewed(self) -> bool:
        """Whether it is a copy of one that stood before it in the half topic."""
        return any(name in self.pairs for name in OF_COPIES)

    @property
    def checks(self) -> int:
        """How many checks were counted so far; one that cannot be read counts as none."""
        text = self.pairs.get(CHECK_TIMES, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0

    def immunity_ms(self, timeout_ms: int) -> int:
        """Return how long after its birth it is not checked; see :func:`immunity_ms`."""
        return immunity_ms(self.pairs.get(IMMUNITY_SECONDS), timeout_ms)

    # --- copies ------------------------------------------------------------------------------------------------

    def committed(self, prepared_offset: int, levels: int) -> InnerMessage:
        """Return the message that consumers get.

        Args:
            prepared_offset: byte of the log where the half message begins that was committed.
            levels: how many delay levels there are; a committed message may be delayed.
        """
        record, pairs = self.record, self.pairs.copy()
        pairs.pop(delay.REAL_TOPIC, None)
        pairs.pop(delay.REAL_QUEUE, None)
        sys_flag = record.sys_flag & ~FLAG_TRANSACTION_MASK | FLAG_TRANSACTION_COMMIT
        topic, queue_id = delay.redirect(self.topic, self.queue_id, pairs, sys_flag, levels)
        return InnerMessage(
            topic,
            queue_id,
            record.body,
            format_properties(pairs).encode(),
            record.born_ms,
            record.born_host,
            record.flag,
            sys_flag,
            record.reconsume_times,
            prepared_offset,
        )

    def checked(self, times: int) -> Half:
        """Return it with *times* checks counted."""
        return self._with({**self.pairs, CHECK_TIMES: str(times)})

    def renewed(self) -> InnerMessage:
        """Return the copy that takes its place in the half topic."""
        return self._copy(self.record.topic, self.record.queue_id)

    def postponed(self) -> InnerMessage:
        """Return the copy that takes its place while it is immune; it tells where the first one stood."""
        return self._with({FIRST_OFFSET: str(self.offset), **self.pairs}).renewed()

    def escaped(self, group: str) -> InnerMessage:
        """Return it as the master of another group shall take it: a half message that comes in.

        Args:
            group: the broker name of the group in whose log it stands.
        """
        left = (delay.REAL_TOPIC, delay.REAL_QUEUE, FIRST_OFFSET)
        pairs = {name: text for name, text in self.pairs.items() if name not in left}
        pairs |= {PREPARED: "true", ESCAPED_FROM: self.origin(group)}
        message = copy_of(self.record, self.topic, self.queue_id, b"", self.record.reconsume_times)
        sys_flag = self.record.sys_flag & ~FLAG_TRANSACTION_MASK | FLAG_TRANSACTION_PREPARED
        return attrs.evolve(message, sys_flag=sys_flag, properties=format_properties(pairs).encode())

    def origin(self, group: str) -> str:
        """Return what names this copy among all half messages of all groups."""
        return f"{group}:{self.record.queue_id}:{self.offset}"

    def given_up(self) -> InnerMessage:
        """Return the copy that is kept when nobody decides."""
        return self._copy(names.CHECK_TIMES_TOPIC, 0)

    def resumed(self) -> InnerMessage:
        """Return the copy that is checked once more, of one that was given up."""
        return self._with({**self.pairs, CHECK_TIMES: "0"})._copy(names.HALF_TOPIC, 0)

    def _with(self, pairs: dict[str, str]) -> Half:
        return attrs.evolve(self, pairs=pairs)

    def _copy(self, topic: str, queue_id: int) -> InnerMessage:
        properties = format_properties(self.pairs).encode()
        return copy_of(self.record, topic, queue_id, properties, self.record.reconsume_times)

    def check(self, renewed: Appended, store_host: bytes, broker_name: str) -> tuple[dict[str, str], bytes]:
        """Return header and body of the question to its producer (39).

        Args:
            renewed: where the copy is that the producer shall decide about.
            store_host: address and port of this broker, as records hold them.
            broker_name: of this broker.
        """
        unique, record = self.pairs.get(UNIQUE, ""), self.record
        header = {
            "topic": record.topic,
            "commitLogOffset": str(renewed.physical_offset),
            "tranStateTableOffset": str(renewed.queue_offset),
            "offsetMsgId": offset_message_id(store_host, renewed.physical_offset),
            "msgId": unique,
            "transactionId": unique,
            "bname": broker_name,
        }
        copy = attrs.evolve(
            record,
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=renewed.queue_offset,
            physical_offset=renewed.physical_offset,
        )
        return header, copy.encoded_with(format_properties({**self.pairs, WAIT: "false"}).encode())


def immunity_ms(seconds: str | None, timeout_ms: int) -> int:
    """Return how long after its birth a half message is not checked, in milliseconds.

    Args:
        seconds: what its producer asks for; ``None`` or anything that is no number asks for nothing.
        timeout_ms: ``transactionTimeOut``, the shortest time there is.
    """
    if not seconds:
        return timeout_ms
    try:
        wanted_ms = int(seconds) * 1000
    except ValueError:
        wanted_ms = 0
    return max(wanted_ms, timeout_ms)
