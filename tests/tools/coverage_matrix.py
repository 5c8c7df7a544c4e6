"""Prints which tests show which requirement: `./understudy matrix [--missing] [--json] [PYTEST ARGUMENTS]`.

Tests name the rows they show with `@pytest.mark.covers("R2", "CT-06")`; `tests/data/requirements.txt` lists all rows.
Lists the tests in quarantine, too, with the reason of each.  Collects with pytest and runs nothing.  Exit 1 when a test
names a row that does not exist, is in quarantine without a reason, or collecting fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "tests" / "data" / "requirements.txt"

Coverage = dict[str, list[str]]


def read_requirements(path: Path = REQUIREMENTS) -> dict[str, str]:
    """Returns {row id: short title} in the order of the file; raises ValueError on a repeated id or a bare one."""
    titles: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        row, _, title = line.partition(" ")
        if not title or row in titles:
            raise ValueError(f"{path.name}:{number}: '{row}' is there twice or has no title")
        titles[row] = title
    return titles


class CoverageCollector:
    """A pytest plugin that keeps the rows every collected test names, and why tests are in quarantine."""

    def __init__(self) -> None:
        self.tests_by_row: Coverage = {}
        self.quarantine: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            doubtful = item.get_closest_marker("quarantine")
            if doubtful is not None:
                self.quarantine[item.nodeid] = str(doubtful.args[0]) if doubtful.args else ""
                continue  # it shows nothing
            for marker in item.iter_markers("covers"):
                for row in marker.args:
                    self.tests_by_row.setdefault(str(row), []).append(item.nodeid)


def collect(arguments: Iterable[str]) -> tuple[CoverageCollector, int, str]:
    """Collects without running; returns what was collected, pytest's exit code, what pytest printed."""
    collector = CoverageCollector()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = pytest.main(["--collect-only", "-q", "--no-header", *arguments], plugins=[collector])
    return collector, int(code), printed.getvalue()


def report(
    titles: Mapping[str, str],
    tests_by_row: Mapping[str, list[str]],
    only_missing: bool,
    quarantine: Mapping[str, str] | None = None,
) -> list[str]:
    """Returns the lines of the matrix: rows with their tests, rows without any, unknown rows, quarantine, a sum."""
    missing = [row for row in titles if row not in tests_by_row]
    unknown = sorted(row for row in tests_by_row if row not in titles)
    lines: list[str] = []
    if not only_missing:
        for row in titles:
            if row in tests_by_row:
                lines.append(f"{row}  {titles[row]}")
                lines += [f"    {test}" for test in sorted(set(tests_by_row[row]))]
        lines.append("")
    lines.append("Rows that no test shows:")
    lines += [f"  {row}  {titles[row]}" for row in missing] or ["  none"]
    if unknown:
        lines += ["", "Rows that tests name but nobody knows:"]
        lines += [f"  {row}  {', '.join(sorted(set(tests_by_row[row])))}" for row in unknown]
    lines += ["", "Tests in quarantine, which the gate leaves out:"]
    lines += [f"  {test}: {reason}" for test, reason in sorted((quarantine or {}).items())] or ["  none"]
    lines += ["", f"{len(titles) - len(missing)} of {len(titles)} rows are shown by a test"]
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="understudy matrix", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--missing", action="store_true", help="only the rows that no test shows")
    parser.add_argument("--json", action="store_true", help="{row: {title, tests}} instead of text")
    options, rest = parser.parse_known_args(arguments)
    os.chdir(ROOT)
    titles = read_requirements()
    collector, code, printed = collect(rest)
    tests_by_row = collector.tests_by_row
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(printed, file=sys.stderr)
        return 1
    if options.json:
        rows = {row: {"title": title, "tests": sorted(set(tests_by_row.get(row, [])))} for row, title in titles.items()}
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        print("\n".join(report(titles, tests_by_row, options.missing, collector.quarantine)))
    if not all(collector.quarantine.values()):
        print("a test is in quarantine without a reason: quarantine('why it fails now and then')", file=sys.stderr)
        return 1
    return 1 if any(row not in titles for row in tests_by_row) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
