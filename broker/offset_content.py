"""The tables in ``consumerOffset.json``, and in what a replica tells of its offsets, as they are named and read.

Source: ConsumerOffsetManager.java; the tables named here are beyond the reference, which leaves them out of account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from understudy.format.light_queues import LIGHT_OFFSET_TABLE, QUEUE_ID, is_light

REMOVED_TOPICS, REMOVED_GROUPS = "removedTopicTable", "removedGroupTable"
RESET_STAMPS, PENDING_RESETS = "resetStampTable", "pendingResetTable"
LOG_ENDS = "logEndTable"
OFFSETS = "offsetTable"
FILE_NAME = "consumerOffset.json"


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


def offset_table(value: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Read the offsets of all groups, those of light queues included. Raises ``ValueError`` as :func:`queue_table`."""
    found = queue_table(value, OFFSETS)
    for key, offset in removed_table(value, LIGHT_OFFSET_TABLE).items():
        found.setdefault(key, {})[QUEUE_ID] = offset
    return found


def offset_tables(table: Mapping[str, Mapping[int, int]], light: bool) -> dict[str, Iterator[tuple[str, Any]]]:
    """Return the tables in which offsets are written, each as its rows: two where *light* queues are on.

    The rows are those of now; what stands in one of them is read when it is taken.
    """
    rows = list(table.items())
    tables: dict[str, Iterator[tuple[str, Any]]] = {OFFSETS: _offset_rows(rows, light)}
    return tables | {LIGHT_OFFSET_TABLE: _light_rows(rows)} if light else tables


def _offset_rows(rows: Sequence[tuple[str, Mapping[int, int]]], light: bool) -> Iterator[tuple[str, dict[int, int]]]:
    for key, queues in rows:
        row = dict(queues)
        if light and _is_of_light_group(key):
            row.pop(QUEUE_ID, None)
            if not row:
                continue
        yield key, row


def _light_rows(rows: Sequence[tuple[str, Mapping[int, int]]]) -> Iterator[tuple[str, int]]:
    for key, queues in rows:
        if _is_of_light_group(key) and QUEUE_ID in queues:
            yield key, queues[QUEUE_ID]


def _is_of_light_group(key: str) -> bool:
    return is_light(key.partition("@")[2])


def removed_table(value: Mapping[str, Any], name: str) -> dict[str, int]:
    """Read a table of one number for each name, mostly when it was removed; a missing table is empty.

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
        raise ValueError(f"{name}: what stands there must be whole numbers") from None
