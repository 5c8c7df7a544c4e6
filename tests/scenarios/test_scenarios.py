"""Every scenario file shows what the pure decisions do; ``--rewrite-scenarios`` writes the files anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scenario_file import ScenarioError, played

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_shows_what_happens(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    shown = played(text)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(shown)
    else:
        assert text == shown, "the decisions changed; look at the difference, then run with --rewrite-scenarios"


def test_every_file_says_first_what_it_shows() -> None:
    assert len(FILES) >= 12
    assert [path.name for path in FILES if not path.read_text().startswith("# ")] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("group 1 servers 1\n", "line 1: a block needs a line ----"),
        ("group 1 servers 1\nstart 0\nexplode 0\n----\n", "line 3: no such command: explode 0"),
        ("group 1 servers 1\nstart\npass many\n----\n", "line 3: cannot do: pass many"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(text: str, why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        played(text)


def test_the_page_names_every_file_and_tests_that_are_there() -> None:
    page = (HERE / "README.md").read_text()
    assert [path.name for path in FILES if f"`{path.name}`" not in page] == []
    tests = set(re.findall(r"`(\w+/test_\w+\.py)`", page))
    assert len(tests) >= 12
    assert [name for name in sorted(tests) if not (HERE.parent / name).is_file()] == []
