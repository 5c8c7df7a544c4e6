"""Which offsets a consumer may commit.

Pure. Differs: the reference stores any number; a group with one far beyond its queue sees no message for ever, and one
that no Java peer can read spoils the whole table for it.
"""

from __future__ import annotations

from understudy.format.numbers import LONG_MAX

AHEAD_LIMIT = 1_000_000
"""Messages that a consumer may be ahead of a master's queue: one that lost the end of its log, or was away, hears of
consumers that have come further. Such a consumer is told the end at its next pull."""


def commit_refusal(offset: int, end: int, *, is_slave: bool) -> str | None:
    """Return why *offset* cannot be committed, or ``None``.

    Args:
        offset: what the consumer says it will go on with.
        end: queue offset of the next message of the queue, 0 or less where there is none.
        is_slave: a slave may be told of any number of messages that have not come to it yet.
    """
    if not 0 <= offset <= LONG_MAX:
        return f"commitOffset is no offset, it must be from 0 to {LONG_MAX}"
    end = max(end, 0)
    if not is_slave and offset > end + AHEAD_LIMIT:
        return f"commitOffset {offset} is more than {AHEAD_LIMIT} beyond the end of the queue, {end}"
    return None
