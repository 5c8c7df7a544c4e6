"""What makes bytes durable on systems that this one is not, by fakes of what they have and lack."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy.runtime import disk
from understudy.runtime.disk import RealDisk
from understudy.runtime.syncing import SYNCING, Syncing, syncing_of


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
    ("platform", "fdatasync", "full", "asked", "mappings_first"),
    [
        ("linux", True, False, "fdatasync", False),  # glibc and musl alike
        ("darwin", False, True, "fcntl 51", True),
        ("freebsd14", True, False, "fdatasync", True),
        ("openbsd7", False, False, "fsync", True),
    ],
)
def test_each_system_is_asked_for_what_it_has(
    platform: str, fdatasync: bool, full: bool, asked: str, mappings_first: bool
) -> None:
    system = System(fdatasync=fdatasync, full=full)
    syncing = syncing_of(platform, system.os, system.fcntl)
    syncing.sync(7)
    assert system.asked == [(asked, 7)]
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

    monkeypatch.setattr(disk, "SYNCING", Syncing(sync, mappings_first))
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


def test_space_is_not_taken_where_the_system_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_FALLOCATE", None)
    (tmp_path / "file").write_bytes(b"x")
    RealDisk().allocate(str(tmp_path / "file"), 0, 1 << 20)
    assert (tmp_path / "file").stat().st_blocks < 100
