"""The controller's own log file."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from controller_processes import foreign_store
from trio.testing import MockClock

from understudy.controller.configuration import ControllerConfig, read_config
from understudy.controller.log_file import LAST_WORDS_SECONDS, LogFile, WaitingLines, log_path, open_log_file
from understudy.programs.mqcontroller import main
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import DiskLockedError, File, RealDisk, RealLock
from understudy.runtime.log import get_logger
from understudy.runtime.properties import parse_properties
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

log = get_logger("controller.failover")
other = get_logger("namesrv.routes")


@pytest.fixture(autouse=True)
def _informative() -> Iterator[None]:
    logger = logging.getLogger("understudy")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(before)


def config_of(folder: Path, **named: str) -> ControllerConfig:
    text = "".join(f"{key}={value}\n" for key, value in {"controllerStorePath": str(folder), **named}.items())
    return read_config(parse_properties(text))


def line_of(text: str) -> logging.LogRecord:
    return logging.LogRecord("understudy.controller", logging.INFO, "", 0, text, None, None)


def said(writer: LogFile, *texts: str) -> None:
    for text in texts:
        writer.lines.handle(line_of(text))


class StuckDisk(RealDisk):
    """A disk that opens no file until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.calls = 0

    def open(self, path: str, *, create: bool = True) -> File:
        self.calls += 1
        self.go.wait(20)
        return super().open(path, create=create)


@pytest.mark.covers("R174")
async def test_the_controllers_lines_have_a_file_of_their_own(tmp_path: Path) -> None:
    # given a controller's log file below its store
    path = tmp_path / "logs" / "controller.log"
    async with open_log_file(RealDisk(), SystemClock(), config_of(tmp_path)):
        # when the controller and another part of the process log
        log.info("election", group="broker-a", result="master 2")
        other.info("route changed")
        # then the controller's line is there at once, and only that
        await until(lambda: path.exists() and "election group=broker-a" in path.read_text())
        threading.Thread(target=lambda: log.info("from another thread")).start()
        await until(lambda: "from another thread" in path.read_text())
    assert "route changed" not in path.read_text()
    # and afterwards nothing more is written, and another controller may have the file
    before = path.read_text()
    log.info("after the end")
    async with open_log_file(RealDisk(), SystemClock(), config_of(tmp_path)):
        pass
    assert path.read_text().startswith(before)
    assert "after the end" not in path.read_text()


async def test_the_last_lines_are_written_before_the_end(tmp_path: Path) -> None:
    async with open_log_file(RealDisk(), SystemClock(), config_of(tmp_path)):
        for number in range(300):
            log.info("line", number=number)
    assert "line number=299\n" in (tmp_path / "logs" / "controller.log").read_text()


async def test_lines_are_not_lost_when_their_writing_is_cancelled_before_it_began(tmp_path: Path) -> None:
    writer = LogFile(RealDisk(), str(tmp_path / "controller.log"))
    said(writer, "line")
    with trio.CancelScope() as scope:
        scope.cancel()
        await writer.write()
    await writer.write()
    writer.close()
    assert _text(tmp_path).count("line") == 1


def test_the_settings_move_it_or_turn_it_off(tmp_path: Path) -> None:
    assert log_path(config_of(tmp_path)) == str(tmp_path / "logs" / "controller.log")
    assert log_path(config_of(tmp_path, controllerLogFile="/var/log/c.log")) == "/var/log/c.log"
    assert log_path(config_of(tmp_path, controllerLogFile="OFF")) is None


async def test_turned_off_it_leaves_no_file(tmp_path: Path) -> None:
    async with open_log_file(RealDisk(), SystemClock(), config_of(tmp_path, controllerLogFile="off")):
        log.info("election")
    assert os.listdir(tmp_path) == []


async def test_files_are_replaced_and_bounded(tmp_path: Path) -> None:
    # given a log of at most three files of 1,000 bytes
    writer = LogFile(RealDisk(), str(tmp_path / "controller.log"), file_bytes=1000, kept_files=3)
    # when far more is logged
    for number in range(100):
        said(writer, f"line {number} " + "x" * 80)
        await writer.write()
    writer.close()
    # then the newest lines are kept, in order, and no more than that
    names = ["controller.log.2", "controller.log.1", "controller.log"]
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "controller.log.lock"])
    text = "".join((tmp_path / name).read_text() for name in names)
    numbers = [int(line.split("line ")[1].split()[0]) for line in text.splitlines()]
    assert numbers == list(range(numbers[0], 100))
    assert all((tmp_path / name).stat().st_size <= 1000 for name in names)


async def test_a_slow_disk_holds_up_nobody_and_the_waiting_lines_are_bounded(tmp_path: Path) -> None:
    # given a disk that does not answer
    disk = StuckDisk()
    writer = LogFile(disk, str(tmp_path / "controller.log"))
    writer.lines = WaitingLines(limit=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        said(writer, "first")
        await until(lambda: disk.calls == 1)
        # when more is logged than may wait
        said(writer, *(f"line {number}" for number in range(25)))
        disk.go.set()
        await until(lambda: (tmp_path / "controller.log").exists() and "missing" in _text(tmp_path))
        await writer.finish(SystemClock(), 20)
    # then the oldest are written, and how many are missing is said
    assert [line.split("understudy.controller ")[-1] for line in _text(tmp_path).splitlines()] == [
        "first",
        *(f"line {number}" for number in range(10)),
        "... 15 lines are missing here: they could not be written",
    ]
    writer.close()


async def test_a_disk_that_hangs_does_not_keep_the_controller_from_stopping(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    # given a disk that hangs in a write
    disk, path = StuckDisk(), tmp_path / "logs" / "controller.log"
    async with open_log_file(disk, SystemClock(), config_of(tmp_path)):
        while not disk.calls:  # a thread's progress takes real time, of which the clock of this test knows nothing
            await trio.lowlevel.checkpoint()
        began = trio.current_time()
        log.info("stopping")
        # when the controller stops
    # then it waits for the disk, but not for ever
    assert trio.current_time() - began == LAST_WORDS_SECONDS
    # and while the write is still under way nobody else gets the file
    with pytest.raises(DiskLockedError):
        RealLock(f"{path}.lock")
    # and when the disk answers after all, that write ends, and the file is free
    disk.go.set()
    assert await trio.to_thread.run_sync(_lock_when_free, f"{path}.lock")
    assert "log file path=" in path.read_text() and "stopping" not in path.read_text()


async def test_a_controller_that_is_cancelled_while_its_disk_hangs_ends_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = StuckDisk()
    with trio.CancelScope() as scope:
        async with open_log_file(disk, SystemClock(), config_of(tmp_path)):
            while not disk.calls:  # a thread's progress takes real time, of which the clock of this test knows nothing
                await trio.lowlevel.checkpoint()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() <= LAST_WORDS_SECONDS
    disk.go.set()
    assert await trio.to_thread.run_sync(_lock_when_free, str(tmp_path / "logs" / "controller.log.lock"))


async def test_a_file_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("understudy"), "propagate", True)
    # given a file where the folder should be
    (tmp_path / "logs").write_text("no folder")
    async with open_log_file(RealDisk(), SystemClock(), config_of(tmp_path)):
        await until(lambda: "cannot be written" in caplog.text)
        log.info("election one")
        log.info("election two")
        # when it becomes a folder
        (tmp_path / "logs").unlink()
        log.info("election three")
        await until(lambda: (tmp_path / "logs").is_dir() and "three" in _text(tmp_path / "logs"))
    # then one line said so, and nothing is missing
    assert caplog.text.count("cannot be written") == 1
    assert f"{tmp_path}/logs/controller.log cannot be written: " in caplog.text
    assert "controllerLogFile names another file or is off" in caplog.text
    text = _text(tmp_path / "logs")
    assert text.index("election one") < text.index("election two") < text.index("election three")


async def test_two_controllers_do_not_share_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("understudy"), "propagate", True)
    first = LogFile(RealDisk(), str(tmp_path / "controller.log"))
    said(first, "first")
    await first.write()
    second = LogFile(RealDisk(), str(tmp_path / "controller.log"))
    said(second, "second")
    await second.write()
    assert "cannot be written: another process writes it" in caplog.text
    first.close()
    await second.write()
    second.close()
    assert [line.split()[-1] for line in _text(tmp_path).splitlines()] == ["first", "second"]


@pytest.mark.covers("R174")
def test_why_a_controller_stopped_is_in_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], port_blocks: PortBlocks
) -> None:
    # given a store with a damaged file
    path = foreign_store(tmp_path, port_blocks)
    # when the program runs
    assert main(["-c", str(path)]) == 1
    # then its file says why it ended, as its last line on the terminal does
    reason = "this is no controller log"
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert reason in (tmp_path / "store" / "logs" / "controller.log").read_text().splitlines()[-1]


def _lock_when_free(path: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            RealLock(path).release()
            return True
        except (DiskLockedError, FileNotFoundError):
            time.sleep(0.01)
    return False


def _text(folder: Path) -> str:
    return (folder / "controller.log").read_text()
