"""Arrows between the rooms point down only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_room_imports_a_room_above_it() -> None:
    # given the contracts in pyproject.toml; when the import graph of the whole package is checked
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    # then every contract is kept
    assert (0, True) == (done.returncode, " 0 broken" in done.stdout), done.stdout[-3000:] + done.stderr[-1000:]
