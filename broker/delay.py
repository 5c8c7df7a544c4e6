"""Delay levels: where a delayed message is kept until it is due, and when that is.

Pure. Source: ScheduleMessageService.java, HookUtils.java.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from understudy.format.names import SCHEDULE_TOPIC
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_MASK

DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
TIMER_DELIVER = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SECONDS = "TIMER_DELAY_SEC"
TIMER_OUT = "TIMER_OUT_MS"
TIMER_DELETE = "TIMER_DEL_UNIQKEY"
TIMER_REQUESTS = (TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER)


def level_of(properties: dict[str, str]) -> int:
    """Return the delay level a message asks for; 0 when none or unreadable."""
    text = properties.get(DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        return 0


def queue_of_level(level: int) -> int:
    """Return the queue of the schedule topic that holds messages of *level*."""
    return level - 1


def delay_of_level(levels_ms: Sequence[int], level: int) -> int:
    """Return the wait of *level* in milliseconds; 1000 for one that is not configured."""
    return levels_ms[level - 1] if 1 <= level <= len(levels_ms) else 1000


class LevelClock:
    """How long messages of one level still wait, also after the wall clock was set back.

    What was stored before that waits for its delay once more at most, by a clock that never jumps (differs because the
    reference delivers all of it at once, however early that is).
    """

    def __init__(self) -> None:
        self._end = -1
        self._until = 0.0

    def left_ms(
        self, offset: int, deliver_ms: int, delay_ms: int, now_ms: int, now_seconds: float, end: Callable[[], int]
    ) -> int:
        """Return how long a message must wait; not above 0 when it is due.

        Args:
            offset: of the message in the queue of its level.
            deliver_ms: wall time when it is due.
            delay_ms: of the level.
            now_ms, now_seconds: wall time, and monotonic time.
            end: returns the offset that the next message of the queue will have.
        """
        left_ms = deliver_ms - now_ms
        if offset >= self._end and left_ms > delay_ms:  # the clock was set back after it was stored
            self._end, self._until = end(), now_seconds + delay_ms / 1000
        if offset < self._end:
            # whole milliseconds: less than one vanishes beside a wall time, and nothing would wait for it
            left_ms = min(left_ms, math.ceil((self._until - now_seconds) * 1000))
        return left_ms


def redirect(topic: str, queue_id: int, properties: dict[str, str], sys_flag: int, max_level: int) -> tuple[str, int]:
    """Send a message with a delay level to the schedule topic.

    Args:
        topic: where it shall be in the end.
        queue_id: its queue there.
        properties: its properties; the level is clamped and the real place noted in them.
        sys_flag: system flags; a half message is never delayed.
        max_level: the highest configured level.

    Returns:
        Topic and queue to store it in now.
    """
    kind = sys_flag & FLAG_TRANSACTION_MASK
    if kind not in (0, FLAG_TRANSACTION_COMMIT):
        return topic, queue_id
    level = level_of(properties)
    if level <= 0 or max_level <= 0:
        return topic, queue_id
    for name in TIMER_REQUESTS:
        properties.pop(name, None)
    level = min(level, max_level)
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = topic
    properties[REAL_QUEUE] = str(queue_id)
    return SCHEDULE_TOPIC, queue_of_level(level)
