"""A disk in memory that loses power: it forgets exactly what was not synced.

Model, per file: the *page cache* (what processes see) and the *platter* (what survives). A sync copies the first to the
second. When the power goes, each page of 4 KiB that differs is lost, kept, or torn (some of its sectors of 512 bytes
are kept), each chosen at random, so later writes may survive earlier ones. Names created, renamed and removed survive
in order: of each folder, the changes since its last sync are kept up to a random one. A killed process loses nothing
that way: what it wrote stays in the page cache.
"""

from __future__ import annotations

import errno
import os.path
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import attrs
import trio

from understudy.runtime.disk import DiskLockedError, DiskUsage, File, Lock, Mapping
from understudy.testkit.sim.inode import PAGE_BYTES, Inode

T = TypeVar("T")
_HANGS_SECONDS = 600.0


@attrs.frozen
class NameChange:
    """One change of a folder that is not on the platter yet: *path* now means *inode* (None: nothing)."""

    path: str
    inode: Inode | None
    is_folder: bool = False


@attrs.define
class SimUsage:
    """Size of the simulated disk."""

    total: int
    used: int
    free: int


class PowerCut(Exception):
    """The power went in the middle of a sync; nothing of the host may go on."""


class SimFile:
    """An open file of a :class:`SimDisk`."""

    def __init__(self, disk: SimDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        return self._inode.length

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self._inode.cache[offset : min(offset + length, self._inode.length)])

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        raw = memoryview(data).cast("B")
        if self._disk.is_full and (offset + len(raw) > self._inode.length or not self._inode.platter_pages):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if offset + len(raw) > self._inode.length:
            self._inode.set_length(offset + len(raw))
        self._inode.cache[offset : offset + len(raw)] = raw
        self._inode.modified_ms = self._disk.now_ms()

    def truncate(self, length: int) -> None:
        self._inode.set_length(length)
        self._inode.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        self._disk.check_sync()
        self._inode.sync()

    def close(self) -> None:
        """Nothing to give back."""


class SimMapping:
    """A mapped file of a :class:`SimDisk`."""

    def __init__(self, disk: SimDisk, inode: Inode, size: int) -> None:
        self._disk = disk
        self._inode = inode
        self.size = size
        self.view = inode.cache[:size]

    def sync(self, offset: int, length: int) -> None:
        self._disk.check_sync()
        self._inode.sync()

    def read_ahead(self, on: bool) -> None:
        """Nothing: all of it is in memory."""

    def close(self) -> None:
        with suppress(BufferError):  # slices are alive: the memory goes with the last of them
            self.view.release()


class SimLock:
    """A held folder of a :class:`SimDisk`."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """A disk in memory, see the module's text. Use small file sizes: what is synced is compared page by page.

    Args:
        chance: decides what survives a power loss; the same seed and calls give the same result.
        now_ms: wall time, for the ages of files.
        total_bytes: size of the disk.
        sync_seconds: how long each call through :meth:`in_thread` takes on the trio clock.
        spread_seconds: up to so much more, drawn from *chance*, before and after the effect of each call.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        total_bytes: int = 1 << 40,
        sync_seconds: float = 0.0,
        spread_seconds: float = 0.0,
    ) -> None:
        self._chance = chance
        self.now_ms = now_ms
        self.total_bytes = total_bytes
        #: Set by a test to fill the disk; None: what the files take.
        self.used_bytes: int | None = None
        self.sync_seconds = sync_seconds
        self._spread_seconds = spread_seconds
        #: Set by a test: a call has its effect before it takes its time, so what is written meanwhile is not in it.
        self.effect_first = False
        #: Given by a test: no call through :meth:`in_thread` has an effect before that is set, or for ten minutes.
        self.answers: trio.Event | None = None
        #: Set by a test to let every sync fail.
        self.sync_error: OSError | None = None
        self.locks: set[str] = set()
        self._files: dict[str, Inode] = {}
        self._folders: set[str] = {"/", ""}
        self._platter_files: dict[str, Inode] = {}
        self._platter_folders: set[str] = {"/", ""}
        self._pending: list[NameChange] = []
        self._boot = 0
        self.syncs = 0
        #: Set by a test: the power goes instead of the sync after so many more.
        self.syncs_left: int | None = None

    # Accidents

    def lose_power(self) -> None:
        """Forget what was not synced. Objects opened before do not touch the disk any more."""
        by_folder: dict[str, list[NameChange]] = {}
        for change in self._pending:
            by_folder.setdefault(os.path.dirname(change.path), []).append(change)
        for folder in sorted(by_folder):
            changes = by_folder[folder]
            for change in changes[: self._chance.randint(0, len(changes))]:
                self._apply(change)
        self._pending = []
        self._platter_folders = {folder for folder in self._platter_folders if self._survives(folder)}
        left = {path: inode for path, inode in self._platter_files.items() if self._survives(os.path.dirname(path))}
        self._platter_files = {path: left[path].after_power_loss(self._chance) for path in sorted(left)}
        self._files = dict(self._platter_files)
        self._folders = set(self._platter_folders)
        self.locks.clear()
        self.syncs_left = None
        self._boot += 1

    def kill_process(self) -> None:
        """Detach everything opened before, as when the process is killed; nothing written is lost."""
        copies: dict[int, Inode] = {}

        def copy(inode: Inode) -> Inode:
            if id(inode) not in copies:
                copies[id(inode)] = inode.copy()
            return copies[id(inode)]

        self._files = {path: copy(inode) for path, inode in self._files.items()}
        self._platter_files = {path: copy(inode) for path, inode in self._platter_files.items()}
        self._pending = [
            attrs.evolve(change, inode=None if change.inode is None else copy(change.inode)) for change in self._pending
        ]
        self.locks.clear()

    def wipe(self) -> None:
        """Take the disk away and put an empty one in."""
        self.kill_process()
        self._files.clear()
        self._platter_files.clear()
        self._folders, self._platter_folders = {"/", ""}, {"/", ""}
        self._pending = []
        self.syncs_left = None
        self._boot += 1

    def damage(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file behind everybody's back, durably: a bit flip, a cut, a zeroed tail."""
        inode, data = self._inode(path), change(self.read(path))
        inode.set_length(len(data))
        inode.cache[: len(data)] = data
        inode.sync()

    @property
    def is_full(self) -> bool:
        """Whether a test has filled the disk: what has no space yet gets none."""
        return self.used_bytes is not None and self.used_bytes >= self.total_bytes

    def check_sync(self) -> None:
        """Count a sync, or fail it when a test wants that."""
        if self.sync_error is not None:
            raise self.sync_error
        if self.syncs_left is not None:
            if self.syncs_left == 0:
                raise PowerCut
            self.syncs_left -= 1
        self.syncs += 1

    # The interface of understudy.runtime.disk.Disk

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def size(self, path: str) -> int:
        return self._inode(path).length

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Give a file another age."""
        self._inode(path).modified_ms = modified_ms

    def listdir(self, path: str) -> list[str]:
        path = path.rstrip("/") or "/"
        names = {os.path.basename(each) for each in (*self._files, *self._folders) if os.path.dirname(each) == path}
        return sorted(name for name in names if name)

    def make_folder(self, path: str) -> None:
        path = path.rstrip("/") or "/"
        if path in self._folders:
            return
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "a file has that name", path)
        self.make_folder(os.path.dirname(path))
        self._folders.add(path)
        self._pending.append(NameChange(path, None, is_folder=True))

    def regular_file(self, path: str) -> str | None:
        return path if path in self._files else None

    def read(self, path: str) -> bytes:
        inode = self._inode(path)
        return bytes(inode.cache[: inode.length])

    def open(self, path: str, *, create: bool = True, private: bool = False) -> File:
        return SimFile(self, self._inode(path, create=create))

    def map(self, path: str, size: int, *, create: bool = True) -> Mapping:
        inode = self._inode(path, create=create)
        if inode.length < size:
            inode.set_length(size)
        return SimMapping(self, inode, size)

    def allocate(self, path: str, offset: int, length: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def replace(self, source: str, target: str) -> None:
        if source in self._folders:
            self._move_folder(source, target)
            return
        inode = self._inode(source)
        del self._files[source]
        self._files[target] = inode
        self._pending.append(NameChange(target, inode))
        self._pending.append(NameChange(source, None))

    def remove(self, path: str) -> None:
        if path in self._files:
            del self._files[path]
            self._pending.append(NameChange(path, None))

    def remove_tree(self, path: str) -> None:
        for each in [each for each in self._files if each == path or each.startswith(path + "/")]:
            self.remove(each)
        self._folders = {each for each in self._folders if each != path and not each.startswith(path + "/")}

    def sync_folder(self, path: str) -> None:
        path = path.rstrip("/") or "/"
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.check_sync()
        rest = []
        for change in self._pending:
            if os.path.dirname(change.path) == path:
                self._apply(change)
            else:
                rest.append(change)
        self._pending = rest

    def sync_everything(self, path: str) -> bool:
        self.check_sync()
        for inode in self._files.values():
            inode.sync()
        for change in self._pending:
            self._apply(change)
        self._pending = []
        return True

    def usage(self, path: str) -> DiskUsage:
        used = self.used_bytes
        if used is None:
            used = PAGE_BYTES * sum(inode.platter_pages for inode in self._files.values())
        used = min(used, self.total_bytes)
        return SimUsage(self.total_bytes, used, self.total_bytes - used)

    def lock(self, path: str, content: bytes = b"") -> Lock:
        inode = self._inode(path, create=True)
        if path in self.locks:
            raise DiskLockedError(
                f"{os.path.dirname(path)} is held by another process; stop that process or give this one another folder"
            )
        self.locks.add(path)
        if content and inode.length != len(content):
            self.open(path).write_at(0, content)
        return SimLock(self, path)

    def boot_id(self) -> str:
        return f"simulated-boot-{self._boot}"

    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        # as a real worker thread's, the call is not given up half-way
        with trio.CancelScope(shield=not abandon):
            if self.answers is not None:
                with trio.move_on_after(_HANGS_SECONDS):
                    await self.answers.wait()
            if not self.effect_first:
                await self._wait(self.sync_seconds)
            result = function()
            if self.effect_first:
                await self._wait(self.sync_seconds)
            if self._spread_seconds:
                await self._wait(0.0)
        return result

    async def _wait(self, seconds: float) -> None:
        seconds += self._chance.uniform(0, self._spread_seconds) if self._spread_seconds else 0.0
        if seconds:
            await trio.sleep(seconds)
        else:
            await trio.lowlevel.checkpoint()

    # Inside

    def _move_folder(self, source: str, target: str) -> None:
        """Give a folder another name: a power loss keeps or loses it for each file, though real disks do not."""
        if target in self._files or target in self._folders:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        if os.path.dirname(target) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", target)
        inside = source + "/"
        for folder in sorted(each for each in self._folders if each == source or each.startswith(inside)):
            self._folders.remove(folder)
            self.make_folder(target + folder.removeprefix(source))
        for path in [each for each in self._files if each.startswith(inside)]:
            self.replace(path, target + path.removeprefix(source))

    def _inode(self, path: str, *, create: bool = False) -> Inode:
        inode = self._files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if os.path.dirname(path) not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            inode = self._files[path] = Inode()
            inode.modified_ms = self.now_ms()
            self._pending.append(NameChange(path, inode))
        return inode

    def _apply(self, change: NameChange) -> None:
        if change.is_folder:
            self._platter_folders.add(change.path)
        elif change.inode is None:
            self._platter_files.pop(change.path, None)
        else:
            self._platter_files[change.path] = change.inode

    def _survives(self, folder: str) -> bool:
        while folder not in ("/", ""):
            if folder not in self._platter_folders:
                return False
            folder = os.path.dirname(folder)
        return True
