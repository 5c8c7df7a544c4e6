"""Names of queues, topics and groups."""

from __future__ import annotations

import re
from typing import NamedTuple

from understudy.mqclient.errors import InvalidMessageError

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
AUTO_CREATE_TOPIC = "TBW102"

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_TOPIC_LIMIT = 127
_RETRY_TOPIC_LIMIT = 255
_GROUP_LIMIT = 120


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker group. Sorts as the reference's MessageQueue.java does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def retry_topic(group: str) -> str:
    """Return the topic to which failed messages of *group* go."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic to which messages of *group* go that failed too often."""
    return DLQ_PREFIX + group


def check_topic(topic: str) -> None:
    """Raise :class:`InvalidMessageError` unless *topic* is a legal name (TopicValidator.java)."""
    limit = _RETRY_TOPIC_LIMIT if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else _TOPIC_LIMIT
    _check("topic", topic, limit)


def check_group(group: str) -> None:
    """Raise :class:`InvalidMessageError` unless *group* is a legal name of a producer or consumer group."""
    _check("group", group, _GROUP_LIMIT)


def _check(kind: str, name: str, limit: int) -> None:
    if not name:
        raise InvalidMessageError(f"the {kind} has no name")
    if len(name) > limit:
        raise InvalidMessageError(f"the {kind} name has {len(name)} characters, {limit} are allowed: {name[:40]}...")
    if not _NAME.match(name):
        raise InvalidMessageError(f"the {kind} name {name!r} is illegal; allowed are letters, digits, % | _ -")
