"""A scrub of the key index: entries are compared with the records they were made of, and slots with the entries.

Entries stand in the order of the log, so both are walked together. An entry that differs from its record has rotted, or
the record has: the chain of its slot tells, for an entry that still stands in the chain of its hash is as it was
written. Whatever of the index has rotted is written anew.
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
        for number, unsigned in enumerate(expected):
            if not self._stands_next(head, expected[number:]):
                return True  # it was not indexed, or not by all it says
            file, at = self._file, self._next
            assert file is not None
            self._next = at + 1
            found, physical, seconds, older = file.entry(at)
            if found != unsigned:
                if file.is_linked(at):
                    return False
                self._mend(file, at, (unsigned, head.physical_offset, seconds, older))
                continue
            wanted = file.seconds_of(head.store_ms) if at > 1 else seconds
            if (physical, seconds) != (head.physical_offset, wanted):
                self._mend(file, at, (unsigned, head.physical_offset, wanted, older))
        return True

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

    def _stands_next(self, head: RecordHead, expected: list[int]) -> bool:
        """Find the entry to be compared next with the first of *expected*; ``False`` when the record has none."""
        file = self._file
        if file is not None and self._next >= file.count:
            following = [each for each in self._core.index.files if each.name > file.name]
            self._file, self._next = (following[0], 1) if following else (file, self._next)
            file = self._file
        if file is not None and file in self._core.index.files and self._next < file.count:
            found, physical, _, _ = file.entry(self._next)
            if physical == head.physical_offset:
                return True
            if found == expected[0] and not self._is_of(physical, found):
                return True
        return self._look_up(head.physical_offset)

    def _look_up(self, physical: int) -> bool:
        for file in self._core.index.files:
            if file.count > 1 and file.begin_offset <= physical <= file.end_offset:
                number = file.first_at(physical)
                if number < file.count and file.entry(number)[1] == physical:
                    self._file, self._next = file, number
                    return True
        return False

    def _is_of(self, physical: int, unsigned: int) -> bool:
        """Whether a whole record begins at *physical* and stands under that hash."""
        head = self._core.log.parse_at(physical, check_crc=False) if physical >= 0 else None
        return head is not None and unsigned in map(index_hash, self._dispatcher.hashes(head))

    def _store_ms(self, physical: int) -> int | None:
        head = self._core.log.parse_at(physical, check_crc=False) if physical >= 0 else None
        return None if head is None else head.store_ms

    def _mend(self, file: IndexFile, number: int, entry: tuple[int, int, int, int]) -> None:
        file.write_entry(number, entry)
        self._note(file, "entry")

    def _note(self, file: IndexFile, what: str) -> None:
        if not self.mended:
            log.warning("the key index had rotted and is written anew", path=file.path, what=what)
        self.mended += 1
        self._core.index.dirty_paths.add(file.path)
