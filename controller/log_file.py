"""The controller's own log file: elections, roles and what the quorum saw, apart from everything else in the process.

Whoever logs only leaves a line in memory. One task writes them in a worker thread, so that a slow disk holds up
nobody; what cannot be written waits, up to a bound, and is counted beyond it.
"""

from __future__ import annotations

import logging
import os.path
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from understudy.controller.configuration import ControllerConfig
from understudy.runtime.clock import Clock
from understudy.runtime.disk import Disk, DiskLockedError, Lock
from understudy.runtime.log import get_logger, line_formatter
from understudy.runtime.signal import Signal

log = get_logger("controller.log_file")

FILE_BYTES = 16 << 20
KEPT_FILES = 8
"""The file that is written and older ones, named ``.1`` (the newest of them) to ``.7``."""
MAX_WAITING = 10_000
LAST_WORDS_SECONDS = 2.0
"""How long the end waits for a disk that does not answer; what is not written by then is lost."""
OFF = "off"


def log_path(config: ControllerConfig) -> str | None:
    """Return where this controller's log lines go, or ``None`` when the settings turn the file off."""
    named = config.controller_log_file.strip()
    if named.lower() == OFF:
        return None
    return named or os.path.join(config.controller_store_path, "logs", "controller.log")


@asynccontextmanager
async def open_log_file(disk: Disk, clock: Clock, config: ControllerConfig) -> AsyncIterator[None]:
    """Keep this process's log lines of the controller in its file, too, while the body runs.

    A file that cannot be written is said once in the process's own log and does not stop the controller.

    Args:
        disk: of this process.
        clock: of this process; bounds how long the end waits for the disk.
        config: of the controller; names the file.
    """
    path = log_path(config)
    if path is None:
        yield
        return
    writer = LogFile(disk, path)
    logger = logging.getLogger("understudy.controller")
    logger.addHandler(writer.lines)
    try:
        log.info("log file", path=path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            try:
                yield
            finally:
                logger.removeHandler(writer.lines)
                await writer.finish(clock, LAST_WORDS_SECONDS)
    finally:
        writer.close()


class WaitingLines(logging.Handler):
    """Lines on their way to the file; may be added from any thread, taken by one.

    Args:
        limit: how many may wait; more are counted and dropped.
    """

    def __init__(self, limit: int = MAX_WAITING) -> None:
        super().__init__()
        self.setFormatter(line_formatter())
        self._limit = limit
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._token = trio.lowlevel.current_trio_token()
        self._more = Signal()
        self._handled = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Leave a line; never waits for the disk."""
        if len(self._waiting) < self._limit:
            self._waiting.append(self.format(record))
        else:
            self._dropped += 1
        with suppress(trio.RunFinishedError):  # a thread that outlives the loop has nobody left to write its line
            self._token.run_sync_soon(self.wake, idempotent=True)

    def wake(self) -> None:
        """Let :meth:`wait` return, once; only from the loop's own thread."""
        self._more.set()

    async def wait(self) -> None:
        """Return when there may be lines."""
        self._handled = await self._more.wait(self._handled)

    def take(self) -> list[str]:
        """Return all lines that wait, and a word about those that had no room."""
        self.acquire()
        try:
            lines, dropped = list(self._waiting), self._dropped
            self._waiting.clear()
            self._dropped = 0
        finally:
            self.release()
        if dropped:
            lines.append(f"... {dropped} lines are missing here: they could not be written")
        return lines

    def put_back(self, lines: list[str]) -> None:
        """Let lines that could not be written wait again, as far as there is room."""
        self.acquire()
        try:
            room = max(0, self._limit - len(self._waiting))
            self._waiting.extendleft(reversed(lines[:room]))
            self._dropped += len(lines) - len(lines[:room])
        finally:
            self.release()


class LogFile:
    """Writes lines to a file and replaces it when it is full.

    Args:
        disk: of this process.
        path: the file; its folder is made. One process at a time writes it.
        file_bytes: length at which a new file begins.
        kept_files: how many files there may be, this one included; the oldest is removed.
    """

    def __init__(self, disk: Disk, path: str, file_bytes: int = FILE_BYTES, kept_files: int = KEPT_FILES) -> None:
        self.lines = WaitingLines()
        self._disk = disk
        self._path = path
        self._file_bytes = file_bytes
        self._kept_files = kept_files
        self._lock: Lock | None = None
        self._failing = False
        self._scope = trio.CancelScope(shield=True)
        self._finishing = False
        self._finished = trio.Event()
        self._writing = threading.Lock()
        self._closed = False

    async def run(self) -> None:
        """Write whatever is logged until :meth:`finish`, whoever is cancelled meanwhile."""
        try:
            with self._scope:
                while not self._finishing:
                    await self.lines.wait()
                    await self.write()
                await self.write()
        finally:
            self._finished.set()

    async def finish(self, clock: Clock, seconds: float) -> None:
        """Let :meth:`run` write what waits and end, after *seconds* even if the disk does not answer.

        Whoever is cancelled meanwhile waits as long: what a controller says last is why it stopped.
        """
        self._finishing = True
        self.lines.wake()
        with clock.move_on_after(seconds) as waiting:
            waiting.shield = True
            await self._finished.wait()
        self._scope.cancel()

    async def write(self) -> None:
        """Write all lines that wait; those that cannot be written wait again.

        When this is cancelled the disk may go on with it, one call at a time.
        """
        try:
            await self._disk.in_thread(self._write_waiting, abandon=True)
        except (OSError, DiskLockedError) as error:
            if not self._failing:
                self._failing = True
                log.warning(
                    f"the log file {self._path} cannot be written: {_reason(error)}; the controller goes on, the lines "
                    "wait; controllerLogFile names another file or is off"
                )
        else:
            self._failing = False

    def close(self) -> None:
        """Give the file back to other processes, once nothing is being written any more."""
        self._closed = True
        if self._writing.acquire(blocking=False):
            try:
                if self._lock is not None:
                    self._lock.release()
                    self._lock = None
            finally:
                self._writing.release()

    def _write_waiting(self) -> None:
        with self._writing:
            lines = [] if self._closed else self.lines.take()
            try:
                if lines:
                    self._append(lines)
            except (OSError, DiskLockedError):
                self.lines.put_back(lines)
                raise
        if self._closed:
            self.close()  # whoever closed it meanwhile did not wait

    def _append(self, lines: list[str]) -> None:
        if self._lock is None:
            self._disk.make_folder(os.path.dirname(self._path) or ".")
            self._lock = self._disk.lock(f"{self._path}.lock")
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        file = self._disk.open(self._path)
        try:
            length = file.size()
            if length == 0 or length + len(data) <= self._file_bytes:
                file.write_at(length, data)
                return
        finally:
            file.close()
        self._make_room()
        fresh = self._disk.open(self._path)
        try:
            fresh.write_at(0, data)
        finally:
            fresh.close()

    def _make_room(self) -> None:
        """Rename each file to the next number; the last one is replaced by the one before it."""
        if self._kept_files == 1:
            self._disk.remove(self._path)
            return
        for number in range(self._kept_files - 1, 1, -1):
            if self._disk.exists(f"{self._path}.{number - 1}"):
                self._disk.replace(f"{self._path}.{number - 1}", f"{self._path}.{number}")
        self._disk.replace(self._path, f"{self._path}.1")


def _reason(error: OSError | DiskLockedError) -> str:
    if isinstance(error, DiskLockedError):
        return "another process writes it"
    return error.strerror or str(error)
