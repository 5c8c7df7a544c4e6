"""Programs end cleanly on signals and say in one line what they cannot do."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from understudy.runtime import program
from understudy.runtime.loop_watch import LoopWatch, watched
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


def test_a_program_names_in_its_log_what_holds_its_event_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watches = list[LoopWatch]()

    @contextmanager
    def noted() -> Iterator[LoopWatch]:
        with watched(0.02) as watch:
            watches.append(watch)
            yield watch

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        began = time.monotonic()
        while time.monotonic() < began + (0.1 if watches[0]._sample[0] else 30):  # it is looked at, and long
            sum(range(1000))
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(program, "watched", noted)
    assert 0 == run_program("test", work)
    (watch,) = watches
    lines = [record.getMessage() for record in caplog.records if "held the event loop" in record.getMessage()]
    assert watch.held == len(lines) >= 1
    assert any('where="understudy.runtime.program.' in line for line in lines), lines


def test_every_program_of_a_server_runs_its_event_loop_there() -> None:
    sources = {path.stem: path.read_text() for path in (Path(program.__file__).parents[1] / "programs").glob("*.py")}
    assert [] == [name for name, text in sources.items() if "trio.run(" in text]
    servers = {name for name, text in sources.items() if "run_program(" in text or "run_server(" in text}
    assert servers == {"many_brokers", "mqconsole", "mqcontroller", "name_server", "one_broker", "one_proxy", "up"}


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
