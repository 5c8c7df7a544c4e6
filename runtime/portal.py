"""A way into trio for programs that do not run it: one trio run in a thread of its own.

Whatever is asked of it runs there as a task; the caller has a future that is cancelled as the task is, and the other
way round. So back-pressure, time-outs and errors are those of the trio call.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import trio

from understudy.runtime.portal_jobs import AtOnce, FutureJob, Job, WaitingJob
from understudy.runtime.signal import Signal

T = TypeVar("T")


_IDLE_MOST = 64
"""Tasks that wait for the next call; to begin a task costs more than to wake one."""


class PortalClosedError(RuntimeError):
    """The thread behind the portal has ended, or it is asked from that thread itself."""


class Worker:
    """A task of the portal and the job that it does, if any; made in that task."""

    __slots__ = ("_idle", "job", "scope", "task")

    def __init__(self, job: Job, idle: list[Worker]) -> None:
        self.job: Job | None = job
        self.scope = trio.CancelScope()
        self.task = trio.lowlevel.current_task()
        self._idle = idle

    def never_mind(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Give up waiting for a job."""
        self._idle.remove(self)
        return trio.lowlevel.Abort.SUCCEEDED


class Portal:
    """A trio run in a thread. Use it as a context manager.

    Attributes:
        elsewhere: this process was forked after it was opened: its thread runs in the process that was copied.
    """

    def __init__(self) -> None:
        self.elsewhere = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="understudy-portal", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._over = False
        self._asked: deque[tuple[Callable[[Job], None], Job]] = deque()
        self._woken = False  # whether the thread will look for what is asked
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._without_task: set[Job] = set()
        self._begun: list[Callable[[], None]] = []
        self._afterwards: list[Callable[[], None]] = []
        self._turn_over = Signal()

    def __enter__(self) -> Portal:
        self._thread.start()
        self._ready.wait()
        # Whoever forgets to leave a block leaves it while Python ends, when this thread would answer no more.
        atexit.register(self.close)
        _entered.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs and wait until the thread has ended; a second call does nothing."""
        if self.elsewhere:
            return
        _entered.discard(self)
        self._closing = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._end)
        self._thread.join()
        atexit.unregister(self.close)

    def submit(self, call: Callable[..., Awaitable[T]], *args: object) -> Future[T]:
        """Run ``call(*args)`` as a task.

        Args:
            call: an async function.
            args: for it.

        Returns:
            Its result or error; cancelling the future cancels the task.

        Raises:
            PortalClosedError: nothing runs any more.
        """
        future: Future[T] = Future()
        job = FutureJob(call, args, future)
        future.add_done_callback(lambda done: self.cancel(job) if done.cancelled() else None)
        self.start(job)
        return future

    def call(
        self,
        call: Callable[..., Awaitable[T]],
        *args: object,
        unclaimed: Callable[[T], None] | None = None,
        at_once: AtOnce | None = None,
    ) -> T:
        """Run ``call(*args)`` and wait for its result; an interrupt of the caller cancels it. Raises what it raises.

        Args:
            call: an async function.
            args: for it.
            unclaimed: see :class:`Job`.
            at_once: see :class:`Job`.
        """
        job = WaitingJob(call, args, unclaimed, at_once)
        self.start(job)
        try:
            job.done.acquire()
        except BaseException:
            self.cancel(job)
            raise
        if job.error is not None:
            error, job.error = job.error, None
            raise error
        result: T = job.result
        return result

    def start(self, *jobs: Job) -> None:
        """Begin *jobs*, by one word to the thread. Raises :class:`PortalClosedError` when nothing runs any more."""
        self.check_open()
        self._ask(self._begin, *jobs)

    def check_open(self) -> None:
        """Raise :class:`PortalClosedError` when nothing runs any more, or this is the portal's own thread."""
        if self.elsewhere:
            raise PortalClosedError("the client was opened before this process was forked; open one in this process")
        if self._closing or threading.current_thread() is self._thread:
            raise PortalClosedError(
                "the client is closed: its block was left (or it is asked from its own thread, where `await` would do)"
            )

    def after_this_turn(self, call: Callable[[], None]) -> None:
        """Call *call* once the tasks that can run now have run. In the portal's thread only; *call* must not raise.

        When nothing runs any more it is called at once, in whatever thread.
        """
        if self._over:
            call()
            return
        self._afterwards.append(call)
        self._turn_over.set()

    def after_this_look(self, call: Callable[[], None]) -> None:
        """Call *call* once all that was asked for together has begun. Only while a call is begun without a task."""
        self._begun.append(call)

    def cancel(self, job: Job) -> None:
        """Cancel *job* if it has not ended; it is told as any end is. What it returned is unclaimed."""
        self._ask(self._cancel, job)

    # --- between the threads -----------------------------------------------------------------------------------

    def _ask(self, what: Callable[[Job], None], *jobs: Job) -> None:
        # One word to the other thread is enough for all that is asked until it looks: it looks after it has taken back
        # `_woken`, and here the question stands before `_woken` is read, so none is left lying.
        self._asked.extend([(what, job) for job in jobs])
        if self._over:
            self._refuse()
        if self._woken:
            return
        self._woken = True
        assert self._token is not None  # set before the portal is entered
        try:
            self._token.run_sync_soon(self._look)
        except trio.RunFinishedError:
            self._refuse()

    def _look(self) -> None:
        self._woken = False
        while self._asked:
            what, job = self._asked.popleft()
            what(job)
        while self._begun:
            self._begun.pop()()

    def _begin(self, job: Job) -> None:
        at_once, job.at_once = job.at_once, None
        if at_once is not None and not job.gone:
            with suppress(Exception):  # the task raises it, too
                job.give_up = at_once(partial(self._told, job))
            if job.give_up is not None:
                self._without_task.add(job)
                return
        if self._idle:
            worker = self._idle.pop()
            worker.job = job
            job.worker = worker
            trio.lowlevel.reschedule(worker.task)
        elif self._nursery is None or self._nursery.cancel_scope.cancel_called:
            job.failed(CancelledError())
        else:
            self._nursery.start_soon(self._work, job)

    def _told(
        self,
        job: Job,
        result: Any = None,
        *,
        error: BaseException | None = None,
        rest: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self._without_task.discard(job)
        job.give_up = None
        if rest is not None:
            job.call, job.args = rest, ()
            self._begin(job)
        elif error is not None:
            job.failed(error)
        else:
            job.result = result
            job.returned(result)

    def _cancel(self, job: Job) -> None:
        job.gone = True  # it may not have begun
        if job.give_up is not None:
            job.give_up()
            self._told(job, error=CancelledError())
        elif job.worker is not None:
            job.worker.scope.cancel()
        else:
            job.give_back()

    # --- in the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        finally:
            self._closing = self._over = True
            self._ready.set()
            self._call_afterwards()
            for worker in list(self._workers):  # only if the event loop itself has failed
                if worker.job is not None:
                    worker.job.failed(CancelledError())
            for job in list(self._without_task):
                self._told(job, error=CancelledError())
            self._refuse()

    def _refuse(self) -> None:
        """Tell those that asked when nothing ran any more."""
        with suppress(IndexError):  # another thread does the same
            while True:
                what, job = self._asked.popleft()
                if what == self._begin:
                    job.failed(CancelledError())

    async def _serve(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            handled = 0
            while True:
                handled = await self._turn_over.wait(handled)
                self._call_afterwards()

    def _call_afterwards(self) -> None:
        calls, self._afterwards = self._afterwards, []
        for call in calls:
            call()

    def _end(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _work(self, first: Job) -> None:
        worker = first.worker = Worker(first, self._idle)
        self._workers.add(worker)
        try:
            while worker.job is not None or len(self._idle) < _IDLE_MOST:
                # One scope for job after job, as long as none is cancelled: to open one for each would cost as much as
                # a small call itself.
                with trio.CancelScope() as worker.scope:
                    while not worker.scope.cancel_called:
                        job = worker.job
                        if job is None:
                            if len(self._idle) >= _IDLE_MOST:
                                return
                            self._idle.append(worker)
                            await trio.lowlevel.wait_task_rescheduled(worker.never_mind)
                            continue
                        if job.gone:
                            worker.job = job.worker = None
                            job.failed(CancelledError())
                            continue
                        try:
                            result = job.result = await job.call(*job.args)
                        except Exception as error:
                            worker.job = job.worker = None
                            job.failed(error)
                        except BaseException:
                            worker.job = job.worker = None
                            job.failed(CancelledError())
                            raise
                        else:
                            worker.job = job.worker = None
                            if job.gone:  # the cancel came too late to stop it
                                job.give_back()
                            job.returned(result)
        finally:
            self._workers.discard(worker)


_entered: weakref.WeakSet[Portal] = weakref.WeakSet()
_shared_lock = threading.Lock()
_shared: list[Portal] = []
_users = 0


def _begin_anew() -> None:
    """Have a forked process know that threads were not copied: whatever was asked of them would wait for ever."""
    global _shared_lock, _users
    for portal in list(_entered):
        portal.elsewhere = True
    _entered.clear()
    _shared_lock, _users = threading.Lock(), 0  # another thread may have held it
    _shared.clear()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def shared_portal() -> Iterator[Portal]:
    """Use the one portal of this process; it is there as long as anybody uses it."""
    global _users
    with _shared_lock:
        if not _shared:
            _shared.append(Portal().__enter__())
        _users += 1
        portal = _shared[0]
    try:
        yield portal
    finally:
        with _shared_lock:
            if not portal.elsewhere:
                _users -= 1
                if not _users:
                    _shared.pop().close()
