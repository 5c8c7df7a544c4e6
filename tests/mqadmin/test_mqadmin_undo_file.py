"""The file that keeps half messages as they were, and what became of each decision about them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from understudy.mqadmin.command import CommandFailedError
from understudy.mqadmin.undo_file import DONE, UNKNOWN, UndoFile

ENTRIES = [{"place": f"place {number}", "bodyBase64": "eA=="} for number in range(3)]


def outcomes(path: Path) -> list[str]:
    return [each["outcome"] for each in json.loads(path.read_text())["decisions"]]


def test_each_outcome_stands_in_the_file_as_soon_as_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    undo = UndoFile(path, "h:1", "broker-a")
    with undo.created(ENTRIES):
        assert outcomes(path) == ["intended"] * 3
        undo.note(0, DONE)
        assert outcomes(path) == ["done", "intended", "intended"]
        undo.failed(1, UNKNOWN)
    assert outcomes(path) == ["done", "unknown", "not done"]
    assert undo.summary().startswith("done: place 0; done or not: place 1; not done: place 2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_older_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    path.write_text("kept")
    with pytest.raises(CommandFailedError, match="nothing was done"), UndoFile(path, "h:1", "a").created(ENTRIES):
        pytest.fail("it was opened")
    assert path.read_text() == "kept"
