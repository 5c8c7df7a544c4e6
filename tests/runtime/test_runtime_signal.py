import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.runtime.signal import Signal


async def test_every_task_that_waits_is_woken_by_one_change(autojump_clock: MockClock) -> None:
    signal, woken = Signal(), []

    async def waiter(name: str) -> None:
        woken.append((name, await signal.wait(), trio.current_time()))

    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(waiter, name)
        await trio.sleep(5)
        signal.set()
    assert sorted(woken) == [(name, 1, begin + 5) for name in "abc"]


async def test_a_change_before_the_wait_counts_only_for_who_has_not_handled_it(autojump_clock: MockClock) -> None:
    signal = Signal()
    signal.set()
    signal.set()
    begin = trio.current_time()
    assert await signal.wait(0) == 2
    assert await signal.wait(1) == 2
    assert trio.current_time() == begin
    with trio.move_on_after(3) as handled:
        await signal.wait(2)
    assert handled.cancelled_caught
    with trio.move_on_after(3) as next_one:
        await signal.wait()
    assert next_one.cancelled_caught


async def test_no_change_is_lost_while_a_task_works(autojump_clock: MockClock) -> None:
    # given two tasks that work for long after each change, and notes that come at any time
    signal, notes = Signal(), []
    seen: dict[float, list[str]] = {0.7: [], 2.5: []}

    async def worker(work_seconds: float) -> None:
        handled = 0
        while len(seen[work_seconds]) < 6:
            handled = await signal.wait(handled)
            noted = list(notes)
            await trio.sleep(work_seconds)
            seen[work_seconds] = noted

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for work_seconds in seen:
                nursery.start_soon(worker, work_seconds)
            for index in range(6):
                notes.append(f"note {index}")
                signal.set()
                await trio.sleep(1)
    # then each of them has all, also what came while it worked
    assert seen == {0.7: notes, 2.5: notes}


async def test_a_condition_is_awaited_without_memory(autojump_clock: MockClock) -> None:
    signal, queue, taken = Signal(), [], []

    async def taker() -> None:
        while len(taken) < 10:
            while not queue:
                await signal.wait()
            taken.append(queue.pop(0))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(taker)
            nursery.start_soon(taker)
            for number in range(12):  # two more than looked for, so that neither of them waits for ever
                queue.append(number)
                signal.set()
                if number % 3 == 0:
                    await wait_all_tasks_blocked()
    assert taken[:10] == list(range(10))


async def test_who_gives_up_does_not_disturb_the_others(autojump_clock: MockClock) -> None:
    signal, woken = Signal(), []

    async def patient() -> None:
        woken.append(await signal.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(patient)
        with trio.move_on_after(1):
            await signal.wait()
        signal.set()
    assert woken == [1]
    assert signal.count == 1
