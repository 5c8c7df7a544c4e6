"""Whether a due message was delivered by the master before its slave began to act."""

from __future__ import annotations

from collections.abc import Generator

from understudy.broker import delay
from understudy.broker.inner import InnerMessage
from understudy.container.escape.parts import EscapeParts
from understudy.format.properties import parse_properties
from understudy.format.record import decode_records
from understudy.runtime.pace import run_steps

_UNIQUE_KEY = "UNIQ_KEY"
_SAME_MESSAGES = 32
_CLOCKS_DIFFER_MS = 60_000
_ANY_TIME_MS = (1 << 63) - 1


def delivered_before(parts: EscapeParts, message: InnerMessage, acting_since_ms: int) -> bool:
    """Return whether the log of *parts* shows that its master had delivered *message* before the slave acted.

    The master's progress may not have been copied any more; the delivered copy is in the slave's log then.
    """
    return run_steps(delivered_before_in_steps(parts, message, acting_since_ms))


def delivered_before_in_steps(
    parts: EscapeParts, message: InnerMessage, acting_since_ms: int
) -> Generator[None, None, bool]:
    """Return what :func:`delivered_before` does, step by step: a key may have many messages."""
    pairs = parse_properties(message.properties.decode("utf-8", "replace"))
    key, level = pairs.get(_UNIQUE_KEY), delay.level_of(pairs)
    second = pairs.get(delay.TIMER_OUT, "")
    due_ms = message.born_ms + delay.delay_of_level(parts.delay_levels_ms, level)
    if level <= 0 and second.isdecimal():
        due_ms = int(second)
    # When it was due went by the clock of whoever stored it: in the first minute it is looked for in any case.
    if not key or (due_ms > acting_since_ms and parts.node.world.clock.wall_ms() > acting_since_ms + _CLOCKS_DIFFER_MS):
        return False
    result = yield from parts.store.query_in_steps(message.topic, key, _SAME_MESSAGES, 0, _ANY_TIME_MS)
    for found in result.records:
        for record in decode_records(found):
            same = record.properties.get(_UNIQUE_KEY) == key and record.topic == message.topic
            alike = record.reconsume_times == message.reconsume_times and record.born_ms == message.born_ms
            if same and alike and record.body == message.body:  # batches of acknowledgements of one pop have one key
                return True
    return False
