"""Pages of a big table, as slaves and administrators ask for topics (21) and groups (201).

Pure. Source: TopicConfigManager.java, SubscriptionGroupManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from understudy.format import json_dialect
from understudy.format.data_version import DataVersion
from understudy.remoting.command import Command
from understudy.remoting.fields import optional, optional_int

Row = TypeVar("Row")
_VERSION_LIMIT = 1024  # characters; a version has some eighty


def page(
    command: Command, rows: Mapping[str, Row], version: DataVersion, seq: str, limit: str, size: int
) -> dict[str, Row]:
    """Return what *command* asks for of *rows*: everything, or one page in the order of names.

    Args:
        command: its header has the number of rows the asker has, the version it began with, and its page size.
        rows: the whole table.
        version: the table's version now; with another one the asker begins anew.
        seq, limit: names of the header fields.
        size: largest page of this broker; 0 for no pages.
    """
    begin, known, wanted = optional_int(command, seq), optional(command, "dataVersion"), optional_int(command, limit)
    if size <= 0 or (begin is None and known is None and wanted is None):
        return dict(rows)
    if not known or _version(known) != version:
        begin = 0
    begin = max(begin or 0, 0)
    count = size if wanted is None else max(min(size, wanted), 0)
    return {name: rows[name] for name in sorted(rows)[begin : begin + count]}


def _version(text: str) -> DataVersion | None:
    if len(text) > _VERSION_LIMIT:
        return None
    try:
        return DataVersion.from_json(json_dialect.loads(text))
    except json_dialect.JsonError:
        return None
