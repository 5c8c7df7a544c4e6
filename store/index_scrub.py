"""A scrub of the key index: entries are compared with the records they were made of, and slots with the entries.

Entries stand in the order of the log, so both are walked together. An entry that differs from its record has rotted, or
the record has: the chain of its slot tells, for an entry that still stands in the chain of its hash is as it was
written. If that says the store time of the record, too, the record has rotted. Whatever of the index has rotted is
written anew.
"""

from __future__ import annotations

from collections.abc import Generator

from understudy.format.java_hash import index_hash
from understudy.runtime.log import get_logger
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.index_file import IndexFile
from understudy.store.walk import RecordHead

log = get_logger("store.index_scrub")


class IndexScrub:
    """Compares the index of one store with its log.

    Attributes:
        mended: how many entries, slots and headers had rotted and were written anew.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._file: IndexFile | None = None
        self._next = 0
        self.mended = 0

    def begin(self) -> None:
        """Begin a scrub: mend the headers of the files, by which entries are found and understood."""
        self._file, self.mended = None, 0
        for file in self._core.index.files:
            if file.mend_header(self._store_ms, newest=file is self._core.index.last):
                self._note(file, "header")

    def agrees(self, head: RecordHead) -> bool:
        """Compare the entries of a whole record with it, and mend them; records must come in the order of the log.

        Returns:
            False when it is the record that has rotted: it was stored under other keys than it says.
        """
        index = self._core.index
        if not self._core.config.message_index_enable or not index.files:
            return True
        usual = self._dispatcher.usual(head)
        hashes = self._dispatcher.hashes(head) if usual is None else usual[2]
        expected = [index_hash(each) for each in hashes]
        file, at = self._file, self._next
        if file is not None and file.has_entries(at, expected, head.physical_offset, head.store_ms):
            self._next = at + len(expected)
            return True
        return self._compare(head, expected) if expected else True

    def mending_links(self) -> Generator[None, None, None]:
        """Compare, in steps, chains and slots of every file with its entries."""
        for file in list(self._core.index.files):
            if file not in self._core.index.files:
                continue  # grew too old meanwhile
            for what in file.mending_links(newest=file is self._core.index.last):
                if what:
                    self._note(file, what)
                yield
                if file not in self._core.index.files:
                    break

    # Inside

    def _compare(self, head: RecordHead, expected: list[int]) -> bool:
        """Do what :meth:`agrees` does, one entry after the other; *expected* are the hashes of the record."""
        physical = head.physical_offset
        entries = self._entries_of(physical)
        if not entries and not self._mend_offset(physical, expected[:1], self._file, self._next):
            return True  # it was never indexed
        entries = entries or self._entries_of(physical)
        known = [file.entry(number)[0] for file, number in entries]
        missing = [each for each in expected if each not in known]
        for (file, number), unsigned in zip(entries, known, strict=True):
            if unsigned in expected:
                continue
            if file.is_linked(number):
                if number > 1 and file.entry(number)[2] == file.seconds_of(head.store_ms):
                    return False
                continue  # of another record, which lay there before the log was cut: a reference leaves such entries
            if missing:
                self._mend(file, number, (missing.pop(0), *file.entry(number)[1:]))
        for place in range(len(missing)):  # not all of them are there in stores of older versions
            file, number = entries[-1]
            if not self._mend_offset(physical, missing[place:], file, number + 1):
                file, number = entries[0]
                self._mend_offset(physical, missing[place:], file, number - 1)
            entries = self._entries_of(physical)
        for file, number in entries:
            unsigned, _, seconds, older = file.entry(number)
            if number > 1 and unsigned in expected and seconds != file.seconds_of(head.store_ms):
                self._mend(file, number, (unsigned, physical, file.seconds_of(head.store_ms), older))
        if entries:
            self._file, self._next = entries[-1][0], entries[-1][1] + 1
        return True

    def _entries_of(self, physical: int) -> list[tuple[IndexFile, int]]:
        """Return file and number of each entry that says that its record begins at *physical*."""
        found = []
        for file in self._core.index.files:
            number = file.first_at(physical)
            while number < file.count and file.entry(number)[1] == physical:
                found.append((file, number))
                number += 1
        return found

    def _mend_offset(self, physical: int, hashes: list[int], file: IndexFile | None, number: int) -> bool:
        """Have an entry say *physical* if it has one of *hashes*, and what it says has none; tell whether it did."""
        if file is None or file not in self._core.index.files or not 0 < number < file.count:
            return False
        unsigned, present, seconds, older = file.entry(number)
        if unsigned not in hashes or present == physical or self._is_of(present, unsigned):
            return False
        self._mend(file, number, (unsigned, physical, seconds, older))
        return True

    def _is_of(self, physical: int, unsigned: int) -> bool:
        """Whether a whole record begins at *physical* and stands under that hash."""
        return self._store_ms(unsigned, physical) is not None

    def _store_ms(self, unsigned: int, physical: int) -> int | None:
        """Return the store time of the record at *physical*, if that stands under the hash *unsigned*."""
        head = self._core.log.parse_at(physical, check_crc=False) if physical >= 0 else None
        return (
            head.store_ms if head is not None and unsigned in map(index_hash, self._dispatcher.hashes(head)) else None
        )

    def _mend(self, file: IndexFile, number: int, entry: tuple[int, int, int, int]) -> None:
        file.write_entry(number, entry)
        self._note(file, "entry")

    def _note(self, file: IndexFile, what: str) -> None:
        if not self.mended:
            log.warning("the key index had rotted and is written anew", path=file.path, what=what)
        self.mended += 1
        self._core.index.dirty_paths.add(file.path)
