"""Whether a producer's decision about a half message counts. Pure.

Source: EndTransactionProcessor.java (rejectCommitOrRollback, checkPrepareMessage).
"""

from __future__ import annotations

from enum import IntEnum

import attrs

from understudy.broker.transactions.half import IMMUNITY_SECONDS, Half
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_ROLLBACK
from understudy.remoting.codes import ResponseCode


class Choice(IntEnum):
    """What a producer decides, in the bits of system flags."""

    COMMIT = FLAG_TRANSACTION_COMMIT
    ROLLBACK = FLAG_TRANSACTION_ROLLBACK


@attrs.frozen
class Decision:
    """A producer's decision as it comes in.

    Attributes:
        choice: commit or rollback.
        group: the producer group that it says it belongs to.
        offset: queue offset of the half message, as the answer to the send or a check told.
        physical_offset: where the record begins in the log.
        checked: it answers a check.
    """

    choice: Choice
    group: str
    offset: int
    physical_offset: int
    checked: bool


@attrs.frozen
class Refusal:
    """The decision does not count; *code* and *remark* are the answer."""

    code: ResponseCode
    remark: str


NOT_FOUND = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "Find prepared transaction message failed: no half message begins there in the log of this broker; decide at the "
    "broker that took it, with the offsets of its answer to the send or of the last check",
)
OUTCOME_UNKNOWN = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "it was decided before, or given up, and without an index (messageIndexEnable=false) or a unique key this broker "
    "cannot tell which: look whether the message is in its topic, and send it again if it is not",
)


def refusal(decision: Decision, half: Half | None, timeout_ms: int, now_ms: int) -> Refusal | None:
    """Return why *decision* does not count; ``None`` when it does.

    Args:
        decision: what came in.
        half: the half message at its physical offset, ``None`` when there is none.
        timeout_ms: ``transactionTimeOut``.
        now_ms: wall time.
    """
    if half is None:
        return NOT_FOUND
    if not decision.checked and half.pairs.get(IMMUNITY_SECONDS):
        late_ms = now_ms - half.record.born_ms - half.immunity_ms(timeout_ms)
        if late_ms > 0:
            return Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the decision came {late_ms} ms after {IMMUNITY_SECONDS} had passed; wait for the check and answer "
                "that",
            )
    if half.group is None or half.group != decision.group:
        remark = "The producer group wrong: only the group that sent the half message decides; send that one's name"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    if half.offset != decision.offset:
        remark = (
            "The transaction state table offset wrong: send the queue offset that came with commitLogOffset, in the "
            "answer to the send or in the check"
        )
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return None
