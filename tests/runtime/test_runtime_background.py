"""Ctrl-C and the tasks behind an object: it must not hit them in the middle of a wait."""

from __future__ import annotations

import signal

import trio

from understudy.runtime.background import interruptible, open_shielded


def interrupts() -> None:
    signal.raise_signal(signal.SIGINT)


def run(main: object) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever began this may ignore it
    try:
        trio.run(main)  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_the_main_tasks_and_leaves_shielded_tasks_alone() -> None:
    seen: list[str] = []

    async def works(leaving: trio.Event) -> None:
        interrupts()
        await leaving.wait()
        seen.append("worked to its end")

    async def main() -> None:
        leaving, over = trio.Event(), trio.Event()

        async def to_its_end() -> None:
            await works(leaving)
            over.set()

        async with open_shielded() as tasks:
            tasks.start_soon(to_its_end)
            try:
                await trio.sleep(20)
            except KeyboardInterrupt:
                seen.append("main")
            leaving.set()
            with trio.fail_after(20):
                await over.wait()

    run(main)
    assert seen == ["main", "worked to its end"]


def test_code_of_the_application_is_interrupted_where_it_runs() -> None:
    seen: list[str] = []

    async def computes() -> int:
        interrupts()
        return 1

    async def main() -> None:
        over = trio.Event()

        async def asks() -> None:
            try:
                await interruptible(computes)
            except KeyboardInterrupt:
                seen.append("application")
            over.set()

        async with open_shielded() as tasks:
            tasks.start_soon(asks)
            with trio.fail_after(20):
                await over.wait()

    run(main)
    assert seen == ["application"]
