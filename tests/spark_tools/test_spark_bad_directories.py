"""Directories that are no stores, or only part of one: each oddity is named with its path and byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from understudy.spark_tools.faults import log_part_faults, part_faults, small_file_parts
from understudy.spark_tools.kernels.damage import DAMAGE, Damage
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.synthetic import SyntheticStore

LOG_FILE_BYTES = 4096


def written(root: Path) -> Path:
    """A store with several log files and one queue."""
    store = SyntheticStore(str(root), log_file_bytes=LOG_FILE_BYTES)
    for number in range(60):
        store.append("T", 0, b"b" * 100, store_timestamp=1_700_000_000_000 + number, uniq_key=f"{number:032X}")
    store.save({"T@g": {0: 10}})
    return root


def scanned(root: Path) -> list[Damage]:
    """Everything a scan says about a store."""
    store = Store("a", str(root))
    layout = read_layout(store)
    found = [item for part in ("layout", *small_file_parts(layout)) for item in part_faults(store, part)]
    files = layout.commit_log
    for number, file in enumerate(files):
        following = files[number + 1] if number + 1 < len(files) else None
        found += log_part_faults(file, 0, file.size_bytes, following, verify=True)
    return found


def damages(root: Path) -> set[tuple[str, str, int]]:
    """Kind, path below the store and byte of every damage."""
    found = [item for item in scanned(root) if item.severity == DAMAGE]
    return {(item.kind, str(Path(item.path).relative_to(root)), item.offset_bytes) for item in found}


def test_a_whole_store_has_no_damage(tmp_path: Path) -> None:
    assert damages(written(tmp_path)) == set()


def test_a_directory_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"\xff\xd8" * 500)
    (tmp_path / "notes.txt").write_text("no store")

    assert damages(tmp_path) == {("no-commit-log", ".", 0)}


def test_a_log_file_of_something_else_is_named_at_its_first_byte(tmp_path: Path) -> None:
    root = written(tmp_path)
    first = root / "commitlog" / f"{0:020d}"
    first.write_bytes((b"these are not records. " * 200)[:LOG_FILE_BYTES])

    found = [item for item in scanned(root) if item.path == str(first)]

    assert [(item.kind, item.offset_bytes) for item in found] == [("damaged-tail", 0)]
    assert "unknown magic" in found[0].detail


def test_a_store_copied_half_is_named_where_it_breaks_off(tmp_path: Path) -> None:
    root = written(tmp_path)
    files = sorted((root / "commitlog").iterdir())
    files[1].write_bytes(files[1].read_bytes()[:1000])
    files[-1].unlink()
    (root / "config" / "consumerOffset.json").unlink()
    shutil.rmtree(root / "index")

    found = scanned(root)
    named = {(item.kind, Path(item.path).name, item.offset_bytes) for item in found}

    assert ("short-file", files[1].name, 1000) in named
    assert any(
        item.kind == "damaged-tail" and item.path == str(files[1]) and item.offset_bytes < 1000 for item in found
    )
    assert ("missing-table", "consumerOffset.json", 0) in named


def test_files_without_a_byte_are_named(tmp_path: Path) -> None:
    root = written(tmp_path)
    table = root / "config" / "consumerOffset.json"
    table.write_bytes(b"")
    files = sorted((root / "commitlog").iterdir())
    files[1].write_bytes(b"")

    assert damages(root) == {
        ("empty-table", "config/consumerOffset.json", 0),
        ("short-file", f"commitlog/{files[1].name}", 0),
    }
