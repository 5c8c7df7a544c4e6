"""What an undo file says to send, so that a message comes again that nobody got for an operator's decision. Pure.

What a broker keeps until its time has marks of its own: sent again with them, it would be taken for a half message, or
wait anew. So they are left out, and it comes at once.
"""

from __future__ import annotations

import base64
from typing import Any

from understudy.mqclient.message import ReceivedMessage

_MARKS = frozenset(
    {
        # where it belongs, and since when and for what it waited
        "REAL_TOPIC",
        "REAL_QID",
        "DELAY",
        "TIMER_DELIVER_MS",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        # of a half message
        "TRAN_MSG",
        "PGROUP",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "ESCAPED_FROM",
    }
)


def to_send(message: ReceivedMessage, topic: str, queue_id: int) -> dict[str, Any]:
    """Return *message* as it is to be sent, but for its body, to *queue_id* of *topic*."""
    return {
        "topic": topic,
        "queueId": queue_id,
        "flag": message.flag,
        "properties": {name: text for name, text in message.properties.items() if name not in _MARKS},
    }


def base64_of(message: ReceivedMessage) -> str:
    """Return the body of *message* as the file has it."""
    return base64.b64encode(message.body).decode()
