"""Names of queues, topics and groups."""

from __future__ import annotations

import re
from typing import NamedTuple

from understudy.format.names import (
    DEAD_LETTER_PREFIX,
    GROUP_LENGTH_LIMIT,
    RETRY_PREFIX,
    RETRY_TOPIC_LENGTH_LIMIT,
    TOPIC_LENGTH_LIMIT,
)
from understudy.mqclient.errors import InvalidMessageError

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker group. Sorts as the reference's MessageQueue.java does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def check_topic(topic: str) -> None:
    """Raise :class:`InvalidMessageError` unless *topic* is a legal name (TopicValidator.java)."""
    limit = RETRY_TOPIC_LENGTH_LIMIT if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) else TOPIC_LENGTH_LIMIT
    _check("topic", topic, limit)


def check_group(group: str) -> None:
    """Raise :class:`InvalidMessageError` unless *group* is a legal name of a producer or consumer group."""
    _check("group", group, GROUP_LENGTH_LIMIT)


def _check(kind: str, name: str, limit: int) -> None:
    if not name:
        raise InvalidMessageError(f"the {kind} has no name")
    if len(name) > limit:
        raise InvalidMessageError(f"the {kind} name has {len(name)} characters, {limit} are allowed: {name[:40]}...")
    if not _NAME.match(name):
        raise InvalidMessageError(f"the {kind} name {name!r} is illegal; allowed are letters, digits, % | _ -")
