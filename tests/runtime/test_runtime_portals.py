"""Portals: calls of other threads and of asyncio get what they asked for, and a cancelled one what it was promised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from understudy.runtime.portal import Portal, PortalClosedError
from understudy.runtime.portal_asyncio import LoopCalls
from understudy.runtime.portal_jobs import Told


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


async def fail() -> None:
    raise KeyError("as it is")


def test_calls_from_many_threads_get_their_own_results_and_errors() -> None:
    with Portal() as portal, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda number: portal.call(double, number), range(200))) == [2 * n for n in range(200)]
        with pytest.raises(KeyError, match="as it is"):
            portal.call(fail)
        assert portal.call(double, 4) == 8


def test_a_cancelled_future_cancels_its_task_and_the_end_of_the_portal_cancels_all() -> None:
    ended: list[str] = []
    began = threading.Semaphore(0)

    async def wait(name: str) -> None:
        try:
            began.release()
            await trio.sleep_forever()
        finally:
            ended.append(name)

    with Portal() as portal:
        first, second = portal.submit(wait, "first"), portal.submit(wait, "second")
        began.acquire()
        began.acquire()
        first.cancel()
        portal.call(trio.sleep, 0.01)
        assert ended == ["first"]
    assert ended == ["first", "second"]
    assert first.cancelled()
    assert second.done()
    with pytest.raises(PortalClosedError):
        portal.call(double, 1)


def test_a_portal_cannot_wait_for_itself() -> None:
    with Portal() as portal:

        async def ask() -> None:
            portal.call(double, 1)

        with pytest.raises(PortalClosedError, match="its own thread"):
            portal.call(ask)


def test_what_comes_together_is_said_by_one_word_to_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    look, tell = Portal._look, LoopCalls._tell

    def asked(portal: Portal) -> None:
        words.append("asked")
        look(portal)

    def told(calls: LoopCalls) -> None:
        words.append("told")
        tell(calls)

    monkeypatch.setattr(Portal, "_look", asked)
    monkeypatch.setattr(LoopCalls, "_tell", told)

    async def main(portal: Portal) -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())
        together, waiting = trio.Event(), 0

        async def wait(number: int) -> int:
            nonlocal waiting
            waiting += 1
            if waiting == 64:
                together.set()
            await together.wait()
            return number

        assert await asyncio.gather(*(calls.call(wait, number) for number in range(64))) == list(range(64))

    with Portal() as portal:
        asyncio.run(main(portal))
    assert words == ["asked", "told"]


def test_a_loop_that_is_busy_is_told_once_of_what_ends_in_several_turns() -> None:
    async def after(turns: int) -> int:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        return turns

    async def main(portal: Portal) -> None:
        loop = asyncio.get_running_loop()
        calls, words, say = LoopCalls(portal, loop), list[object](), loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *args: Any, **named: Any) -> asyncio.Handle:
            words.append(callback)
            return say(callback, *args, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", counted)
            for _ in range(2):  # it is told again once it has looked
                words.clear()
                tasks = [asyncio.create_task(calls.call(after, turns)) for turns in (1, 5, 9)]
                await asyncio.sleep(0)
                calls._ask()  # now, for the loop will not look
                portal.call(trio.testing.wait_all_tasks_blocked)  # this thread, so the loop, does nothing meanwhile
                assert words == [calls._tell]
                assert await asyncio.gather(*tasks) == [1, 5, 9]

    with Portal() as portal:
        asyncio.run(main(portal))


def test_a_call_of_a_closed_portal_is_refused_in_asyncio_too() -> None:
    async def main() -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())
        with pytest.raises(PortalClosedError):
            await calls.call(double, 1)

    with Portal() as portal:
        pass
    asyncio.run(main())


def test_tasks_are_used_again_also_after_a_cancelled_call() -> None:
    tasks: set[object] = set()

    async def who() -> None:
        tasks.add(trio.lowlevel.current_task())
        await trio.lowlevel.checkpoint()

    with Portal() as portal:
        for _ in range(5):
            portal.call(who)
        waiting = portal.submit(trio.sleep_forever)
        portal.call(who)
        waiting.cancel()
        for _ in range(5):
            portal.call(who)
    assert len(tasks) == 2


def test_a_call_that_is_cancelled_before_it_begins_never_does() -> None:
    done: list[str] = []

    async def act(name: str) -> None:
        done.append(name)

    async def main(portal: Portal) -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())
        await calls.call(trio.sleep, 0)
        task = asyncio.create_task(calls.call(act, "a task"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0):
                await calls.call(act, "a timeout")
        await calls.call(trio.sleep, 0.01)

    with Portal() as portal:

        async def cancelled_at_once(name: str) -> bool:
            # Asked from another thread, while this one cannot begin it.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: portal.submit(act, name).cancel()).result()

        assert portal.call(cancelled_at_once, "a new task")
        waiting = [portal.submit(trio.sleep_forever) for _ in range(3)]
        for each in waiting:
            each.cancel()
        portal.call(trio.sleep, 0.01)
        assert portal.call(cancelled_at_once, "a task that waits for a call")
        asyncio.run(main(portal))
    assert done == []


def test_what_a_call_returned_to_nobody_is_given_back_before_the_next_call_begins() -> None:
    given_back: list[int] = []

    async def main(portal: Portal) -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())

        async def look() -> list[int]:
            return list(given_back)

        # It has returned, and this loop has not heard of it when the task is cancelled.
        task = asyncio.create_task(calls.call(double, 4, unclaimed=given_back.append))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        portal.call(trio.sleep, 0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await calls.call(look) == [8]
        # The cancel comes while the call runs, which does not mind and returns.
        began, go_on, over = threading.Event(), trio.Event(), trio.Event()

        async def shielded() -> int:
            with trio.CancelScope(shield=True):
                began.set()
                await go_on.wait()
            over.set()
            return 5

        async def finish() -> None:
            go_on.set()
            await over.wait()

        task = asyncio.create_task(calls.call(shielded, unclaimed=given_back.append))
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await calls.call(finish)
        assert await calls.call(look) == [8, 5]
        # What arrived stays.
        assert await calls.call(double, 1, unclaimed=given_back.append) == 2
        assert await calls.call(look) == [8, 5]

    with Portal() as portal:
        asyncio.run(main(portal))


# --- calls without a task ----------------------------------------------------------------------------------------


class Rows:
    """Begins calls without a task, and keeps whom to tell."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.begun = threading.Semaphore(0)
        self.given_up = threading.Event()

    def begin(self, told: Told) -> Callable[[], None] | None:
        self.told.append(told)
        self.begun.release()
        return self.given_up.set


async def tell_in_portal(told: Told, what: dict[str, Any]) -> None:
    told(**what)


async def never_called() -> int:
    raise AssertionError("it was begun without a task")


def test_a_call_without_a_task_ends_as_it_is_told() -> None:
    rows = Rows()
    with Portal() as portal, ThreadPoolExecutor(1) as thread:

        def ask() -> int:
            return portal.call(never_called, at_once=rows.begin)

        for tell, wanted in [({"result": 3}, 3), ({"rest": lambda: double(4)}, 8)]:
            asked = thread.submit(ask)
            rows.begun.acquire()
            portal.call(tell_in_portal, rows.told[-1], tell)
            assert asked.result(20) == wanted
        for tell in ({"error": KeyError("as it is")}, {"rest": fail}):
            asked = thread.submit(ask)
            rows.begun.acquire()
            portal.call(tell_in_portal, rows.told[-1], tell)
            with pytest.raises(KeyError, match="as it is"):
                asked.result(20)
    assert not rows.given_up.is_set()


@pytest.mark.parametrize("refuses", [lambda told: None, lambda told: {}["missing"]], ids=["declines", "raises"])
def test_a_task_does_what_is_not_begun_without_one(refuses: Any) -> None:
    with Portal() as portal:
        assert portal.call(double, 5, at_once=refuses) == 10


def test_all_that_was_asked_for_together_has_begun_before_what_comes_after() -> None:
    order: list[str] = []

    def begin(name: str, told: Told) -> None:
        order.append(name)
        if name == "first":
            portal.after_this_look(lambda: order.append("after"))

    async def main() -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())
        names = ["first", "second", "third"]
        await asyncio.gather(*(calls.call(double, 1, at_once=partial(begin, name)) for name in names))

    with Portal() as portal:
        asyncio.run(main())
    assert order == ["first", "second", "third", "after"]


def test_a_cancelled_call_without_a_task_is_given_up() -> None:
    rows = Rows()

    async def main() -> None:
        calls = LoopCalls(portal, asyncio.get_running_loop())
        task = asyncio.create_task(calls.call(never_called, at_once=rows.begin))
        await asyncio.to_thread(rows.begun.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Portal() as portal:
        asyncio.run(main())
        portal.call(trio.lowlevel.checkpoint)
        assert rows.given_up.is_set()
        assert not portal._without_task


def test_the_end_of_the_portal_ends_calls_without_a_task() -> None:
    rows = Rows()
    with ThreadPoolExecutor(1) as thread:
        with Portal() as portal:
            asked = thread.submit(lambda: portal.call(never_called, at_once=rows.begin))
            rows.begun.acquire()
        with pytest.raises(CancelledError):
            asked.result(20)
