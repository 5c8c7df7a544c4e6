"""Files as an input: the interface and the real disk.

Durable means it survives power loss: a file's bytes after :meth:`File.sync` or :meth:`Mapping.sync`, a name after
:meth:`Disk.sync_folder`. Nothing else may be counted on. The simulated disk in :mod:`understudy.testkit` forgets
exactly the rest.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from understudy.runtime.file_lock import HELD_ERRORS, hold
from understudy.runtime.files import RealFiles
from understudy.runtime.syncing import SYNCING

T = TypeVar("T")
_LIBC = ctypes.CDLL(None, use_errno=True)
_FALLOCATE = getattr(_LIBC, "fallocate", None)
if _FALLOCATE is not None:
    _FALLOCATE.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_KEEP_SIZE = 1


class DiskLockedError(Exception):
    """A folder is held by another process; the message names the folder."""


class DiskUsage(Protocol):
    """Bytes of the file system that holds a path."""

    total: int
    used: int
    free: int


class File(Protocol):
    """An open file, read and written at explicit positions."""

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to *length* bytes from *offset*; shorter only at the end of the file."""
        ...

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of *data* at *offset*, growing the file if needed. Durable only after :meth:`sync`."""
        ...

    def truncate(self, length: int) -> None:
        """Cut or zero-extend the file to *length* bytes."""
        ...

    def sync(self) -> None:
        """Block until the bytes and the length are durable."""
        ...

    def close(self) -> None:
        """Give the file back; a second call does nothing."""
        ...


class Mapping(Protocol):
    """A file of fixed length in memory: writing to :attr:`view` writes the file; durable after :meth:`sync`."""

    @property
    def view(self) -> memoryview:
        """The whole file as a writable view of bytes. Slices of it keep the memory alive; release before closing."""
        ...

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    def sync(self, offset: int, length: int) -> None:
        """Block until bytes [*offset*, *offset* + *length*) are durable (whole pages around them are written)."""
        ...

    def read_ahead(self, on: bool) -> None:
        """Have the system read more than what is asked for from the disk, as it does by default, or not."""
        ...

    def close(self) -> None:
        """Give the mapping back. Memory still referenced by slices lives until they are gone."""
        ...


class Lock(Protocol):
    """A folder held for this process until :meth:`release` or the end of the process."""

    def release(self) -> None:
        """Give the folder back."""
        ...


class Disk(Protocol):
    """What a service may do with files. All paths are strings; blocking calls go through :meth:`in_thread`."""

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a folder; an absent folder is an empty list."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; an existing one is fine."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises ``FileNotFoundError``."""
        ...

    def regular_file(self, path: str) -> str | None:
        """Return the absolute path of the regular file at *path*, links followed; ``None`` when there is none."""
        ...

    def open(self, path: str, *, create: bool = True, private: bool = False) -> File:
        """Open *path*, made if need be; a *private* one is then readable by this user alone."""
        ...

    def map(self, path: str, size: int, *, create: bool = True) -> Mapping:
        """Map *path*, creating it (unless told not to) or growing it with zeros to *size* bytes."""
        ...

    def allocate(self, path: str, offset: int, length: int) -> None:
        """Take the space of *length* bytes from *offset* of a mapped file, whose content does not change.

        A write through a mapping ends the process when the disk has no space for it; after this it has. Does nothing
        where the file system cannot. Raises ``OSError`` naming the path when there is no space.
        """
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename *source* over *target* atomically; durable after :meth:`sync_folder` of its folder."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; an absent one is fine."""
        ...

    def remove_tree(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None:
        """Block until names created, renamed and removed in the folder are durable."""
        ...

    def sync_everything(self, path: str) -> bool:
        """Block until every file and name on the file system of *path* is durable; cheaper than hundreds of syncs.

        Returns:
            False where the system has no call that waits for that: nothing was done then.
        """
        ...

    def usage(self, path: str) -> DiskUsage: ...
    def lock(self, path: str, content: bytes = b"") -> Lock:
        """Hold the lock file *path* for this process; one of another length gets *content*.

        Raises :class:`DiskLockedError`.
        """
        ...

    def boot_id(self) -> str:
        """Return what changes whenever unsynced bytes may have been lost: the identity of the running system."""
        ...

    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        """Run a blocking *function* (a sync, mostly) without stopping the event loop; not cancelled half-way.

        With *abandon* a cancelled caller goes on at once, and *function* ends whenever the disk lets it: only for what
        nobody relies on.
        """
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: str, create: bool, mode: int) -> None:
        self._fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), mode)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        parts = []
        while length > 0:
            part = os.pread(self._fd, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(self._fd, view, offset)
            view = view[written:]
            offset += written

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        if SYNCING.mappings_first and (size := self.size()):
            with mmap.mmap(self._fd, size) as mapped:
                mapped.flush()  # what was written through other mappings of the file, too
        SYNCING.sync(self._fd)  # where it can the length too, but not the times: those cost a commit of the journal

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealMapping:
    """A shared mapping of a file."""

    def __init__(self, path: str, size: int, create: bool) -> None:
        fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
        try:
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.view = memoryview(self._map)
        self.size = size
        self._path = path

    def sync(self, offset: int, length: int) -> None:
        # Not mmap.flush where it can be spared: it keeps the interpreter locked while the disk works.
        if SYNCING.mappings_first:
            start = offset - offset % mmap.ALLOCATIONGRANULARITY
            self._map.flush(start, min(offset + length, self.size) - start)
        try:
            fd = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return  # removed meanwhile: nothing is left to make durable
        try:
            SYNCING.sync(fd)
        finally:
            os.close(fd)

    def read_ahead(self, on: bool) -> None:
        self._map.madvise(mmap.MADV_NORMAL if on else mmap.MADV_RANDOM)

    def close(self) -> None:
        # Slices handed to connections may still be alive; then the memory goes when the last of them goes.
        try:
            self.view.release()
            self._map.close()
        except BufferError:
            return


class RealLock:
    """A lock file that is held; the kernel gives it back when the process ends, however it ends."""

    def __init__(self, path: str, content: bytes = b"") -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            hold(self._fd)
            if content and os.fstat(self._fd).st_size != len(content):
                os.pwrite(self._fd, content, 0)
        except OSError as error:
            os.close(self._fd)
            if error.errno in HELD_ERRORS:
                folder = os.path.dirname(path)
                raise DiskLockedError(
                    f"{folder} is held by another process; stop that process or give this one another folder"
                ) from None
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk(RealFiles):
    """The machine's file systems.

    Args:
        threads: how many blocking calls may run at the same time.
    """

    def __init__(self, threads: int = 4) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def open(self, path: str, *, create: bool = True, private: bool = False) -> File:
        return RealFile(path, create, 0o600 if private else 0o644)

    def map(self, path: str, size: int, *, create: bool = True) -> Mapping:
        return RealMapping(path, size, create)

    def allocate(self, path: str, offset: int, length: int) -> None:
        # Not posix_fallocate: where the file system cannot, it writes zeros beside those who write to the mapping.
        if _FALLOCATE is None or length <= 0:
            return
        fd = os.open(path, os.O_RDWR)
        try:
            if _FALLOCATE(fd, _KEEP_SIZE, offset, length) != 0:
                number = ctypes.get_errno()
                if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                    raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            SYNCING.sync_all(fd)
        finally:
            os.close(fd)

    def sync_everything(self, path: str) -> bool:
        syncfs = getattr(_LIBC, "syncfs", None)
        if syncfs is None:  # os.sync is no help: POSIX lets it return before anything is written
            return False
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)
        return True

    def usage(self, path: str) -> DiskUsage:
        return shutil.disk_usage(path)  # type: ignore[return-value]  # a named tuple with the same three fields

    def lock(self, path: str, content: bytes = b"") -> Lock:
        return RealLock(path, content)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            # Not Linux: every process counts as a new boot, so nothing unsynced is trusted.
            return str(uuid.uuid4())

    def busy(self) -> bool:
        """Whether threads work for this disk now."""
        return self._limiter.borrowed_tokens > 0

    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=abandon)
