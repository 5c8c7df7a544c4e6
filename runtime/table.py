"""JSON tables on disk that survive crashes: read with their backup, replaced whole, never silently empty."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.json_dialect import JsonError, dump_chunks, loads
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably


class TableDamagedError(Exception):
    """Something is there but no copy of it can be read; the message names the files and the way out."""


class TableUnfitError(ValueError):
    """A table holds what JSON cannot; the message names its file. The file is as it was."""


@attrs.frozen
class TableFile:
    """What was read.

    Attributes:
        data: the table, or ``None`` when neither file nor backup exists.
        source: ``"file"``, ``"backup"`` or ``"absent"``.
        damage: one sentence for each copy that exists but cannot be used.
    """

    data: dict[str, Any] | None
    source: str
    damage: tuple[str, ...] = ()


def load_table(disk: Disk, path: str) -> TableFile:
    """Read the table at *path*, or its ``.bak`` when *path* is absent, empty or torn.

    Raises:
        TableDamagedError: copies exist, none can be read. Nothing on disk is changed.
    """
    damage: list[str] = []
    for copy, source in ((path, "file"), (path + ".bak", "backup")):
        if not disk.exists(copy):
            continue
        try:
            data = loads(disk.read(copy))
        except JsonError as error:
            damage.append(f"{copy}: {'empty file' if disk.size(copy) == 0 else error}")
            continue
        if not isinstance(data, dict):
            damage.append(f"{copy}: not a JSON object")
            continue
        return TableFile(data, source, tuple(damage))
    if damage:
        raise TableDamagedError(
            "; ".join(damage) + ". No readable copy is left: restore the file from another replica or a backup, "
            "or move it away to start with an empty table"
        )
    return TableFile(None, "absent")


def save_table(disk: Disk, path: str, value: Any, *, private: bool = False) -> None:
    """Replace the table at *path* durably, keeping the previous copy as ``.bak``. Blocking.

    Args:
        disk: where to write.
        path: the file; its folder must exist.
        value: the table, as :func:`understudy.format.json_dialect.dump_pieces` takes it.
        private: nobody but this user may read the file.

    Raises:
        TableUnfitError: *value* holds what JSON cannot; nothing on disk is changed.
        OSError: it could not be written.
    """
    try:
        chunks = list(dump_chunks(value, bare_keys=True))  # all of them before anything is changed
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TableUnfitError(f"{path}: the table cannot be written as JSON: {error}") from error
    write_durably(disk, path, *chunks, private=private)
