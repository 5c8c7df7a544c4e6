"""The fields of a request that makes a topic, as an administrator's tool sends them."""

from __future__ import annotations

from understudy.format.names import DEFAULT_TOPIC


def topic_fields(topic: str, queues: int = 2) -> dict[str, str]:
    """Return the fields of UPDATE_AND_CREATE_TOPIC for *topic* with *queues* queues to read and to write."""
    return {
        "topic": topic,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
