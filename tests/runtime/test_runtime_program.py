"""Programs end cleanly on signals and say in one line what they cannot do."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from understudy.runtime.program import UsageError, run_program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_work_and_a_second_one_does_not_hurt(number: signal.Signals) -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                os.kill(os.getpid(), number)
                await trio.sleep(0.01)
                steps.append("clean")

    assert 0 == run_program("test", work)
    assert ["clean"] == steps


class RefusedError(Exception):
    """One of a program's own refusals."""


@pytest.mark.parametrize("error", [UsageError("no such file"), OSError("disk full"), RefusedError("port in use")])
def test_a_refusal_is_one_line_and_exit_code_1(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with trio.open_nursery():
            raise error

    assert 1 == run_program("mqtest", work, refusals=(RefusedError,))
    assert f"mqtest: {error}\n" == capsys.readouterr().err


def test_a_fault_of_the_program_is_not_hidden() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as failure:
        run_program("mqtest", work)
    assert failure.group_contains(ZeroDivisionError)
