"""The holes of a log: damage that recovery made void, remembered until the bytes are back.

A void record looks whole to every later start. A slave must know nevertheless that its master has something else
there, so physical offsets stand in a small file, ``recovery.hole``, one a line, from before the record is written until
it is repaired or the log is cut there. Of each file of the log it is the first hole: a message there says nothing of
the holes after it, but they go with it when retention deletes the file, and those of later files stay. While what came
back is entered into queues and index again, a line ``again`` says from where on: a start in the middle of that enters
everything from there on. A line ``copied`` names the first void record of a file that came from a master, which lacked
what was there and may get it back. It is noted before a mark says that the log reaches behind it; without a mark a
start finds it by itself.

What is about to come back to a master has a line ``back FIRST AFTER``, from before it is written until it is entered,
and then a line ``entered FIRST AFTER``, until it is known that all of it has a place in its queues: others may have got
the queue offsets of lost messages, and whoever dies in between must not forget them.

Deferred messages pass a hole while a master serves with it. A line ``passed KIND QUEUE FIRST AFTER`` for each queue of
them says which queue offsets; ``AFTER`` is 0 as long as it goes on. They go when nothing is missing or waits any more.
A line ``putting`` says where the log ended before the first of what came back and has no place was put at the end of
its queue: a start finds behind it what was put and not noted.

The reference has no such file: it cuts its log at the first damage.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Callable, Hashable, Iterable
from functools import partial

import trio

from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger

log = get_logger("store.holes")

FILE_NAME = "recovery.hole"
_HOLE, _AGAIN, _COPIED, _BACK, _ENTERED, _PASSED = "", "again", "copied", "back", "entered", "passed"
_PUTTING = "putting"
_NUMBERS = {_HOLE: 1, _AGAIN: 1, _COPIED: 1, _BACK: 2, _ENTERED: 2, _PASSED: 4, _PUTTING: 1}
"""How many numbers a line of each kind has; that of a hole has nothing else."""
_MOST_DIGITS = 19

Spans = tuple[tuple[int, int], ...]
"""Parts of the log, of whole records: the first byte of each and the one after it."""
Passed = tuple[tuple[int, int, int, int], ...]
"""Queue offsets that were passed while there was a hole: kind and number of the queue, the first of them, and the one
after the last, 0 while it goes on. What the kinds are whoever notes them knows."""


def first_holes(found: Iterable[int], file_bytes: int) -> tuple[int, ...]:
    """Return the lowest of the offsets *found* in each file of *file_bytes* bytes, in order."""
    lowest: dict[int, int] = {}
    for offset in sorted(found):
        lowest.setdefault(offset // file_bytes, offset)
    return tuple(lowest.values())


class Holes:
    """The note of one log.

    Args:
        disk: where it is.
        folder: of the store.
        file_bytes: size of a file of the log.
        min_offset: returns the first byte of the log.

    Attributes:
        noted: the first hole of each file, as it is known durably.
        again: from here on (bytes) queues and index may lack messages, and a start enters them again; ``None``: they
            lack none.
        copied: the first record of each file that stands in for lost ones and was copied, or found by a start; known,
            and durably so when :attr:`is_saved`.
        back: what is being written, or is written and not entered.
        entered: what was written and entered, where its place was free.
        putting: where the log ended (bytes) before the first of :attr:`entered` was put once more; ``None``: none was.
        put: what names each of them that is known to be put, which is not noted yet.
        found: called when there is a first hole where there was none.
        is_put_known: whether those are all; after a start the log is asked.
        behind: damage was found that is not noted yet.
        found_s: when it was found in a log of which nothing was missing, in monotonic seconds.
    """

    def __init__(self, disk: Disk, folder: str, file_bytes: int, min_offset: Callable[[], int]) -> None:
        self._disk = disk
        self._folder = folder
        self._path = os.path.join(folder, FILE_NAME)
        self._file_bytes = file_bytes
        self._min_offset = min_offset
        self._turn = trio.Lock()
        self.noted: tuple[int, ...] = ()
        self.again: int | None = None
        self.copied: tuple[int, ...] = ()
        self._saved_copied: tuple[int, ...] = ()
        self.back: Spans = ()
        self.entered: Spans = ()
        self._passed: Passed = ()
        self._passed_since: list[tuple[int, int, int, int]] = []  # others go on while a thread writes
        self.putting: int | None = None
        self.put: set[Hashable] = set()
        self.is_put_known = True
        self.behind, self.found_s = False, -math.inf
        self.found: list[Callable[[], None]] = []
        self._entering: Spans = ()
        self._saved = b""

    @property
    def first(self) -> int | None:
        """The first hole whose file is still there; ``None`` for a log without one."""
        return self._first_of(self.noted)

    @property
    def passed(self) -> Passed:
        """What deferred services may have passed while there was a hole."""
        return (*self._passed, *self._passed_since)

    @property
    def first_copied(self) -> int | None:
        """The first of :attr:`copied` whose file is still there; ``None`` for none."""
        return self._first_of(self.copied)

    def _first_of(self, offsets: tuple[int, ...]) -> int | None:
        if not offsets:
            return None
        low = self._min_offset()
        return next((each for each in offsets if each >= low), None)

    def came_back(self) -> Spans:
        """Return where messages came back that may have no place in their queues; see :attr:`entered`."""
        return self.entered

    @property
    def is_saved(self) -> bool:
        """Whether everything that is known is noted durably."""
        return self.copied == self._saved_copied

    def copy(self, offset: int) -> None:
        """Know that a record at *offset* (bytes) stands in for lost ones; durable with :meth:`save`."""
        self.copied = first_holes((*self.copied, offset), self._file_bytes)

    def forget_copied(self, start: int) -> None:
        """Forget those from *start* (bytes) on: other bytes are there now, or none."""
        self.copied = tuple(each for each in self.copied if each < start)

    def forget_from(self, start: int) -> None:
        """Forget what was copied or came back from *start* (bytes) on: the log is cut there."""
        self.forget_copied(start)
        self.back, self.entered = _before(self.back, start), _before(self.entered, start)
        if self.putting is not None:
            self.putting = min(self.putting, start)
            self.put.clear()
            self.is_put_known = False

    def load(self) -> None:
        """Read the note. Blocking."""
        self.noted, self.again, self.copied, self._saved_copied, self.back, self.entered = (), None, (), (), (), ()
        self._passed, self._passed_since, self.putting, self._entering = (), [], None, ()
        if not self._disk.exists(self._path):
            return
        found: dict[str, list[list[int]]] = {kind: [] for kind in _NUMBERS}
        self._saved = self._disk.read(self._path)
        for line in self._saved.decode("ascii", "replace").splitlines() or [""]:
            kind = line.rstrip("0123456789 ")
            numbers = line[len(kind) :].split()
            if len(numbers) != _NUMBERS.get(kind) or any(len(each) > _MOST_DIGITS for each in numbers):
                log.warning("a line of the note of the log's holes is left out", path=self._path, line=line)
                continue
            found[kind].append(list(map(int, numbers)))
        self.noted = first_holes((each for (each,) in found[_HOLE]), self._file_bytes)
        low = self._min_offset()
        self._saved_copied = first_holes((each for (each,) in found[_COPIED]), self._file_bytes)
        self.copied = tuple(each for each in self._saved_copied if each >= low)
        self.back = tuple((first, after) for first, after in found[_BACK])
        self.entered = tuple((first, after) for first, after in found[_ENTERED])
        self._passed = tuple((kind, queue, first, after) for kind, queue, first, after in found[_PASSED])
        self._entering = self.back  # the start enters all of it
        self.putting = min((each for (each,) in found[_PUTTING]), default=None)
        self.is_put_known = self.putting is None
        # Whether what was about to be written was entered nobody knows.
        self.again = min((*(each for (each,) in found[_AGAIN]), *(first for first, _ in self.back)), default=None)

    def keep(self, found: Iterable[int], again: int | None = None) -> None:
        """Note durably that these are the holes of the log (bytes); of nothing nothing is kept. Blocking.

        Args:
            found: where they begin.
            again: as the attribute.

        Raises:
            OSError: the disk did not take it.
        """
        self._keep(found, again, self.back, self.entered)

    def _keep(self, found: Iterable[int], again: int | None, back: Spans, entered: Spans) -> None:
        low = self._min_offset()
        holes = first_holes((each for each in found if each >= low), self._file_bytes)
        copied = self.copied
        back, entered = (tuple(each for each in spans if each[1] > low) for spans in (back, entered))
        since = len(self._passed_since)
        passed = (*self._passed, *self._passed_since[:since]) if holes or back or entered else ()
        putting = self.putting if entered else None
        content = "".join(
            [
                *(f"{each}\n" for each in holes),
                *([] if again is None else [f"{_AGAIN} {again}\n"]),
                *(f"{_COPIED} {each}\n" for each in copied),
                *(f"{_BACK} {first} {after}\n" for first, after in back),
                *(f"{_ENTERED} {first} {after}\n" for first, after in entered),
                *(f"{_PASSED} {' '.join(map(str, each))}\n" for each in passed),
                *([] if putting is None else [f"{_PUTTING} {putting}\n"]),
            ]
        ).encode("ascii")
        if content == self._saved:
            pass
        elif content:
            write_durably(self._disk, self._path, content, keep_previous=False)
        elif self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_folder(self._folder)
        self._saved = content
        self.noted, self.again, self._saved_copied = holes, again, copied
        self.back, self.entered, self._passed, self.putting = back, entered, passed, putting
        del self._passed_since[:since]

    async def save(self) -> None:
        """Note durably what was copied. Raises ``OSError``: the disk did not take it."""
        await self.change(lambda noted: noted)

    async def note_copied(self) -> None:
        """Note what stands in for lost messages as holes of this log: a master has nobody who would give them unasked.

        Raises ``OSError``: the disk did not take it.
        """
        if self.first_copied is not None and self.first_copied not in self.noted:
            log.warning("messages are missing in the log, and were when it was copied", missing_from=self.first_copied)
        await self.change(lambda noted: [*noted, *self.copied])

    async def change(self, change: Callable[[tuple[int, ...]], Iterable[int]]) -> None:
        """Note durably what *change* makes of what was noted; one such change after the other.

        Raises ``OSError``: the disk did not take it.
        """
        async with self._turn:
            before = self.first
            await self._disk.in_thread(partial(self.keep, change(self.noted), self.again))
        if before is None and self.first is not None:
            for listener in list(self.found):
                listener()

    async def begin_again(self, start: int) -> None:
        """Note durably that messages from *start* (bytes) on are about to be entered again. Raises ``OSError``."""
        async with self._turn:
            start = start if self.again is None else min(start, self.again)
            self._entering = self.back
            await self._disk.in_thread(partial(self.keep, self.noted, start))

    async def end_again(self, change: Callable[[tuple[int, ...]], Iterable[int]]) -> None:
        """Note durably that they are entered, and what *change* makes of the holes. Raises ``OSError``."""
        async with self._turn:
            back = tuple(each for each in self.back if each not in self._entering)
            entered = (*self.entered, *(each for each in self._entering if each not in self.entered))
            await self._disk.in_thread(partial(self._keep, change(self.noted), None, back, entered))

    # --- what comes back -----------------------------------------------------------------------------------------

    async def note_back(self, spans: Iterable[tuple[int, int]]) -> None:
        """Note durably that *spans* are about to be written. Raises ``OSError``: the disk did not take it."""
        async with self._turn:
            back = (*self.back, *(each for each in spans if each not in self.back))
            await self._disk.in_thread(partial(self._keep, self.noted, self.again, back, self.entered))

    def pass_over(self, kind: int, queue: int, first: int, after: int) -> None:
        """Know that these queue offsets were passed unread; durable with the hole that they lie in.

        Args:
            kind, queue, first, after: as in :attr:`passed`.
        """
        self._passed_since.append((kind, queue, first, after))

    async def note_passed(self, change: Callable[[Passed], Passed]) -> None:
        """Note durably what *change* makes of :attr:`passed`; it is known also when the disk refuses.

        Raises ``OSError``: the disk did not take it.
        """
        async with self._turn:
            before = self.passed
            passed = change(before)
            if passed == before:
                return
            self._passed, self._passed_since = passed, []
            await self._disk.in_thread(partial(self.keep, self.noted, self.again))

    async def begin_putting(self, end: int) -> None:
        """Note durably that the log ends at *end* (bytes) before anything is put once more, unless that is noted.

        Raises ``OSError``: the disk did not take it.
        """
        async with self._turn:
            if self.putting is None:
                self.putting = end
                try:
                    await self._disk.in_thread(partial(self.keep, self.noted, self.again))
                except BaseException:
                    self.putting = None
                    raise

    async def placed(self, spans: Spans, left: Iterable[tuple[int, int]] = ()) -> None:
        """Note durably that what of *spans* is not *left* is in its queues, and durable. Raises ``OSError``."""
        async with self._turn:
            entered, putting = (*(each for each in self.entered if each not in spans), *left), self.putting
            self.putting = None
            try:
                await self._disk.in_thread(partial(self._keep, self.noted, self.again, self.back, entered))
            except BaseException:
                self.putting = putting
                raise
            self.put.clear()
            self.is_put_known = True


def _before(spans: Spans, end: int) -> Spans:
    return tuple((first, min(after, end)) for first, after in spans if first < end)
