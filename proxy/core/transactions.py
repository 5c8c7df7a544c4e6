"""From a client's decision about its half message to what a broker is told, and from a broker's question to a client's.

Source: EndTransactionActivity.java, GrpcProxyClientChannel.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_NONE, FLAG_TRANSACTION_ROLLBACK
from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.records import decode_records
from understudy.proxy.core.receiving import message_of
from understudy.proxy.core.transaction_ids import TransactionPlace
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.command import Command
from understudy.remoting.fields import required, required_int

_DECISIONS = {v2.COMMIT: FLAG_TRANSACTION_COMMIT, v2.ROLLBACK: FLAG_TRANSACTION_ROLLBACK}


def decision_fields(
    topic: str, place: TransactionPlace, resolution: v2.TransactionResolution, source: v2.TransactionSource
) -> Mapping[str, object] | None:
    """Return the header fields that tell a broker a decision; ``None`` when nothing is decided and it may ask again.

    Args:
        topic: of the message.
        place: where its half is.
        resolution: the decision.
        source: whether the broker has asked for it.
    """
    flag = _DECISIONS.get(resolution, FLAG_TRANSACTION_NONE)
    if flag == FLAG_TRANSACTION_NONE:
        return None
    return {
        "topic": topic,
        "producerGroup": topic,
        "tranStateTableOffset": place.queue_offset,
        "commitLogOffset": place.commit_log_offset,
        "commitOrRollback": flag,
        "fromTransactionCheck": source == v2.SOURCE_SERVER_CHECK,
        "msgId": place.message_id,
        "transactionId": place.message_id,
        "bname": place.broker_name,
    }


def question(command: Command, now_ms: int) -> tuple[str, v2.TelemetryCommand]:
    """Return the topic whose senders a broker asks (39), and what one of them is asked.

    Args:
        command: of the broker.
        now_ms: wall time.

    Raises:
        CommandError: a field is missing.
        RecordDamagedError: its body is no message.
    """
    broker_name = required(command, "bname")
    messages = decode_records(command.body, broker_name, keep_damaged=True, inflate=False)
    if len(messages) != 1 or messages[0].damage:
        raise RecordDamagedError("the body of a question about a transaction is no message")
    half: ReceivedMessage = messages[0]
    place = TransactionPlace(
        half.message_id,
        required_int(command, "tranStateTableOffset"),
        required_int(command, "commitLogOffset"),
        broker_name,
    )
    asked = v2.RecoverOrphanedTransactionCommand(
        message=message_of(v2.Resource(name=half.topic), half, now_ms), transaction_id=place.text
    )
    return half.topic, v2.TelemetryCommand(recover_orphaned_transaction_command=asked)
