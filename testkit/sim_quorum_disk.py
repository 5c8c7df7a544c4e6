"""A disk in memory for quorum simulations: whatever was not synced may be lost, cut or garbled with the power."""

from __future__ import annotations

import os.path
import random
from collections.abc import Callable
from typing import TypeVar

import attrs
import trio

from understudy.runtime.disk import DiskLockedError, DiskUsage

T = TypeVar("T")


class PowerFailure(Exception):
    """Raised into the program at the sync during which the power goes; the harness ends the host then."""


@attrs.define(eq=False)
class _Inode:
    """Bytes of one file: what programs see, what is durable, and the writes between the two."""

    live: bytearray = attrs.field(factory=bytearray)
    durable: bytes = b""
    writes: list[tuple[int, bytes]] = attrs.field(factory=list)
    modified_ms: int = 0

    def sync(self) -> None:
        self.durable = bytes(self.live)
        self.writes.clear()


class QuorumFile:
    """An open file of the simulated disk."""

    def __init__(self, disk: QuorumDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._boot = disk.boot

    def _check(self) -> None:
        if self._boot != self._disk.boot:
            raise OSError("this file was open before the power went")

    def size(self) -> int:
        return len(self._inode.live)

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self._inode.live[offset : offset + length])

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._check()
        live = self._inode.live
        if offset > len(live):
            live.extend(bytes(offset - len(live)))
        live[offset : offset + len(data)] = data
        self._inode.writes.append((offset, bytes(data)))

    def truncate(self, length: int) -> None:
        self._check()
        live = self._inode.live
        if length < len(live):
            del live[length:]
            # a cut is treated as durable at once; nothing here relies on the old tail coming back
            self._inode.durable = self._inode.durable[:length]
            self._inode.writes = [(at, data) for at, data in self._inode.writes if at + len(data) <= length]
        else:
            live.extend(bytes(length - len(live)))

    def sync(self) -> None:
        self._check()
        self._disk.sync_count += 1
        if self._disk.power_fails_at_sync:
            raise PowerFailure("the power went while a file was being written")
        self._inode.sync()

    def close(self) -> None:
        """Nothing is held."""


class QuorumMapping:
    """A mapped file of the simulated disk; unsynced bytes are lost with the power."""

    def __init__(self, inode: _Inode, size: int) -> None:
        self._inode = inode
        if len(inode.live) < size:
            inode.live.extend(bytes(size - len(inode.live)))
        self.view = memoryview(inode.live)
        self.size = size

    def sync(self, offset: int, length: int) -> None:
        durable = bytearray(self._inode.durable.ljust(len(self._inode.live), b"\0"))
        durable[offset : offset + length] = self._inode.live[offset : offset + length]
        self._inode.durable = bytes(durable)

    def close(self) -> None:
        self.view.release()


@attrs.define
class QuorumDiskUsage:
    """Room on the simulated disk."""

    total: int
    used: int
    free: int


class _Lock:
    def __init__(self, disk: QuorumDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class QuorumDisk:
    """All files of one simulated host; satisfies ``understudy.runtime.disk.Disk``.

    Args:
        source: where the duration of blocking calls is drawn from.
        blocking_seconds: least and greatest duration of a call through :meth:`in_thread`.
        capacity_bytes: what :meth:`usage` reports.

    Attributes:
        power_fails_at_sync: the next sync finds the power gone.
    """

    def __init__(
        self,
        source: random.Random,
        blocking_seconds: tuple[float, float] = (0.0001, 0.001),
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.power_fails_at_sync = False
        self._random = source
        self._blocking_seconds = blocking_seconds
        self.boot = 0
        self.sync_count = 0
        self.locks: set[str] = set()
        self._capacity_bytes = capacity_bytes
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}

    def exists(self, path: str) -> bool:
        return path in self._names or any(name.startswith(path.rstrip("/") + "/") for name in self._names)

    def size(self, path: str) -> int:
        return len(self._find(path).live)

    def modified_ms(self, path: str) -> int:
        return self._find(path).modified_ms

    def listdir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted({name[len(prefix) :].split("/")[0] for name in self._names if name.startswith(prefix)})

    def make_folder(self, path: str) -> None:
        """Folders exist as soon as they are named."""

    def read(self, path: str) -> bytes:
        return bytes(self._find(path).live)

    def open(self, path: str, *, create: bool = True) -> QuorumFile:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(path)
            self._names[path] = _Inode()
        return QuorumFile(self, self._names[path])

    def map(self, path: str, size: int) -> QuorumMapping:
        return QuorumMapping(self._names.setdefault(path, _Inode()), size)

    def allocate(self, path: str, offset: int, length: int) -> None:
        """The space of a file is taken when it is mapped."""

    def replace(self, source: str, target: str) -> None:
        self._names[target] = self._find(source)
        del self._names[source]

    def remove(self, path: str) -> None:
        self._names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._names if name == path or name.startswith(prefix)]:
            del self._names[name]

    def sync_folder(self, path: str) -> None:
        for name in {*self._names, *self._durable_names}:
            if os.path.dirname(name) == path.rstrip("/"):
                if name in self._names:
                    self._durable_names[name] = self._names[name]
                else:
                    self._durable_names.pop(name, None)

    def sync_everything(self, path: str) -> None:
        for name in self._names:
            file = self.open(name, create=False)
            file.sync()
            file.close()
        self._durable_names = dict(self._names)

    def usage(self, path: str) -> DiskUsage:
        used = sum(len(inode.live) for inode in self._names.values())
        return QuorumDiskUsage(self._capacity_bytes, used, self._capacity_bytes - used)

    def lock(self, path: str) -> _Lock:
        if path in self.locks:
            raise DiskLockedError(
                f"{os.path.dirname(path)} is held by another process; stop that process or give this one another folder"
            )
        self.locks.add(path)
        return _Lock(self, path)

    async def in_thread(self, function: Callable[[], T]) -> T:
        # as a real worker thread, the call is not given up half-way; its effect comes somewhere inside its duration
        with trio.CancelScope(shield=True):
            await trio.sleep(self._random.uniform(*self._blocking_seconds))
            result = function()
            await trio.sleep(self._random.uniform(*self._blocking_seconds))
        await trio.lowlevel.checkpoint()
        return result

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def _find(self, path: str) -> _Inode:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    # -- faults --------------------------------------------------------------------------------------------------

    def process_died(self) -> None:
        """Close every file and lock of a killed process; what it wrote stays."""
        self.boot += 1
        self.power_fails_at_sync = False
        self.locks.clear()

    def lose_power(self, source: random.Random) -> None:
        """Forget an arbitrary part of what was not synced: names, whole writes, parts of writes, parts garbled."""
        self.process_died()
        if source.random() < 0.5:
            self._names = dict(self._durable_names)
        self._durable_names = dict(self._names)
        for name in sorted(self._names):
            inode = self._names[name]
            content = bytearray(inode.durable)
            for offset, data in inode.writes:
                fate = source.random()
                if fate < 0.3:
                    continue
                part = data if fate < 0.6 else data[: source.randint(0, len(data))]
                if part and fate > 0.9:
                    at = source.randrange(len(part))
                    part = part[:at] + bytes([part[at] ^ 0xFF]) + part[at + 1 :]
                if offset > len(content):
                    content.extend(bytes(offset - len(content)))
                content[offset : offset + len(part)] = part
            inode.live = content
            inode.sync()

    def wipe(self) -> None:
        """Take the disk away and put an empty one in."""
        self.process_died()
        self._names.clear()
        self._durable_names.clear()

    def damage(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file behind everybody's back: a bit flip, a cut, a zeroed tail."""
        inode = self._find(path)
        inode.live = bytearray(change(bytes(inode.live)))
        inode.sync()
