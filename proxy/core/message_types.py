"""What kinds of messages a topic takes, and of which kind a message is.

Source: TopicMessageType.java, DefaultTopicMessageTypeValidator.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from understudy.mqclient.message import DELAY, PREPARED, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

ATTRIBUTE = "message.type"
SHARDING_KEY = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"


class TopicType(StrEnum):
    """The kinds, under their names in the attribute ``message.type`` of a topic."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    LITE = "LITE"
    PRIORITY = "PRIORITY"


_ON_WIRE: dict[TopicType, tuple[v2.MessageType, ...]] = {
    TopicType.UNSPECIFIED: (v2.MESSAGE_TYPE_UNSPECIFIED,),
    TopicType.NORMAL: (v2.NORMAL,),
    TopicType.FIFO: (v2.FIFO,),
    TopicType.DELAY: (v2.DELAY,),
    TopicType.TRANSACTION: (v2.TRANSACTION,),
    TopicType.MIXED: (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION),
    TopicType.LITE: (v2.LITE,),
    TopicType.PRIORITY: (v2.PRIORITY,),
}


def type_of_topic(attributes: Mapping[str, str]) -> TopicType:
    """Return the kind that a topic with these *attributes* takes."""
    try:
        return TopicType(attributes.get(ATTRIBUTE, TopicType.NORMAL).upper())
    except ValueError:
        return TopicType.UNSPECIFIED


def accepted_types(kind: TopicType) -> tuple[v2.MessageType, ...]:
    """Return what clients are told about a topic of *kind*."""
    return _ON_WIRE[kind]


def type_of_message(properties: Mapping[str, str]) -> TopicType:
    """Return the kind of a message by its *properties*."""
    if properties.get(PREPARED) == "true":
        return TopicType.TRANSACTION
    if any(name in properties for name in (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)):
        return TopicType.DELAY
    if SHARDING_KEY in properties:
        return TopicType.FIFO
    return TopicType.PRIORITY if PRIORITY in properties else TopicType.NORMAL


def check_type(expected: TopicType, properties: Mapping[str, str]) -> None:
    """Refuse a message whose kind its topic does not take. Raises :class:`ProxyError` (40014)."""
    actual = type_of_message(properties)
    if expected in (actual, TopicType.MIXED):
        return
    remark = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}"
    raise ProxyError(
        v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"org.apache.rocketmq.proxy.common.ProxyException: {remark}"
    )
