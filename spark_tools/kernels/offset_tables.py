"""Consumer offset tables as columns: the usual shape is cut by patterns and arrays, any other is parsed as JSON.

A table has an entry per group, topic and queue, hundreds of thousands of them; made into Python objects one by one they
cost ten times as much as here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from understudy.format.data_version import DataVersion
from understudy.format.light_queues import LIGHT_OFFSET_FILE, QUEUE_ID
from understudy.spark_tools.kernels import tables

_NAME = rb'"[^"\\\x00-\x1f]*+"'
_WHITE = rb"[ \t\r\n]*+"
_NUMBER = rb"-?(?:0|[1-9][0-9]{0,17})(?![0-9.eE])"
# no longer than a queue number, which is an int
_KEY = rb"(?:0|[1-9][0-9]{0,8})"
_PAIR = rb'(?:"' + _KEY + rb'"|' + _KEY + rb")" + _WHITE + rb":" + _WHITE + _NUMBER
_QUEUES = rb"\{" + _WHITE + rb"(?:" + _PAIR + _WHITE + rb"(?:," + _WHITE + rb"(?=[\"0-9])|(?=\})))*+\}"
_ENTRY = _NAME + _WHITE + rb":" + _WHITE + _QUEUES
_ENTRIES = rb"(?:" + _ENTRY + _WHITE + rb"(?:," + _WHITE + rb'(?=")|(?=\})))*+'
_FLAT = rb"\{[^{}]*+\}"
_BEFORE = rb'"(?:dataVersion|groupTopicMap|lmqOffsetTable)"' + _WHITE + rb":" + _WHITE + _FLAT + _WHITE + rb"," + _WHITE
_HEAD = re.compile(
    rb"("
    + _WHITE
    + rb"\{"
    + _WHITE
    + rb"(?:"
    + _BEFORE
    + rb')*+"offsetTable"'
    + _WHITE
    + rb":"
    + _WHITE
    + rb")\{"
    + _WHITE
)
_BODY = re.compile(_ENTRIES)
_CUT = re.compile(rb'"([^"]*)"[ \t\r\n]*:[ \t\r\n]*\{([^}]*)\}')
OFFSET_TABLES = (LIGHT_OFFSET_FILE, "consumerOffset.json")
_COLON_TO_COMMA = bytes.maketrans(b":", b",")


@dataclass(slots=True)
class OffsetTable:
    """The entries of one table: row `n` is queue `queues[n]` of `topics[keys[n]]` and `groups[keys[n]]`.

    `odd` says what could not be read.
    """

    version: DataVersion
    topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    queues: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    odd: list[str] = field(default_factory=list)


def loaded_table(files: Collection[str], readable: Collection[str]) -> str | None:
    """Name of the offset table a broker starts with.

    A table that is missing, empty or torn is replaced by its `.bak` (`ConfigManager.load` of the reference, and ours).
    The light-queue table replaces the other one where it exists.

    Args:
        files: names there are.
        readable: those of them that `read_offset_table` takes.

    Returns:
        The name, of an unreadable table where its copy is unreadable too: a broker does not start then. None without
        any table.
    """
    name = next((name for suffix in ("", ".bak") for name in OFFSET_TABLES if name + suffix in files), None)
    if name is None:
        return None
    return next((file for file in (name, f"{name}.bak") if file in readable), name)


def read_offset_table(data: bytes) -> OffsetTable:
    """Reads a table in fastjson's dialect.

    Raises:
        TableError: with the byte offset of the first character that fits no rule, also for what is no JSON object.
    """
    found = _by_pattern(data)
    return found if found is not None else _by_parser(data)


def _by_pattern(data: bytes) -> OffsetTable | None:
    """The table when it has the shape brokers write, whatever its blanks; None when it needs the parser.

    Behind the entries anything may stand: `resetStampTable` and `removedTopicTable` do in tables of our brokers.
    `lmqOffsetTable` stands behind them there, and before them in tables of the reference.
    """
    head = _HEAD.match(data)
    if head is None:
        return None
    body = _BODY.match(data, head.end())
    if body is None:
        return None
    rest = data[body.end() :]
    if not rest.startswith(b"}") or b"offsetTable" in rest or b"\\" in rest:
        return None  # a second table, or a name that may stand for one
    try:
        around = tables.loads(head.group(1) + b"{" + rest)  # what stands behind the entries is small
        entries = _CUT.findall(data, head.end(), body.end())
        names = [name.decode() for name, _ in entries]
    except (tables.TableError, UnicodeDecodeError):
        return None
    if len(set(names)) != len(names):
        return None  # the parser knows which one counts
    parts = [name.partition("@") for name in names]
    if not all(separator for _, separator, _ in parts):
        return None
    counts = np.array([queues.count(b":") for _, queues in entries], np.int64)
    text = b",".join(queues for _, queues in entries if queues.strip())
    numbers = np.fromstring(text.translate(_COLON_TO_COMMA, b'" \t\r\n'), np.int64, sep=",") if text else counts[:0]
    keys = np.repeat(np.arange(len(names)), counts)
    queues, offsets = numbers[0::2], numbers[1::2]
    if len(queues) != len(keys) or _repeats(keys, queues):
        return None
    found = OffsetTable(
        DataVersion.from_json(around.get("dataVersion")),
        [part[0] for part in parts],
        [part[2] for part in parts],
        keys,
        queues,
        offsets,
    )
    lights, odd = tables.light_rows(around)
    if odd:
        return None
    return _with_lights(found, lights) if lights else found


def _with_lights(table: OffsetTable, lights: dict[tuple[str, str], int]) -> OffsetTable:
    """The table with the offsets of groups of light queues, which count before what it says of them itself."""
    names = list(zip(table.topics, table.groups, strict=True))
    replaced = np.array([name in lights for name in names], bool)
    stay = ~(replaced[table.keys] & (table.queues == QUEUE_ID)) if len(names) else np.ones(0, bool)
    count = len(lights)
    return OffsetTable(
        table.version,
        table.topics + [topic for topic, _ in lights],
        table.groups + [group for _, group in lights],
        np.concatenate([table.keys[stay], np.arange(len(names), len(names) + count)]),
        np.concatenate([table.queues[stay], np.full(count, QUEUE_ID)]),
        np.concatenate([table.offsets[stay], np.fromiter(lights.values(), np.int64, count)]),
        table.odd,
    )


def _repeats(keys: np.ndarray, queues: np.ndarray) -> bool:
    """Whether a queue stands twice in one entry."""
    rising = (queues[1:] > queues[:-1]) | (keys[1:] != keys[:-1])
    if rising.all():
        return False
    whole = keys << 32 | queues
    return len(np.unique(whole)) != len(whole)


def _by_parser(data: bytes) -> OffsetTable:
    table = tables.loads(data)
    if not isinstance(table, dict):
        raise tables.TableError("the table is no JSON object", 0)
    rows, odd = tables.offset_rows(table)
    numbers: dict[tuple[str, str], int] = {}
    keys = [numbers.setdefault((topic, group), len(numbers)) for topic, group, _, _ in rows]
    return OffsetTable(
        DataVersion.from_json(table.get("dataVersion")),
        [topic for topic, _ in numbers],
        [group for _, group in numbers],
        np.array(keys, np.int64),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.int64),
        odd,
    )
