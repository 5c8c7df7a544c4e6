"""Key-value configuration: namespaces of texts that survive restarts (KVConfigManager.java)."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

import attrs
import trio

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, TableUnfitError, load_table, save_table

log = get_logger("namesrv.key_values")

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
MOST_KEYS = 20_000
"""Of all namespaces together, each of which counts as one, too."""
MOST_CHARACTERS = 4 << 20
"""Of all names, keys and values together: the whole file is written for a change."""
_TABLE = "configTable"

Tables = dict[str, dict[str, str]]


class StoreError(Exception):
    """A change could not be stored and was not made; the message says why."""


@attrs.define(eq=False)
class _Change:
    """One change; with *only_known* it is about a key that is there."""

    namespace: str
    key: str
    value: str | None
    only_known: bool = False
    done: bool = False
    refusal: StoreError | None = None

    def refuse(self, why: str) -> None:
        self.done, self.refusal = True, StoreError(f"{why}; nothing was changed")


class KeyValueConfig:
    """The namespaces, each change durable before it shows. Changes that come while the file is written share a write.

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
        self._keys = self._characters = 0
        self._waiting: list[_Change] = []
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
        self._keys = len(self._tables) + sum(map(len, self._tables.values()))
        self._characters = sum(map(len, self._tables)) + sum(
            len(key) + len(value) for table in self._tables.values() for key, value in table.items()
        )
        self.revision += 1

    def get(self, namespace: str | None, key: str | None) -> str | None:
        """Return a value, or ``None``."""
        return self._tables.get(namespace or "", {}).get(key or "")

    def namespace(self, namespace: str | None) -> Mapping[str, str] | None:
        """Return the values of a namespace, or ``None`` when there never was such a namespace."""
        return self._tables.get(namespace or "")

    async def put(self, namespace: str, key: str, value: str | None) -> None:
        """Set a value durably; ``None`` makes the namespace but leaves the key unset. Raises :class:`StoreError`."""
        await self._make(_Change(namespace, key, value))

    async def delete(self, namespace: str | None, key: str | None) -> None:
        """Remove a key durably; unknown ones are fine, the namespace stays. Raises :class:`StoreError`."""
        await self._make(_Change(namespace or "", key or "", None, only_known=True))

    async def _make(self, change: _Change) -> None:
        self._waiting.append(change)
        async with self._one_writer:
            if not change.done:
                changes, self._waiting = self._waiting, []
                try:
                    await self._make_all(changes)
                finally:  # when this request is cancelled, those of others are left to the next writer
                    self._waiting[:0] = [each for each in changes if not each.done and each is not change]
        if change.refusal is not None:
            raise change.refusal

    async def _make_all(self, changes: list[_Change]) -> None:
        """Make *changes* with one write, or each by itself when one of them cannot be written."""
        batch = _Batch(self._tables, self._keys, self._characters)
        taken = [change for change in changes if batch.take(change)]
        if not taken:
            return
        try:
            await self._disk.in_thread(lambda: self._save(batch.tables))
        except OSError as error:
            for change in taken:
                change.refuse(f"cannot write {self._path}: {error.strerror or error}")
        except TableUnfitError as error:
            if len(taken) == 1:
                taken[0].refuse(str(error))
                return
            for change in taken:
                await self._make_all([change])
        else:
            self._tables, self._keys, self._characters = batch.tables, batch.keys, batch.characters
            self.revision += 1
            for change in taken:
                change.done = True

    def _save(self, tables: Tables) -> None:
        self._disk.make_folder(os.path.dirname(self._path) or ".")
        save_table(self._disk, self._path, {_TABLE: tables})


class _Batch:
    """The tables after some changes; those before them stay as they are."""

    def __init__(self, tables: Tables, keys: int, characters: int) -> None:
        self.tables = dict(tables)
        self.keys, self.characters = keys, characters
        self._copied: set[str] = set()

    def take(self, change: _Change) -> bool:
        """Put *change* into the tables; false when it changes nothing or is refused, which it knows then."""
        table = self.tables.get(change.namespace)
        known = None if table is None else table.get(change.key)
        if change.only_known and known is None:
            change.done = True
            return False
        keys, characters = self.keys, self.characters
        if table is None:
            keys, characters = keys + 1, characters + len(change.namespace)
        if known is not None:
            keys, characters = keys - 1, characters - len(change.key) - len(known)
        if change.value is not None:
            keys, characters = keys + 1, characters + len(change.key) + len(change.value)
        if (keys > MOST_KEYS and keys > self.keys) or (characters > MOST_CHARACTERS and characters > self.characters):
            change.refuse(
                f"a name server keeps {MOST_KEYS} keys and namespaces of {MOST_CHARACTERS} characters in all, and has "
                f"{self.keys} of {self.characters}"
            )
            return False
        if change.namespace not in self._copied:
            table = self.tables[change.namespace] = dict(table or {})
            self._copied.add(change.namespace)
        assert table is not None
        if change.value is None:
            table.pop(change.key, None)
        else:
            table[change.key] = change.value
        self.keys, self.characters = keys, characters
        return True
