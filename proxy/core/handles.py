"""Receipt handles of the proxy: those of brokers and the position in the log, in one form in both modes.

``startOffset popTime invisibleTime reviveQueue topicKind brokerName queue offset commitLogOffset``. Differs: in local
mode the reference makes another form of a changed handle, which has position 0 and acknowledges nothing.

Source: ReceiptHandle.java.
"""

from __future__ import annotations

import attrs

from understudy.format.receipts import LONGEST_MS, Receipt, ReceiptError, read_receipt, topic_of
from understudy.format.record import RecordError, decode_record
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

_LONGEST = 1024


@attrs.frozen
class Handle:
    """A receipt handle.

    Attributes:
        receipt: what the broker needs.
        commit_log_offset: byte of the broker's log; ``None`` in handles that do not say.
    """

    receipt: Receipt
    commit_log_offset: int | None

    @property
    def text(self) -> str:
        """The handle as clients know it."""
        if self.commit_log_offset is None:
            return self.receipt.text
        return f"{self.receipt.text} {self.commit_log_offset}"

    @property
    def broker_name(self) -> str:
        return self.receipt.broker_name

    @property
    def expires_ms(self) -> int:
        """Wall time at which somebody else may get the message."""
        return self.receipt.revive_ms

    def fields(self, group: str, topic: str) -> dict[str, object]:
        """Return the header fields by which a broker knows the message that *group* got of *topic*."""
        receipt = self.receipt
        return {
            "consumerGroup": group,
            "topic": topic_of(receipt.retry, group, topic),
            "queueId": receipt.queue_id,
            "offset": receipt.offset,
            "extraInfo": receipt.text,
        }

    def is_of(self, record: bytes, group: str, topic: str) -> bool:
        """Tell whether *record*, as a broker stores it, is the message that *group* got of *topic*."""
        try:
            found = decode_record(record, check_crc=False)
        except RecordError:
            return False
        receipt = self.receipt
        place = topic_of(receipt.retry, group, topic), receipt.queue_id, receipt.offset
        return place == (found.topic, found.queue_id, found.queue_offset)

    def changed(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> Handle:
        """Return the handle that counts after its time was changed."""
        return Handle(
            attrs.evolve(
                self.receipt,
                start_offset=self.receipt.offset,
                pop_ms=pop_ms,
                invisible_ms=invisible_ms,
                revive_queue=revive_queue,
            ),
            self.commit_log_offset,
        )


def read_handle(text: str) -> Handle:
    """Read a handle.

    Raises:
        ProxyError: it is none (40013; differs: the reference answers 50001).
    """
    try:
        if len(text) > _LONGEST:
            raise ReceiptError(f"the receipt handle has more than {_LONGEST} characters")
        receipt = read_receipt(text)
    except ReceiptError as error:
        raise ProxyError(v2.INVALID_RECEIPT_HANDLE, str(error)) from None
    parts = text.split(" ")
    offset = None
    if len(parts) > 8:
        last = parts[8]
        if not (last.isascii() and last.isdecimal() and len(last) <= 18):
            raise ProxyError(
                v2.INVALID_RECEIPT_HANDLE, "the receipt handle holds no position in the log where one must be"
            )
        offset = int(last)
    return Handle(receipt, offset)


def check_not_expired(handle: Handle, now_ms: int) -> None:
    """Refuse a handle whose message may belong to somebody else. Raises :class:`ProxyError` (40013)."""
    if handle.expires_ms < now_ms or handle.expires_ms > LONGEST_MS:
        raise ProxyError(v2.INVALID_RECEIPT_HANDLE, "receipt handle is expired: the message may be consumed again")
