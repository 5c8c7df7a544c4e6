"""The header of a pull that asks for a queue's first messages and does not wait for more."""

from __future__ import annotations


def first_pull(topic: str, queue_id: int = 0, group: str = "readers") -> dict[str, str]:
    """Return the header fields of PULL_MESSAGE (11): at most 32 messages of any tag from offset 0, answered at once."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",  # the subscription is in the header; nothing is committed, nobody waits
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
