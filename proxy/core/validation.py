"""Which names and texts a client may use; what is refused is told with the code of its kind.

Source: GrpcValidator.java, GrpcMessagingApplication.java, TopicValidator.java.
"""

from __future__ import annotations

import re

from understudy.format.names import group_name_error, is_system_group, is_system_topic, topic_name_error
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_RESERVED = """
    TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET
    MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY
    MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO
    EXTEND_UNIQ_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID __CRC32#
"""
_OF_THE_SYSTEM = """
    __transactionId__ TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS __SHARDINGKEY TRACE_CONTEXT
    _SYS_MSG_PRIORITY_ INNER_NUM INNER_BASE INNER_MULTI_DISPATCH
"""

RESERVED_PROPERTIES = frozenset(_RESERVED.split())
"""Names of properties that a user may not set (MessageConst.java)."""

SYSTEM_PROPERTIES = RESERVED_PROPERTIES | frozenset(_OF_THE_SYSTEM.split())
"""Names that are no user's in what consumers get. Differs: the reference shows those that are not reserved."""


def has_control_characters(text: str) -> bool:
    """Tell whether *text* holds one of Java's ISO control characters."""
    return _CONTROL.search(text) is not None


def topic_of(resource: v2.Resource) -> str:
    """Return the topic that *resource* names. Raises :class:`ProxyError` (40002)."""
    topic = resource.name
    wrong = topic_name_error(topic)
    if wrong is None and is_system_topic(topic):
        wrong = f"The topic[{topic}] is conflict with system topic."
    if wrong is not None:
        raise ProxyError(v2.ILLEGAL_TOPIC, wrong)
    return topic


def group_of(resource: v2.Resource) -> str:
    """Return the consumer group that *resource* names. Raises :class:`ProxyError` (40003)."""
    group = resource.name
    wrong = group_name_error(group)
    if wrong is None and is_system_group(group):
        wrong = f"The consumer group[{group}] is conflict with system consumer group."
    if wrong is not None:
        raise ProxyError(v2.ILLEGAL_CONSUMER_GROUP, wrong)
    return group


def check_tag(tag: str) -> None:
    """Refuse a tag that nobody could subscribe to. Raises :class:`ProxyError` (40004)."""
    if not tag.strip() or "|" in tag or has_control_characters(tag):
        raise ProxyError(
            v2.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:64]!r} is blank, or holds '|' or a control character; remove it"
        )


def check_key(key: str) -> None:
    """Refuse a key that cannot be looked for. Raises :class:`ProxyError` (40005)."""
    if not key.strip() or has_control_characters(key):
        raise ProxyError(v2.ILLEGAL_MESSAGE_KEY, f"the key {key[:64]!r} is blank or holds a control character")


def check_message_group(group: str, limit_bytes: int) -> None:
    """Refuse a message group that is blank or not below *limit_bytes*. Raises :class:`ProxyError` (40006)."""
    if not group.strip() or has_control_characters(group):
        raise ProxyError(v2.ILLEGAL_MESSAGE_GROUP, "the message group is blank or holds a control character")
    size = len(group.encode())
    if size >= limit_bytes:
        raise ProxyError(
            v2.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {limit_bytes}: it has {size} bytes"
        )
