"""Which topic and group names exist by themselves, which are legal, and what permission bits say.

Source: TopicValidator.java, Validators.java, MixAll.java, PermName.java, TopicSysFlag.java.
"""

from __future__ import annotations

import re

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LIGHT_PREFIX = "%LMQ%"
"""Of light message queues, which have no rows in a topic table."""
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OPERATION_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_HALF_OPERATION_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_TIMES_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_MEMBER_TOPIC_PREFIX = SYSTEM_TOPIC_PREFIX + "SYNC_BROKER_MEMBER_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its consumer offsets say how far each queue of the revive topic is worked off."""

SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        HALF_OPERATION_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_HALF_OPERATION_TOPIC,
        CHECK_TIMES_TOPIC,
        CHECKPOINT_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TRACE_TOPIC,
    }
)
"""Topics of the reference's own; topics that start with ``rmq_sys_`` belong to them too."""

CLOSED_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, HALF_OPERATION_TOPIC, CHECK_TIMES_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""Topics a client may not send to."""

BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

TOPIC_LENGTH_LIMIT = 127
RETRY_TOPIC_LENGTH_LIMIT = 255
GROUP_LENGTH_LIMIT = 120

PERM_INHERIT, PERM_WRITE, PERM_READ, PERM_PRIORITY = 1, 2, 4, 8
SYSFLAG_UNIT, SYSFLAG_UNIT_SUBSCRIPTION = 1, 2

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_PATTERN_TEXT = "^[%|a-zA-Z0-9_-]+$"


def topic_name_error(topic: str | None) -> str | None:
    """Return why *topic* is no legal topic name, in the reference's words, or ``None`` when it is."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only {_PATTERN_TEXT}"
    internal = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    limit = RETRY_TOPIC_LENGTH_LIMIT if internal else TOPIC_LENGTH_LIMIT
    if len(topic) > limit:
        return f"The specified topic: {topic}, is longer than topic max length: {limit}"
    return None


def group_name_error(group: str | None) -> str | None:
    """Return why *group* is no legal group name, in the reference's words, or ``None`` when it is."""
    if group is None or not group.strip():
        return "The specified group is blank."
    if not _LEGAL.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, allowing only {_PATTERN_TEXT}"
    if len(group) > GROUP_LENGTH_LIMIT:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_LIMIT}"
    return None


def is_system_topic(topic: str) -> bool:
    """Tell whether *topic* belongs to the system itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Tell whether *group* is one of the system's own consumer groups."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic that holds messages *group* wants again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic that holds messages *group* has given up."""
    return DEAD_LETTER_PREFIX + group


def group_of_retry_topic(topic: str) -> str:
    """Return the group of a retry topic; of a pop retry topic in the second form, the part before ``+``."""
    return topic[len(RETRY_PREFIX) :].partition("+")[0]


def pop_retry_topic(group: str, topic: str, *, second_form: bool = False) -> str:
    """Return the topic that holds messages of *topic* that *group* popped and did not acknowledge.

    Args:
        group, topic: who popped, and what.
        second_form: join them by ``+``, which no other name holds; the first form joins them by ``_``.
    """
    return f"{RETRY_PREFIX}{group}{'+' if second_form else '_'}{topic}"


def popped_topic(topic: str, group: str) -> str:
    """Return the topic that *group* asked for, given the one a message was popped from, which may be a retry topic."""
    for joint in "+_":
        prefix = RETRY_PREFIX + group + joint
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :]
    return topic


def permission_text(perm: int) -> str:
    """Return *perm* as the reference prints it, for example ``RW-``."""
    return (
        ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & PERM_INHERIT else "-")
    )
