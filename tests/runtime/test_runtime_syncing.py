"""What makes bytes durable on systems that this one is not, by fakes of what they have and lack."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy.mqadmin import undo_file
from understudy.runtime import disk
from understudy.runtime.disk import RealDisk
from understudy.runtime.syncing import SYNCING, Syncing, syncing_of
from understudy.spark_tools import durable
from understudy.store.flush import MANY_FILES, sync_files


class System:
    """Modules ``os`` and ``fcntl`` of a system; what was asked of them."""

    def __init__(self, *, fdatasync: bool, full: bool, refuses: int = 0) -> None:
        self.asked: list[tuple[str, int]] = []
        self.os = SimpleNamespace(fsync=lambda fd: self.asked.append(("fsync", fd)))
        if fdatasync:
            self.os.fdatasync = lambda fd: self.asked.append(("fdatasync", fd))
        self.fcntl = SimpleNamespace()
        if full:
            self.fcntl.F_FULLFSYNC = 51

            def control(fd: int, command: int) -> None:
                self.asked.append((f"fcntl {command}", fd))
                if refuses:
                    raise OSError(refuses, "refused")

            self.fcntl.fcntl = control


@pytest.mark.parametrize(
    ("platform", "fdatasync", "full", "asked", "asked_for_all", "mappings_first"),
    [
        ("linux", True, False, "fdatasync", "fsync", False),  # glibc and musl alike
        ("darwin", False, True, "fcntl 51", "fcntl 51", True),
        ("freebsd14", True, False, "fdatasync", "fsync", True),
        ("openbsd7", False, False, "fsync", "fsync", True),
    ],
)
def test_each_system_is_asked_for_what_it_has(
    platform: str, fdatasync: bool, full: bool, asked: str, asked_for_all: str, mappings_first: bool
) -> None:
    system = System(fdatasync=fdatasync, full=full)
    syncing = syncing_of(platform, system.os, system.fcntl)
    syncing.sync(7)
    syncing.sync_all(8)
    assert system.asked == [(asked, 7), (asked_for_all, 8)]
    assert syncing.mappings_first is mappings_first


def test_a_file_system_that_cannot_ask_its_drive_is_synced_as_it_can() -> None:
    system = System(fdatasync=False, full=True, refuses=errno.ENOTSUP)
    syncing_of("darwin", system.os, system.fcntl).sync(7)
    assert system.asked == [("fcntl 51", 7), ("fsync", 7)]


def test_a_drive_that_fails_is_told() -> None:
    system = System(fdatasync=False, full=True, refuses=errno.EIO)
    with pytest.raises(OSError, match="refused"):
        syncing_of("darwin", system.os, system.fcntl).sync(7)
    assert system.asked == [("fcntl 51", 7)]


@pytest.mark.parametrize("mappings_first", [False, True])
def test_files_and_mappings_go_this_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mappings_first: bool) -> None:
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        SYNCING.sync(descriptor)

    monkeypatch.setattr(disk, "SYNCING", Syncing(sync, SYNCING.sync_all, mappings_first))
    real = RealDisk()
    file = real.open(str(tmp_path / "file"))
    file.write_at(0, b"bytes")
    file.sync()
    file.close()
    mapping = real.map(str(tmp_path / "mapped"), 20_000)
    mapping.view[9_000:9_005] = b"bytes"
    mapping.sync(9_000, 5)  # neither at the begin of a page nor to its end
    mapping.sync(19_999, 100)  # beyond its end
    mapping.close()
    assert len(synced) == 3
    assert (tmp_path / "mapped").read_bytes()[9_000:9_005] == b"bytes"


@pytest.fixture
def darwin(monkeypatch: pytest.MonkeyPatch) -> System:
    """The file calls of macOS, for whatever makes bytes durable."""
    system = System(fdatasync=False, full=True)
    syncing = syncing_of("darwin", system.os, system.fcntl)
    for room in (disk, undo_file, durable):
        monkeypatch.setattr(room, "SYNCING", syncing)
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("the drive was not asked"))
    return system


def test_folders_are_synced_by_the_drive(tmp_path: Path, darwin: System) -> None:
    RealDisk().sync_folder(str(tmp_path))
    assert [each for each, _ in darwin.asked] == ["fcntl 51"]


def test_the_undo_file_of_an_operator_is_synced_by_the_drive(tmp_path: Path, darwin: System) -> None:
    undo = undo_file.UndoFile(tmp_path / "undo.json", "h:1", "a")
    with undo.created([{"place": "here"}]):
        assert len(darwin.asked) == 2  # file and folder
        undo.note(0, undo_file.DONE)
    assert [each for each, _ in darwin.asked] == ["fcntl 51"] * 3


def test_what_spark_jobs_keep_is_synced_by_the_drive(tmp_path: Path, darwin: System) -> None:
    durable.replace_file(str(tmp_path / "table"), b"bytes")
    durable.remove_file(str(tmp_path / "table"))
    journal = durable.Journal(str(tmp_path / "journal"))
    journal.write({"event": "begun"})
    journal.close()
    assert [each for each, _ in darwin.asked] == ["fcntl 51"] * 4


@pytest.mark.parametrize("mappings_first", [False, True])
def test_a_file_is_flushed_whoever_has_mapped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mappings_first: bool
) -> None:
    order: list[str] = []

    class Mapped(mmap.mmap):
        def flush(self, *part: int) -> None:
            order.append(f"msync of {len(self)}")
            super().flush(*part)

    real = RealDisk()
    mapping = real.map(str(tmp_path / "mapped"), 20_000)
    mapping.view[9_000:9_005] = b"bytes"
    syncing = Syncing(lambda _: order.append("sync"), SYNCING.sync_all, mappings_first)
    monkeypatch.setattr(disk, "SYNCING", syncing)
    monkeypatch.setattr(mmap, "mmap", Mapped)
    for path in ("mapped", "empty"):
        file = real.open(str(tmp_path / path))
        file.sync()
        file.close()
    assert order == (["msync of 20000", "sync", "sync"] if mappings_first else ["sync", "sync"])


def test_many_files_are_synced_one_by_one_where_nothing_syncs_them_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_LIBC", SimpleNamespace())
    monkeypatch.setattr(os, "sync", lambda: pytest.fail("POSIX does not say that it waits"))
    synced: list[int] = []
    monkeypatch.setattr(disk, "SYNCING", Syncing(synced.append, synced.append, mappings_first=False))
    paths = [str(tmp_path / f"{number}") for number in range(MANY_FILES)]
    for path in paths[1:]:
        Path(path).write_bytes(b"x")
    assert sync_files(RealDisk(), paths, [str(tmp_path)], str(tmp_path)) == [paths[0]]
    assert len(synced) == MANY_FILES  # all but the one that is gone, and their folder


def test_space_is_not_taken_where_the_system_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_FALLOCATE", None)
    (tmp_path / "file").write_bytes(b"x")
    RealDisk().allocate(str(tmp_path / "file"), 0, 1 << 20)
    assert (tmp_path / "file").stat().st_blocks < 100
