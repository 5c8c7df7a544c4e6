"""The tables in ``consumerOffset.json``, and in what a replica tells of its offsets, as they are named and read.

Source: ConsumerOffsetManager.java; the tables named here are beyond the reference, which leaves them out of account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

REMOVED_TOPICS, REMOVED_GROUPS = "removedTopicTable", "removedGroupTable"
RESET_STAMPS, PENDING_RESETS = "resetStampTable", "pendingResetTable"
LOG_ENDS = "logEndTable"


def quoted(numbers: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """Give the numbers of queues under quoted ids: the reference skips a table it does not know only with these."""
    for queue_id, number in dict(numbers).items():
        yield str(queue_id), number


def queue_table(value: Mapping[str, Any], name: str) -> dict[str, dict[int, int]]:
    """Read a table of queue numbers out of a saved or replicated offset table.

    Args:
        value: the whole content.
        name: the table in it; a missing one is empty.

    Raises:
        ValueError: an entry is no number; the message names it.
    """
    table = value.get(name) or {}
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} is no JSON object")
    found: dict[str, dict[int, int]] = {}
    for key, queues in table.items():
        if not isinstance(queues, Mapping):
            raise ValueError(f"{name} entry {key}: no JSON object")
        try:
            found[str(key)] = {int(queue): int(number) for queue, number in queues.items()}
        except (TypeError, ValueError):
            raise ValueError(f"{name} entry {key}: queue ids and offsets must be whole numbers") from None
    return found


def removed_table(value: Mapping[str, Any], name: str) -> dict[str, int]:
    """Read when names were removed out of a saved or replicated offset table; a missing table is empty.

    Args:
        value: the whole content.
        name: the table in it.

    Raises:
        ValueError: an entry is no number.
    """
    table = value.get(name) or {}
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} is no JSON object")
    try:
        return {str(each): int(stamp) for each, stamp in table.items()}
    except (TypeError, ValueError):
        raise ValueError(f"{name}: times must be whole numbers") from None
