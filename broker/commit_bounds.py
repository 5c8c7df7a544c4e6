"""Which offsets a consumer may commit.

A consumer commits where it goes on, so it can honestly know of no offset behind the end of its queue: every message it
was given lies before it. Three cases look different:

* A slave may not have yet what its master gave out, so it takes any offset. It tells its master, which looks again; a
  master that comes back looks when it merges the slave's offsets (``merge.py``). What is right is not lost on the way.
* A master that lost the end of its log hears of consumers that had come further. What they had read is gone, and new
  messages will take those offsets: to believe them would skip these. The next pull tells such a consumer the end.
* The same goes for a topic that was deleted and made again.

Pure. Differs: the reference stores any number; a group with one far beyond its queue sees no message for ever, and one
that no Java peer can read spoils the whole table for it.
"""

from __future__ import annotations

from understudy.format.numbers import LONG_MAX


def commit_refusal(offset: int, end: int, *, is_slave: bool) -> str | None:
    """Return why *offset* cannot be committed, or ``None``.

    Args:
        offset: what the consumer says it will go on with.
        end: queue offset of the next message of the queue, 0 or less where there is none.
        is_slave: this broker may lack messages that the consumer has.
    """
    if not 0 <= offset <= LONG_MAX:
        return f"commitOffset is no offset, it must be from 0 to {LONG_MAX}"
    end = max(end, 0)
    if not is_slave and offset > end:
        return f"commitOffset {offset} is beyond the end of the queue, {end}"
    return None
