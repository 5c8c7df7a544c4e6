"""One file of the simulated disk: its bytes in the page cache and on the platter."""

from __future__ import annotations

import mmap
import random

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_CHUNK_BYTES = 16 * PAGE_BYTES
_ZERO_PAGE = bytes(PAGE_BYTES)
_ZERO_CHUNK = bytes(_CHUNK_BYTES)


class Inode:
    """Content of one file, apart from its names."""

    def __init__(self) -> None:
        self._buffer: mmap.mmap | None = None
        self.cache = memoryview(bytearray())
        self.length = 0
        self.platter_length = 0
        # Chunks of the platter that hold anything but zeros; compared as a whole, for few of them change between syncs.
        self._platter: dict[int, bytes] = {}
        self.modified_ms = 0
        #: How many pages of the platter hold anything but zeros.
        self.platter_pages = 0

    def reserve(self, length: int) -> None:
        """Make room for *length* bytes. A file that is mapped cannot grow beyond its room."""
        if length <= len(self.cache):
            return
        room = -(-length // PAGE_BYTES) * PAGE_BYTES
        # Of a private map, zeros that are only looked at, as by each sync, take no memory.
        buffer = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE)
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
        return [
            number * (_CHUNK_BYTES // PAGE_BYTES) + start // PAGE_BYTES
            for number, now, then in self._changed_chunks()
            for start in range(0, _CHUNK_BYTES, PAGE_BYTES)
            if now[start : start + PAGE_BYTES] != then[start : start + PAGE_BYTES]
        ]

    def page(self, number: int) -> bytes:
        """Return the cached bytes of one page, zeros beyond the end."""
        start = number * PAGE_BYTES
        return bytes(self.cache[start : min(start + PAGE_BYTES, self.length)]).ljust(PAGE_BYTES, b"\0")

    def sync(self) -> None:
        """Copy the page cache to the platter."""
        for number, now, then in self._changed_chunks():
            self.platter_pages += _pages(now) - _pages(then)
            if now == _ZERO_CHUNK:
                del self._platter[number]
            else:
                self._platter[number] = now
        self.platter_length = self.length

    def copy(self) -> Inode:
        """Return a file with the same cache and platter that shares no memory with this one."""
        other = Inode()
        other.set_length(self.length)
        other.cache[: self.length] = self.cache[: self.length]
        other._platter, other.platter_length = dict(self._platter), self.platter_length
        other.platter_pages = self.platter_pages
        other.modified_ms = self.modified_ms
        return other

    def after_power_loss(self, chance: random.Random) -> Inode:
        """Return what is left of the file."""
        other = Inode()
        length = self.length if chance.random() < 0.5 else self.platter_length
        other.set_length(length)
        for number, chunk in self._platter.items():
            other._overwrite(number * _CHUNK_BYTES, chunk)
        for number in self.changed_pages():
            fate = chance.random()
            new = self.page(number)
            if fate < 0.4:
                continue
            if fate >= 0.8:
                old = self._platter_page(number)
                sectors = [
                    (new if chance.random() < 0.5 else old)[at : at + SECTOR_BYTES]
                    for at in range(0, PAGE_BYTES, SECTOR_BYTES)
                ]
                new = b"".join(sectors)
            other._overwrite(number * PAGE_BYTES, new)
        other.sync()
        other.modified_ms = self.modified_ms
        return other

    def _changed_chunks(self) -> list[tuple[int, bytes, bytes]]:
        """Return number, cached bytes and bytes on the platter of each chunk that differs, in full length."""
        changed = []
        for start in range(0, max(self.length, self.platter_length), _CHUNK_BYTES):
            number = start // _CHUNK_BYTES
            now = bytes(self.cache[start : min(start + _CHUNK_BYTES, self.length)]).ljust(_CHUNK_BYTES, b"\0")
            then = self._platter.get(number, _ZERO_CHUNK)
            if now != then:
                changed.append((number, now, then))
        return changed

    def _platter_page(self, number: int) -> bytes:
        start = number * PAGE_BYTES
        chunk = self._platter.get(start // _CHUNK_BYTES, _ZERO_CHUNK)
        return chunk[start % _CHUNK_BYTES : start % _CHUNK_BYTES + PAGE_BYTES]

    def _overwrite(self, start: int, data: bytes) -> None:
        """Put *data* into the cache, as far as it lies within the length."""
        if start < self.length:
            self.cache[start : min(start + len(data), self.length)] = data[: self.length - start]


def _pages(chunk: bytes) -> int:
    """Return how many pages of *chunk* hold anything but zeros."""
    return sum(chunk[start : start + PAGE_BYTES] != _ZERO_PAGE for start in range(0, len(chunk), PAGE_BYTES))
