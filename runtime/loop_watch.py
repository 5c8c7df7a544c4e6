"""Who holds the event loop: what kept all tasks waiting for long is named in the log.

Two parts. The loop notes when each of its turns begins and ends, which costs well below a microsecond. A thread looks
now and then whether the turn that is going on is an old one, and where it is in the code; the turn tells when it ends.
While the loop sleeps, so does the thread: an idle process must cost nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType

import trio

from understudy.runtime.log import get_logger

log = get_logger("runtime.loop_watch")

LIMIT_SECONDS = 0.1
PROJECT = "understudy."


class LoopWatch(trio.abc.Instrument):
    """An instrument of one event loop; its thread runs inside :func:`watched`.

    Args:
        limit_seconds: turns that take longer are told.

    Attributes:
        held: how many turns took longer.
    """

    def __init__(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.held = 0
        self._limit_seconds = limit_seconds
        self._since = 0.0  # when the turn began; 0 while the loop sleeps
        self._sample: tuple[float, str] = (0.0, "")  # a turn, and where the thread saw it
        self._loop = 0
        self._dozing = False  # the thread waits for the next turn
        self._turn = threading.Event()
        self._stopped = threading.Event()

    def before_run(self) -> None:
        self._loop = threading.get_ident()

    def after_io_wait(self, timeout: float) -> None:
        self._since = perf_counter()
        if self._dozing:
            self._dozing = False
            self._turn.set()

    def before_io_wait(self, timeout: float) -> None:
        since, self._since = self._since, 0.0
        if since and perf_counter() - since > self._limit_seconds:
            self._tell(since, perf_counter() - since)

    def _tell(self, since: float, seconds: float) -> None:
        self.held += 1
        turn, where = self._sample
        log.warning(
            "a task held the event loop",
            milliseconds=round(seconds * 1000),
            where=where if turn == since else "many short tasks, or the machine was busy",
        )

    def look(self) -> None:
        """Note where the turn that is going on is, if it is an old one; called by the thread."""
        since = self._since
        if since and perf_counter() - since > self._limit_seconds / 2 and self._sample[0] != since:
            frame = sys._current_frames().get(self._loop)
            if frame is not None:
                self._sample = since, innermost(frame)

    def run_thread(self) -> None:
        """Look until :meth:`stop`."""
        while not self._stopped.wait(self._limit_seconds / 4):
            self.look()
            self._doze()

    def _doze(self) -> None:
        """Wait for the next turn while the loop sleeps."""
        self._turn.clear()
        self._dozing = True
        # Looked at after the note: a turn that begins in between sees the note, or is seen here.
        if not self._since and not self._stopped.is_set():
            self._turn.wait()
        self._dozing = False

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._turn.set()


def innermost(frame: FrameType) -> str:
    """Return module, function and line of the innermost frame of this project, or else of any."""
    known: FrameType | None = frame
    while known is not None and not str(known.f_globals.get("__name__", "")).startswith(PROJECT):
        known = known.f_back
    shown = known if known is not None else frame
    return f"{shown.f_globals.get('__name__', '?')}.{shown.f_code.co_qualname} line {shown.f_lineno}"


@contextmanager
def watched(limit_seconds: float = LIMIT_SECONDS) -> Iterator[LoopWatch]:
    """Give the instrument for one ``trio.run``; its thread lives until the block ends."""
    watch = LoopWatch(limit_seconds)
    thread = threading.Thread(target=watch.run_thread, name="loop watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()
