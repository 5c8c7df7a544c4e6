"""The coverage matrix: what it prints, and that no test names a row that does not exist."""

from __future__ import annotations

import ast
from pathlib import Path

import coverage_matrix
import pytest

TESTS = Path(__file__).resolve().parents[1]


def named_rows(path: Path) -> set[str]:
    """Returns every literal row that `pytest.mark.covers(...)` names in a file."""
    rows: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "covers":
            rows |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return rows


def test_no_test_names_an_unknown_row() -> None:
    known = set(coverage_matrix.read_requirements())
    unknown = {str(path.relative_to(TESTS)): named_rows(path) - known for path in TESTS.rglob("test_*.py")}
    assert {} == {path: rows for path, rows in unknown.items() if rows}


def test_every_row_has_a_title() -> None:
    titles = coverage_matrix.read_requirements()
    assert {"R1", "R357", "NS-01", "CU-15", "SL-12", "IT-23"} <= set(titles)
    assert all(title for title in titles.values())


def test_a_repeated_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# rows\nR1 one\nR1 again\n")
    with pytest.raises(ValueError, match=r"requirements\.txt:3: 'R1'"):
        coverage_matrix.read_requirements(path)


def test_the_report_groups_tests_and_lists_what_is_missing_or_unknown() -> None:
    # given two known rows, one with tests; when a test names a third one
    titles = {"R1": "first", "R2": "second"}
    lines = coverage_matrix.report(titles, {"R1": ["b", "a", "a"], "R9": ["c"]}, only_missing=False)
    # then each kind has its place
    assert [
        "R1  first",
        "    a",
        "    b",
        "",
        "Rows that no test shows:",
        "  R2  second",
        "",
        "Rows that tests name but nobody knows:",
        "  R9  c",
        "",
        "Tests in quarantine, which the gate leaves out:",
        "  none",
        "",
        "1 of 2 rows are shown by a test",
    ] == lines


def test_a_test_in_quarantine_is_listed_with_its_reason_and_shows_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given two tests of one row, of which one fails now and then
    settings = ["-c", str(TESTS.parent / "pyproject.toml")]
    path = tmp_path / "test_doubtful_and_sure.py"
    doubtful = '@pytest.mark.quarantine("a race of two")\n@pytest.mark.covers("R2")\ndef test_doubtful():\n    pass\n'
    path.write_text(f'import pytest\n\n{doubtful}\n@pytest.mark.covers("R1")\ndef test_sure():\n    pass\n')
    # then the matrix names it with the reason, and its row is not shown
    assert coverage_matrix.main(["--missing", *settings, str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = lines[lines.index("Tests in quarantine, which the gate leaves out:") + 1]
    assert listed.endswith("::test_doubtful: a race of two")
    assert any(line.startswith("  R2  ") for line in lines)
    assert not any(line.startswith("  R1  ") for line in lines)
    # and one without a reason is refused
    other = tmp_path / "test_without_a_reason.py"
    other.write_text(path.read_text().replace('quarantine("a race of two")', "quarantine()"))
    assert coverage_matrix.main([*settings, str(other)]) == 1
    assert "without a reason" in capsys.readouterr().err
