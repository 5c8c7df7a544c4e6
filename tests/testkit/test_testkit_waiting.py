"""Waiting for facts: a limit counts the time in which something could happen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from understudy.testkit.processor_time import waited_for_processor
from understudy.testkit.waiting import eventually


@pytest.mark.parametrize(
    ("true_at", "hindered", "lasts"),
    [(5, 0, 5), (15, 0, None), (15, 8, 15), (19, 8, None), (95, 1000, 95), (101, 1000, None)],
)
async def test_time_in_which_nothing_could_happen_is_not_counted(
    autojump_clock: MockClock, true_at: float, hindered: float, lasts: float | None
) -> None:
    began = trio.current_time()

    async def question() -> bool:
        return trio.current_time() - began >= true_at

    if lasts is not None:
        assert pytest.approx(lasts, abs=0.2) == await eventually(question, 10, 0.1, lambda: hindered)
        return
    with pytest.raises(trio.TooSlowError):
        await eventually(question, 10, 0.1, lambda: hindered)
    assert pytest.approx(10 + min(hindered, 90), abs=0.2) == trio.current_time() - began


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_process_that_must_share_a_processor_waits_for_it() -> None:
    work = (
        f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); print(flush=True); sum(iter(int, 1))"
    )
    busy = [subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        trio.run(until_waited, busy[0].pid)
    finally:
        for process in busy:
            process.kill()
            process.communicate()
    assert 0.0 == waited_for_processor(busy[0].pid)


async def until_waited(pid: int) -> None:
    async def waited() -> bool:
        return waited_for_processor(pid) > 0.2

    await eventually(waited, 30)
