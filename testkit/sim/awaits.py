"""A process that ends at one await of one of its works: where a kill by time would hardly ever meet it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import trio
import trio.lowlevel

from understudy.testkit.sim.process import SimProcess


class _Trap(trio.abc.Instrument):
    """Counts the awaits of some modules in the tasks of one process, and springs at one of them."""

    def __init__(self, process: SimProcess, modules: Sequence[str], number: int, spring: Callable[[], None]) -> None:
        self._process = process
        self._modules = modules
        self._left = number
        self._spring = spring
        self._known: weakref.WeakKeyDictionary[trio.lowlevel.Task, bool] = weakref.WeakKeyDictionary()
        self.sprung = trio.Event()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.sprung.is_set() or not self._belongs(task) or task.coro.cr_frame is None:
            return
        files = {frame.f_code.co_filename for frame, _ in task.iter_await_frames()}
        if any(module in file for file in files for module in self._modules):
            self._left -= 1
            if self._left == 0:
                self._spring()
                self.sprung.set()

    def _belongs(self, task: trio.lowlevel.Task) -> bool:
        known = self._known.get(task)
        if known is None:
            nursery = task.parent_nursery
            known = task is self._process.task or (nursery is not None and self._belongs(nursery.parent_task))
            self._known[task] = known
        return known


async def reach_await(
    process: SimProcess, modules: Sequence[str], number: int, seconds: float, spring: Callable[[], None]
) -> bool:
    """Wait until tasks of *process* have come to an await in *modules* for the *number*-th time from now.

    Args:
        process: whose tasks.
        modules: parts of paths of source files; a task is in one when it is anywhere on the stack of its awaits.
        number: from 1 on.
        seconds: how long to wait at most, in virtual time.
        spring: called at that very await, before any other task has its turn; it must not raise.

    Returns:
        whether it came to that.
    """
    trap = _Trap(process, modules, number, spring)
    trio.lowlevel.add_instrument(trap)
    try:
        with trio.move_on_after(seconds):
            await trap.sprung.wait()
    finally:
        trio.lowlevel.remove_instrument(trap)
    return trap.sprung.is_set()
