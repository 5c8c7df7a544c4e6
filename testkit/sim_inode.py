"""One file of the simulated disk: its bytes in the page cache and on the platter."""

from __future__ import annotations

import mmap
import random

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_CHUNK_BYTES = 1 << 20
_ZERO_PAGE = bytes(PAGE_BYTES)


class Inode:
    """Content of one file, apart from its names."""

    def __init__(self) -> None:
        self._buffer: mmap.mmap | None = None
        self.cache = memoryview(bytearray())
        self.length = 0
        self.platter: dict[int, bytes] = {}
        self.platter_length = 0
        self.modified_ms = 0

    def reserve(self, length: int) -> None:
        """Make room for *length* bytes. A file that is mapped cannot grow beyond its room."""
        if length <= len(self.cache):
            return
        room = -(-length // PAGE_BYTES) * PAGE_BYTES
        buffer = mmap.mmap(-1, room)
        view = memoryview(buffer)
        view[: self.length] = self.cache[: self.length]
        if self._buffer is not None:
            self.cache.release()
            try:
                self._buffer.close()
            except BufferError:
                raise ValueError("the simulated disk cannot grow a file that is mapped") from None
        self._buffer, self.cache = buffer, view

    def set_length(self, length: int) -> None:
        """Cut or zero-extend."""
        if length > self.length:
            self.reserve(length)
        elif length < self.length:
            self.cache[length : self.length] = bytes(self.length - length)
        self.length = length

    def changed_pages(self) -> list[int]:
        """Return the numbers of the pages whose cached bytes are not those on the platter."""
        changed = []
        end = max(self.length, self.platter_length)
        for start in range(0, end, _CHUNK_BYTES):
            first = start // PAGE_BYTES
            count = -(-(min(end, start + _CHUNK_BYTES) - start) // PAGE_BYTES)
            numbers = range(first, first + count)
            chunk = self.cache[start : start + _CHUNK_BYTES]
            if not any(number in self.platter for number in numbers) and chunk == bytes(len(chunk)):
                continue
            changed += [number for number in numbers if self.page(number) != self.platter.get(number, _ZERO_PAGE)]
        return changed

    def page(self, number: int) -> bytes:
        """Return the cached bytes of one page, zeros beyond the end."""
        start = number * PAGE_BYTES
        return bytes(self.cache[start : min(start + PAGE_BYTES, self.length)]).ljust(PAGE_BYTES, b"\0")

    def sync(self) -> None:
        """Copy the page cache to the platter."""
        for number in self.changed_pages():
            page = self.page(number)
            if page == _ZERO_PAGE:
                self.platter.pop(number, None)
            else:
                self.platter[number] = page
        self.platter_length = self.length

    def copy(self) -> Inode:
        """Return a file with the same cache and platter that shares no memory with this one."""
        other = Inode()
        other.set_length(self.length)
        other.cache[: self.length] = self.cache[: self.length]
        other.platter, other.platter_length = dict(self.platter), self.platter_length
        other.modified_ms = self.modified_ms
        return other

    def after_power_loss(self, chance: random.Random) -> Inode:
        """Return what is left of the file."""
        other = Inode()
        length = self.length if chance.random() < 0.5 else self.platter_length
        pages = dict(self.platter)
        for number in self.changed_pages():
            fate = chance.random()
            new = self.page(number)
            if fate < 0.4:
                continue
            if fate >= 0.8:
                old = pages.get(number, _ZERO_PAGE)
                sectors = [
                    (new if chance.random() < 0.5 else old)[at : at + SECTOR_BYTES]
                    for at in range(0, PAGE_BYTES, SECTOR_BYTES)
                ]
                new = b"".join(sectors)
            pages[number] = new
        other.set_length(length)
        for number, page in pages.items():
            start = number * PAGE_BYTES
            if start < length:
                other.cache[start : min(start + PAGE_BYTES, length)] = page[: length - start]
        other.sync()
        other.modified_ms = self.modified_ms
        return other
