"""Whatever holds the event loop is named in the log; what does not is not."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Generator

import pytest
import trio

from understudy.format.json_dialect import loads
from understudy.runtime.loop_watch import LoopWatch, innermost, watched
from understudy.runtime.pace import run_steps


def hold(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        loads(b'{"a":[1,2,3]}')


def test_a_task_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with watched(0.05) as watch:

        def steps() -> Generator[None, None, None]:
            hold(0.3)
            looking = threading.Thread(target=watch.look)  # the watch's own may not have had its turn on a busy machine
            looking.start()
            looking.join()
            yield

        async def work() -> None:
            await trio.lowlevel.checkpoint()
            run_steps(steps())
            await trio.lowlevel.checkpoint()

        trio.run(work, instruments=[watch])
    lines = [record.getMessage() for record in caplog.records if "held the event loop" in record.getMessage()]
    assert watch.held == len(lines) >= 1
    (line,) = (line for line in lines if "understudy." in line)
    found = re.search(r"milliseconds=(\d+)", line)
    assert found is not None and int(found[1]) >= 300
    assert "where=" in line


def test_a_loop_that_sleeps_or_takes_turns_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        await trio.sleep(1.1)
        for _ in range(50):
            hold(0.001)
            await trio.lowlevel.checkpoint()

    with watched(1.0) as watch:
        trio.run(work, instruments=[watch])
    assert (0, []) == (watch.held, caplog.records)


def test_while_the_loop_sleeps_nobody_looks_and_the_next_long_turn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    seen = threading.Event()
    look = LoopWatch.look

    def counted(watch: LoopWatch) -> None:
        looks.append(True)
        look(watch)
        if watch._sample[0]:
            seen.set()

    monkeypatch.setattr(LoopWatch, "look", counted)

    async def work() -> None:
        await trio.sleep(0.5)
        before = len(looks)
        await trio.sleep(0.5)
        assert len(looks) - before <= 2  # a thread that never sleeps looks fifty times
        assert seen.wait(10)  # holds the loop until the thread has found out where

    with watched(0.04) as watch:
        trio.run(work, instruments=[watch])
    assert not any(thread.name == "loop watch" for thread in threading.enumerate())


def test_without_a_frame_of_ours_the_innermost_of_all_is_told() -> None:
    import sys

    assert "line" in innermost(sys._getframe())
