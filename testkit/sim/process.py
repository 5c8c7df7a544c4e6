"""A process of a simulated host: the production code with a world that can be taken away from it.

A real process that is killed does nothing more. A killed task of trio still runs its clean-up, so its world is *fenced*
first: from then on its disk and network refuse everything, and nothing the ghost does reaches anybody.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
import trio.lowlevel

from understudy.runtime.disk import Disk, DiskUsage, File, Lock, Mapping
from understudy.runtime.network import ByteStream, Listener, Network
from understudy.runtime.world import World
from understudy.testkit.sim.clock import StoppableClock

T = TypeVar("T")


class ProcessGoneError(OSError):
    """The process that makes this call has been killed."""

    def __init__(self) -> None:
        super().__init__("this process has been killed")


class Fence:
    """Open until the process is killed."""

    def __init__(self) -> None:
        self.closed = False

    def check(self) -> None:
        """Raise :class:`ProcessGoneError` after the kill."""
        if self.closed:
            raise ProcessGoneError


class FencedClock:
    """The host's clock as one process sees it.

    A process that is killed while its clock stands still is waiting for nothing any more: its deadlines are over, or
    its clean-up would last until the clock of its host goes on.
    """

    def __init__(self, clock: StoppableClock, fence: Fence) -> None:
        self._clock = clock
        self._fence = fence
        self._made = 0
        self._scopes: weakref.WeakValueDictionary[int, trio.CancelScope] = weakref.WeakValueDictionary()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def sleep_until(self, monotonic_seconds: float) -> None:
        await self._clock.sleep_until(monotonic_seconds)

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        scope = self._clock.move_on_after(seconds)
        if self._fence.closed and self._clock.stopped:
            scope.cancel()
        self._made += 1
        self._scopes[self._made] = scope
        return scope

    def killed(self) -> None:
        """End what waits, unless the clock goes on."""
        if self._clock.stopped:
            for _, scope in sorted(self._scopes.items()):
                scope.cancel()


class FencedDisk:
    """The host's disk as one process sees it."""

    def __init__(self, disk: Disk, fence: Fence) -> None:
        self._disk = disk
        self._fence = fence

    def exists(self, path: str) -> bool:
        self._fence.check()
        return self._disk.exists(path)

    def size(self, path: str) -> int:
        self._fence.check()
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        self._fence.check()
        return self._disk.modified_ms(path)

    def listdir(self, path: str) -> list[str]:
        self._fence.check()
        return self._disk.listdir(path)

    def make_folder(self, path: str) -> None:
        self._fence.check()
        self._disk.make_folder(path)

    def regular_file(self, path: str) -> str | None:
        self._fence.check()
        return self._disk.regular_file(path)

    def read(self, path: str) -> bytes:
        self._fence.check()
        return self._disk.read(path)

    def open(self, path: str, *, create: bool = True, private: bool = False) -> File:
        self._fence.check()
        return self._disk.open(path, create=create, private=private)

    def map(self, path: str, size: int, *, create: bool = True) -> Mapping:
        self._fence.check()
        return self._disk.map(path, size, create=create)

    def allocate(self, path: str, offset: int, length: int) -> None:
        self._fence.check()
        self._disk.allocate(path, offset, length)

    def replace(self, source: str, target: str) -> None:
        self._fence.check()
        self._disk.replace(source, target)

    def remove(self, path: str) -> None:
        self._fence.check()
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self._fence.check()
        self._disk.remove_tree(path)

    def sync_folder(self, path: str) -> None:
        self._fence.check()
        self._disk.sync_folder(path)

    def sync_everything(self, path: str) -> bool:
        self._fence.check()
        return self._disk.sync_everything(path)

    def usage(self, path: str) -> DiskUsage:
        self._fence.check()
        return self._disk.usage(path)

    def boot_id(self) -> str:
        self._fence.check()
        return self._disk.boot_id()

    def lock(self, path: str, content: bytes = b"") -> Lock:
        self._fence.check()
        return self._disk.lock(path, content)

    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        self._fence.check()
        return await self._disk.in_thread(function, abandon=abandon)


class FencedNetwork:
    """The host's network as one process sees it."""

    def __init__(self, network: Network, fence: Fence) -> None:
        self._network = network
        self._fence = fence

    async def listen(self, host: str, port: int) -> Listener:
        self._fence.check()
        return await self._network.listen(host, port)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        self._fence.check()
        return await self._network.connect(host, port, timeout_seconds)

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        self._fence.check()
        return await self._network.resolve(host, timeout_seconds)


class SimProcess:
    """One process of a simulated host.

    Args:
        clock, network, disk, source: the host's world.

    Attributes:
        world: what the process gets.
        gone: set when it has ended, however it ended.
        task: the one below which all its tasks are, once it runs.
        failure: why it ended by itself, ``None`` otherwise.
    """

    def __init__(self, clock: StoppableClock, network: Network, disk: Disk, source: random.Random) -> None:
        self._fence = Fence()
        self._clock = FencedClock(clock, self._fence)
        self.world = World(self._clock, FencedNetwork(network, self._fence), FencedDisk(disk, self._fence), source)
        self.gone = trio.Event()
        self.task: trio.lowlevel.Task | None = None
        self.failure: BaseException | None = None
        self._scope = trio.CancelScope()
        self._boot_scope = trio.CancelScope()

    @property
    def fenced(self) -> bool:
        """Whether what it does reaches nobody any more."""
        return self._fence.closed

    def fence(self) -> None:
        """Let what it does from now on reach nobody; :meth:`vanish` ends it."""
        self._fence.closed = True

    async def boot(self, work: Callable[[SimProcess], Awaitable[None]]) -> None:
        """Start *work* in it; returns as well when the process is killed meanwhile. Raises what it failed with."""
        try:
            with self._boot_scope:
                await work(self)
        except Exception:
            if not self._fence.closed:  # else: a ghost's complaints
                raise
        if self.failure is not None:
            raise self.failure

    async def run(
        self,
        work: Callable[..., Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run *work* (called with ``task_status=``) until it ends; never raises, see :attr:`failure`."""
        self.task = trio.lowlevel.current_task()
        try:
            with self._scope:
                await work(task_status=task_status)
        except Exception as error:
            if not self._fence.closed:  # a ghost's complaints are nobody's business
                self.failure = error
        finally:
            self.gone.set()

    async def stop(self) -> None:
        """End the process as SIGTERM does, clean-up included."""
        self._scope.cancel()
        await self.gone.wait()

    async def vanish(self) -> None:
        """End the process as SIGKILL does; what it does from now on reaches nobody."""
        self.fence()
        self._boot_scope.cancel()
        self._scope.cancel()
        self._clock.killed()
        await self.gone.wait()
