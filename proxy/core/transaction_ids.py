"""The id of a transaction, which says where its half message is.

``messageId@queueOffset@commitLogOffset@brokerName``. Clients hand it back as it is, to whatever proxy. A plain message
id, as the reference's proxies give, names no place.
"""

from __future__ import annotations

import re

import attrs

from understudy.format.record import decode_offset_message_id
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

_FORM = re.compile(r"(.{1,512}?)@([0-9]{1,18})@([0-9]{1,18})@(.{1,255})", re.DOTALL)


@attrs.frozen
class TransactionPlace:
    """Where a half message is.

    Attributes:
        message_id: its unique id.
        queue_offset: its position in the queue of half messages.
        commit_log_offset: byte of the broker's log.
        broker_name: the group of brokers that has it.
    """

    message_id: str
    queue_offset: int
    commit_log_offset: int
    broker_name: str

    @property
    def text(self) -> str:
        """The id as clients know it."""
        return f"{self.message_id}@{self.queue_offset}@{self.commit_log_offset}@{self.broker_name}"

    @classmethod
    def of_send(cls, message_id: str, broker_name: str, queue_offset: int, offset_message_id: str) -> TransactionPlace:
        """Return the place that a broker's answer to a send names.

        Args:
            message_id: of the half message, as its client made it.
            broker_name: of the group of brokers that has it.
            queue_offset: of the half message.
            offset_message_id: from the answer; says where the record begins in the log.
        """
        _, _, commit_log_offset = decode_offset_message_id(offset_message_id)
        return cls(message_id, queue_offset, commit_log_offset, broker_name)


def read_transaction_id(text: str) -> TransactionPlace:
    """Read an id.

    Raises:
        ProxyError: it is blank (40008), or names no place (50001, as the reference answers when it has forgotten it).
    """
    if not text.strip():
        raise ProxyError(v2.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    found = _FORM.fullmatch(text)
    if found is None:
        raise ProxyError(v2.INTERNAL_SERVER_ERROR, "cannot found transaction data: this proxy gave no such id")
    message_id, queue_offset, commit_log_offset, broker_name = found.groups()
    return TransactionPlace(message_id, int(queue_offset), int(commit_log_offset), broker_name)
