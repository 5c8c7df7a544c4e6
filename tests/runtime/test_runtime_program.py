"""Programs end cleanly on signals and say in one line what they cannot do."""

from __future__ import annotations

import errno
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


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOENT, "No such file or directory; choose another path"),
        (errno.EACCES, "Permission denied; let this user write there, or choose another path"),
        (errno.EROFS, "Read-only file system; mount it writable, or choose another path"),
        (errno.ENOSPC, "No space left on device; free some space, or choose a path on another disk"),
        (errno.EXDEV, "Invalid cross-device link"),
    ],
)
def test_an_error_of_the_system_says_where_why_and_what_to_do(
    number: int, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        raise OSError(number, os.strerror(number), "/data/store")

    assert 1 == run_program("mqtest", work)
    assert f"mqtest: /data/store cannot be used: {advice}\n" == capsys.readouterr().err


def test_an_error_of_the_system_without_a_place_still_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert 1 == run_program("mqtest", work)
    assert "mqtest: Too many open files; raise the limit of open files (ulimit -n)\n" == capsys.readouterr().err


def test_a_fault_of_the_program_is_not_hidden() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as failure:
        run_program("mqtest", work)
    assert failure.group_contains(ZeroDivisionError)
