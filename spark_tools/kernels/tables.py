"""JSON tables of `config/`: read in the dialect that brokers read, and written back as fastjson writes it.

fastjson writes maps with integer keys without quotes (`{0:7}`). Integer keys stay strings here, as the other keys are.
"""

from __future__ import annotations

import json
import re
from typing import Any

from understudy.format import json_dialect
from understudy.format.light_queues import LIGHT_OFFSET_TABLE, QUEUE_ID, is_light

_INTEGER = re.compile(r"-?[0-9]+")


class TableError(ValueError):
    """A table that a broker could not read either; `offset_bytes` says where."""

    def __init__(self, message: str, offset_bytes: int) -> None:
        super().__init__(message)
        self.offset_bytes = offset_bytes


def loads(data: bytes | str) -> Any:
    """Parses a table.

    Raises:
        TableError: with the byte offset of the first character that fits no rule.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TableError(f"not UTF-8: {error.reason}", error.start) from None
    try:
        return json_dialect.loads(text)
    except json_dialect.JsonError as error:
        raise TableError(str(error), len(text[: error.at].encode())) from None


def dumps(value: Any) -> str:
    """Writes a table as fastjson pretty-prints it: tabs, keys in the given order, integer keys without quotes."""
    pieces: list[str] = []
    _write(value, "", pieces)
    return "".join(pieces)


def _write(value: Any, indent: str, pieces: list[str]) -> None:
    if isinstance(value, dict):
        deeper = indent + "\t"
        pieces.append("{\n")
        for number, (key, item) in enumerate(value.items()):
            pieces.append(",\n" + deeper if number else deeper)
            plain = isinstance(key, int) or _is_integer(key)
            pieces.append(f"{key}:" if plain else json.dumps(key, ensure_ascii=False) + ":")
            _write(item, deeper, pieces)
        pieces.append(f"\n{indent}}}" if value else f"{deeper}\n{indent}}}")
    elif isinstance(value, list):
        deeper = indent + "\t"
        pieces.append("[")
        for number, item in enumerate(value):
            pieces.append((",\n" if number else "\n") + deeper)
            _write(item, deeper, pieces)
        pieces.append(f"\n{indent}]" if value else "]")
    else:
        pieces.append(json.dumps(value, ensure_ascii=False))


def offset_rows(table: Any) -> tuple[list[tuple[str, str, int, int]], list[str]]:
    """The entries of a consumer offset table as (topic, group, queue, offset), and what could not be read.

    The key is `topic@group`; a topic never contains `@`, so it is split at the first one. What the table of light
    queues says of a queue counts, as it does for a broker, and not what the other table says of it.
    """
    rows: list[tuple[str, str, int, int]] = []
    entries = table.get("offsetTable", {}) if isinstance(table, dict) else None
    if not isinstance(entries, dict):
        return rows, ["offsetTable is missing or is no map"]
    lights, odd = light_rows(table)
    for key, queues in entries.items():
        topic, separator, group = key.partition("@")
        if not separator or not isinstance(queues, dict):
            odd.append(f"offsetTable entry {key!r} is not topic@group with a map of queues")
            continue
        for queue, offset in queues.items():
            if not _fits(queue, offset):
                odd.append(f"offsetTable entry {key!r} queue {queue!r} has offset {offset!r}")
                continue
            if int(queue) != QUEUE_ID or (topic, group) not in lights:
                rows.append((topic, group, int(queue), offset))
    return rows + [(topic, group, QUEUE_ID, offset) for (topic, group), offset in lights.items()], odd


def light_rows(table: dict[str, Any]) -> tuple[dict[tuple[str, str], int], list[str]]:
    """The offsets of groups of light queues by topic and group, and what could not be read.

    A broker with light queues on has one number for each of those; it looks no other group up there.
    """
    entries = table.get(LIGHT_OFFSET_TABLE) or {}
    if not isinstance(entries, dict):
        return {}, [f"{LIGHT_OFFSET_TABLE} is no map"]
    rows: dict[tuple[str, str], int] = {}
    odd: list[str] = []
    for key, offset in entries.items():
        topic, separator, group = key.partition("@")
        if not separator or not is_light(group) or not _fits(str(QUEUE_ID), offset):
            odd.append(f"{LIGHT_OFFSET_TABLE} entry {key!r} with {offset!r} is no offset of a light queue's group")
        else:
            rows[topic, group] = offset
    return rows, odd


def _fits(queue: str, offset: object) -> bool:
    """Whether these are a queue number and an offset, with the bits a broker has for them."""
    if not _is_integer(queue) or len(queue) > 11 or not isinstance(offset, int) or isinstance(offset, bool):
        return False
    return -(1 << 31) <= int(queue) < 1 << 31 and -(1 << 63) <= offset < 1 << 63


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None
