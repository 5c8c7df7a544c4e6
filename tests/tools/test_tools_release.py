"""The changelog and the wheel speak of the same version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_newest_released_heading_is_the_version_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased", "new lines have a place"
    assert headings[1] == project["version"]
    numbers = [tuple(int(part) for part in heading.split(".")) for heading in headings[1:]]
    assert numbers == sorted(numbers, reverse=True)
