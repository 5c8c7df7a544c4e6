"""Key-value configuration: namespaces of texts that survive restarts (KVConfigManager.java)."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

import trio

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, TableUnfitError, load_table, save_table

log = get_logger("namesrv.key_values")

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
_TABLE = "configTable"

Tables = dict[str, dict[str, str]]


class StoreError(Exception):
    """A change could not be stored and was not made; the message says why."""


class KeyValueConfig:
    """The namespaces, each change durable before it shows.

    Differs: the reference answers success when the file cannot be written, and writes over the old file in place.

    Args:
        disk: where the file is.
        path: the file; its folder is made when first needed.

    Attributes:
        revision: number of changes so far.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._tables: Tables = {}
        self._one_writer = trio.Lock()
        self.revision = 0

    async def load(self) -> None:
        """Read the file, or its backup; none at all is an empty configuration.

        Raises:
            TableDamagedError: there are copies, none of them readable.
            OSError: the file is there and may not be read.
        """
        found = await self._disk.in_thread(lambda: load_table(self._disk, self._path))
        for sentence in found.damage:
            log.warning("damaged copy skipped", why=sentence, taken=found.source)
        tables = (found.data or {}).get(_TABLE) or {}
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise TableDamagedError(f"{self._path}: {_TABLE} is not a table of tables; repair or move the file away")
        self._tables = {
            namespace: {key: str(value) for key, value in table.items() if value is not None}
            for namespace, table in tables.items()
        }
        self.revision += 1

    def get(self, namespace: str | None, key: str | None) -> str | None:
        """Return a value, or ``None``."""
        return self._tables.get(namespace or "", {}).get(key or "")

    def namespace(self, namespace: str | None) -> Mapping[str, str] | None:
        """Return the values of a namespace, or ``None`` when there never was such a namespace."""
        return self._tables.get(namespace or "")

    async def put(self, namespace: str, key: str, value: str | None) -> None:
        """Set a value durably; ``None`` makes the namespace but leaves the key unset. Raises :class:`StoreError`."""
        async with self._one_writer:
            table = dict(self._tables.get(namespace, {}))
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
            await self._store({**self._tables, namespace: table})

    async def delete(self, namespace: str | None, key: str | None) -> None:
        """Remove a key durably; unknown ones are fine, the namespace stays. Raises :class:`StoreError`."""
        async with self._one_writer:
            table = self._tables.get(namespace or "")
            if table is None or key not in table:
                return
            rest = {known: value for known, value in table.items() if known != key}
            await self._store({**self._tables, namespace or "": rest})

    async def _store(self, tables: Tables) -> None:
        def save() -> None:
            self._disk.make_folder(os.path.dirname(self._path) or ".")
            save_table(self._disk, self._path, {_TABLE: tables})

        try:
            await self._disk.in_thread(save)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror or error}; nothing was changed") from error
        except TableUnfitError as error:
            raise StoreError(f"{error}; nothing was changed") from error
        self._tables = tables
        self.revision += 1
