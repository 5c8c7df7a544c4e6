"""Tables on disk: whole or refused, never silently empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.format.json_dialect import dumps
from understudy.runtime.disk import DiskLockedError, File, RealDisk
from understudy.runtime.table import TableDamagedError, TableFile, load_table, save_table

TABLE = {"offsetTable": {"t@g": {0: 5}}}
READ = {"offsetTable": {"t@g": {"0": 5}}}


async def test_an_absent_table_is_said_to_be_absent(tmp_path: Path) -> None:
    assert TableFile(None, "absent") == load_table(RealDisk(), str(tmp_path / "t.json"))


async def test_a_saved_table_is_read_and_its_previous_copy_kept(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "t.json")
    save_table(disk, path, {"first": 1})
    save_table(disk, path, TABLE)

    assert TableFile(READ, "file") == load_table(disk, path)
    assert b'{"first":1}' == disk.read(path + ".bak")
    assert b'{"offsetTable":{"t@g":{0:5}}}' == disk.read(path)


@pytest.mark.parametrize("damage", [b"", b'{"offsetTable":{"t@', b"\0" * 100, b"[1]"])
async def test_a_damaged_table_falls_back_to_its_previous_copy_and_says_so(tmp_path: Path, damage: bytes) -> None:
    disk, path = RealDisk(), str(tmp_path / "t.json")
    save_table(disk, path, TABLE)
    save_table(disk, path, TABLE)
    (tmp_path / "t.json").write_bytes(damage)

    found = load_table(disk, path)
    assert (READ, "backup") == (found.data, found.source)
    assert path in found.damage[0]


async def test_when_no_copy_can_be_read_the_table_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "t.json")
    (tmp_path / "t.json").write_bytes(b"")
    (tmp_path / "t.json.bak").write_bytes(b"{")

    with pytest.raises(TableDamagedError, match=r"t\.json: empty file.*t\.json\.bak.*restore the file"):
        load_table(disk, path)
    assert (b"", b"{") == (disk.read(path), disk.read(path + ".bak"))


async def test_a_table_left_between_the_two_renames_is_read_from_its_previous_copy(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "t.json")
    save_table(disk, path, TABLE)
    disk.replace(path, path + ".bak")  # where a crash inside save_table may stop

    assert (READ, "backup") == (load_table(disk, path).data, load_table(disk, path).source)


async def test_a_folder_is_held_once(tmp_path: Path) -> None:
    disk = RealDisk()
    held = disk.lock(str(tmp_path / "lock"))
    with pytest.raises(DiskLockedError, match=f"{tmp_path} is held by another process"):
        disk.lock(str(tmp_path / "lock"))
    held.release()
    disk.lock(str(tmp_path / "lock")).release()


async def test_a_large_table_is_joined_and_written_in_small_chunks(tmp_path: Path) -> None:
    """Joining it in one call would keep Python's lock, and so the event loop, for tens of milliseconds."""

    class Noting(RealDisk):
        def open(self, path: str, *, create: bool = True, private: bool = False) -> File:
            file = super().open(path, create=create, private=private)
            write = file.write_at

            def note(offset: int, data: bytes | bytearray | memoryview) -> None:
                sizes.append(len(data))
                write(offset, data)

            file.write_at = note  # type: ignore[method-assign]
            return file

    sizes: list[int] = []
    table = {"topics": {f"topic-{number}": {"name": f"topic-{number}", "queues": 4} for number in range(20_000)}}
    table |= {"offsets": {"t@g": dict.fromkeys(range(60_000), 7)}}
    disk, path = Noting(), str(tmp_path / "t.json")
    save_table(disk, path, table)
    assert disk.read(path) == dumps(table, bare_keys=True)
    assert sum(sizes) == disk.size(path)
    assert max(sizes) <= 128 * 1024
