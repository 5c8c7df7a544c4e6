"""What a message asks of the timer, and where that sends it. Pure.

A message asks by one of three properties. It is then kept in the timer topic with the second in whose slot it waits
(TIMER_OUT_MS): the asked time, rounded down so that the slot's end is the first moment at or after it. Delivery is when
the second is over, so it is never early and late by less than one precision.

Source: HookUtils.java (transformTimerMessage), TimerMessageStore.java (isReject), SendMessageProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import attrs

from understudy.broker import delay
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.format.names import TIMER_TOPIC
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_MASK
from understudy.store.status import PutStatus

TIMER_QUEUE = 0
_LONGEST_NUMBER = 19
_REQUESTS = frozenset(delay.TIMER_REQUESTS)
_UNIT_MS = {delay.TIMER_DELAY_SECONDS: 1000, delay.TIMER_DELAY_MS: 1, delay.TIMER_DELIVER: 1}


class TimerRefusedError(Exception):
    """A timer message that cannot be kept; the text is the reference's remark.

    Args:
        illegal: the request itself is wrong; otherwise this broker cannot keep it, or not now.
    """

    def __init__(self, remark: str, illegal: bool) -> None:
        super().__init__(remark)
        self.illegal = illegal

    @property
    def status(self) -> PutStatus:
        """The reference's name for the refusal."""
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL if self.illegal else PutStatus.WHEEL_TIMER_FLOW_CONTROL


class Door(Protocol):
    """What decides about timer messages that come in."""

    @property
    def enabled(self) -> bool:
        """Whether there is a timer."""
        ...

    @property
    def precision_ms(self) -> int:
        """Length of a slot."""
        ...

    @property
    def max_delay_seconds(self) -> int:
        """How far ahead a delivery time may lie."""
        ...

    @property
    def read_ms(self) -> int:
        """The second that is delivered next: nothing can be kept for one before it."""
        ...

    def refusal(self, time_ms: int) -> str | None:
        """Return why no more messages can be kept for the second *time_ms*, or ``None``."""
        ...


@attrs.frozen
class TimerDoor:
    """The door of one broker's timer.

    Attributes:
        keys: read at each message.
        precision_ms: length of a slot.
        random: decides who is refused at a second that has many messages.
        next_ms: returns the second that is delivered next.
        waiting_at: returns how many messages wait for a second.
    """

    keys: MessageStoreConfig
    precision_ms: int
    random: Random
    next_ms: Callable[[], int]
    waiting_at: Callable[[int], int]

    @property
    def enabled(self) -> bool:
        """See :class:`Door`."""
        return self.keys.timer_wheel_enable

    @property
    def max_delay_seconds(self) -> int:
        """See :class:`Door`."""
        return self.keys.timer_max_delay_sec

    @property
    def read_ms(self) -> int:
        """See :class:`Door`."""
        return self.next_ms()

    def refusal(self, time_ms: int) -> str | None:
        """See :class:`Door`."""
        limit = self.keys.timer_congest_num_each_slot
        if not is_congested(self.waiting_at(time_ms), limit, self.random):
            return None
        return (
            f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater than "
            f"{limit} and less than {2 * limit}, trigger random flow control"
        )


def is_congested(waiting: int, limit: int, random: Random) -> bool:
    """Return whether one more message for a second with *waiting* ones is refused.

    From *limit* on, chance decides, the more surely let in the more there are, as in the reference; at twice *limit*
    nothing is let in.
    """
    if waiting <= limit:
        return False
    return waiting >= 2 * limit or random.randrange(1000) > 1000 * (waiting - limit) / (limit + 0.1)


def asks(pairs: dict[str, str]) -> bool:
    """Whether properties ask for a delivery time; a message that was kept already asks no more."""
    return delay.TIMER_OUT not in pairs and not _REQUESTS.isdisjoint(pairs)


def redirect(
    topic: str, queue_id: int, pairs: dict[str, str], sys_flag: int, now_ms: int, door: Door
) -> tuple[str, int]:
    """Send a message that asks for a delivery time in the future to the timer topic.

    Args:
        topic: where it shall be in the end.
        queue_id: its queue there.
        pairs: its properties; real place and second are noted in them.
        sys_flag: system flags; a half message is never delayed.
        now_ms: wall time.
        door: decides.

    Returns:
        Topic and queue to store it in now: its own when it is not delayed.

    Raises:
        TimerRefusedError: the time cannot be read or lies too far ahead, nothing can be taken back any more, there is
            no timer, or too many messages wait for the same second.
    """
    kind = sys_flag & FLAG_TRANSACTION_MASK
    if kind not in (0, FLAG_TRANSACTION_COMMIT) or topic == TIMER_TOPIC or delay.level_of(pairs) > 0 or not asks(pairs):
        return topic, queue_id
    if not door.enabled:
        raise TimerRefusedError("accurate timer message is not enabled, timerWheelEnable is false", False)
    asked_ms = _asked_ms(pairs, now_ms, door)
    if asked_ms <= now_ms:
        if delay.TIMER_DELETE in pairs:
            raise _illegal(door)
        return topic, queue_id
    if asked_ms - now_ms > door.max_delay_seconds * 1000:
        raise _illegal(door)
    precision_ms = door.precision_ms
    slot_ms = max((asked_ms - 1) // precision_ms * precision_ms, door.read_ms)
    refusal = door.refusal(slot_ms)
    if refusal is not None:
        raise TimerRefusedError(refusal, False)
    pairs[delay.TIMER_OUT] = str(slot_ms)
    pairs[delay.REAL_TOPIC] = topic
    pairs[delay.REAL_QUEUE] = str(queue_id)
    return TIMER_TOPIC, TIMER_QUEUE


def _asked_ms(pairs: dict[str, str], now_ms: int, door: Door) -> int:
    asked_ms: int | None = None
    for name in delay.TIMER_REQUESTS:  # the first one counts, but none may be anything else than a number
        text = pairs.get(name)
        if text is not None:
            number = _number(text, door)
            if asked_ms is None:
                asked_ms = number * _UNIT_MS[name] + (0 if name == delay.TIMER_DELIVER else now_ms)
    assert asked_ms is not None
    return asked_ms


def _number(text: str, door: Door) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
        raise _illegal(door)
    return int(text)


def _illegal(door: Door) -> TimerRefusedError:
    return TimerRefusedError(
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{door.max_delay_seconds * 1000}ms; or if set del msg, the delay time should be bigger than the current time",
        True,
    )
