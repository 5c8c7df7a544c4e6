"""Reports of the Spark jobs: which there are, and what pages show of them, within bounds.

Where they come from is an input (:mod:`~understudy.console.report_files`). This is for a thread: reports are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.console.report_files import ReportError, ReportFiles, Stamp, file_of, too_large
from understudy.format.json_dialect import JsonError, loads_in_steps

MOST_REPORTS = 500
MOST_NAMES = 20_000
"""Names of files and folders that one look takes in."""
MOST_BYTES = 8 << 20
MOST_BYTES_READ = MOST_BYTES
"""Of reports in one look, which is two seconds of a thread; those that are left are read in the next ones."""
MOST_TROUBLES = 50
MOST_TABLES, MOST_COLUMNS, MOST_ROWS = 16, 64, 2_000
MOST_FACTS, MOST_CHARACTERS = 64, 2_000
_SEVERITIES = ("damaged", "differ", "unknown", "agree")
"""The first word of a report's verdict, the worst first; ``unknown`` is what none of the jobs writes."""
_EXACT = 1 << 53  # larger numbers are not exact in a browser


@attrs.frozen
class Known:
    """What one file said when it was read.

    Attributes:
        stamp: of the file then.
        title, verdict: of the report.
        trouble: why it is none, in one line; ``""`` when it is one.
    """

    stamp: Stamp
    title: str = ""
    verdict: str = ""
    trouble: str = ""


@attrs.frozen
class Listing:
    """What one look at the folder found.

    Attributes:
        known: of each report that was read now or before, by name.
        unread: how many are left for the next looks.
        left_out: how many were not taken in, as there are more than :data:`MOST_REPORTS`.
        more_names: the folder has more names than one look takes in.
        troubles: of folders, one line each.
    """

    known: Mapping[str, Known] = attrs.field(factory=dict)
    unread: int = 0
    left_out: int = 0
    more_names: bool = False
    troubles: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as a page has it: the worst first, of equal ones the newest."""
        rows: list[dict[str, Any]] = [
            {
                "name": name,
                "title": each.title,
                "verdict": each.verdict,
                "severity": severity_of(each.verdict),
                "writtenAt": each.stamp.written_ns // 1_000_000,
            }
            for name, each in self.known.items()
            if not each.trouble
        ]
        rows.sort(key=lambda row: (_SEVERITIES.index(row["severity"]), -row["writtenAt"], row["name"]))
        troubles = [*self.troubles, *(each.trouble for each in self.known.values() if each.trouble)]
        if self.more_names:
            troubles.append(f"it has more than {MOST_NAMES} names; the rest was not looked at")
        return {
            "rows": rows,
            "missing": troubles[:MOST_TROUBLES],
            "unread": self.unread,
            "leftOut": self.left_out,
        }


def severity_of(verdict: str) -> str:
    """Return what a verdict says in a word."""
    word = verdict.partition(":")[0].partition(" ")[0].lower()
    return word if word in _SEVERITIES else "unknown"


def look(files: ReportFiles, before: Mapping[str, Known]) -> Listing:
    """Return the reports that there are.

    Args:
        files: where jobs write them (``--out``), or folders with them.
        before: what was known; a file that nobody changed is not read again.

    Raises:
        ReportError: nothing can be read.
    """
    found = files.find(MOST_NAMES)
    newest = sorted(found.stamps.items(), key=lambda item: (-item[1].written_ns, item[0]))
    known: dict[str, Known] = {}
    room, unread = MOST_BYTES_READ, 0
    for name, stamp in newest[:MOST_REPORTS]:
        old = before.get(name)
        if old is not None and old.stamp == stamp:
            known[name] = old
        elif stamp.size > MOST_BYTES:
            known[name] = Known(stamp, trouble=too_large(name, stamp.size, MOST_BYTES))
        elif stamp.size > room:
            unread += 1
        else:
            room -= stamp.size
            known[name] = _known(files, name, stamp)
    return Listing(known, unread, max(len(newest) - MOST_REPORTS, 0), found.more, found.troubles)


def one(files: ReportFiles, name: str) -> dict[str, Any]:
    """Return the report called *name* as a page has it.

    Args:
        files: as for :func:`look`.
        name: as there.

    Raises:
        ReportError: there is none, or it cannot be read.
    """
    report, stamp = _read(files, name)
    facts = report.get("facts")
    tables = report.get("tables")
    tables = tables if isinstance(tables, list) else []
    return {
        "name": name,
        "title": _text(report["title"]),
        "verdict": _text(report["verdict"]),
        "severity": severity_of(report["verdict"]),
        "writtenAt": stamp.written_ns // 1_000_000,
        "facts": [
            [_text(key), _text(value)]
            for key, value in list(facts.items() if isinstance(facts, dict) else ())[:MOST_FACTS]
        ],
        "tables": [_table(each) for each in tables[:MOST_TABLES] if isinstance(each, dict)],
        "tablesCut": max(len(tables) - MOST_TABLES, 0),
    }


def _known(files: ReportFiles, name: str, stamp: Stamp) -> Known:
    try:
        report, _ = _read(files, name)
    except ReportError as error:
        return Known(stamp, trouble=str(error))
    return Known(stamp, _text(report["title"]), _text(report["verdict"]))


def _read(files: ReportFiles, name: str) -> tuple[dict[str, Any], Stamp]:
    """Return the report called *name*, whose title and verdict are texts. Raises :class:`ReportError`."""
    data, stamp = files.read(name, MOST_BYTES)
    try:
        report = loads_in_steps(data)
    except JsonError as error:
        raise ReportError(f"{file_of(name)} is damaged: {' '.join(str(error).split())[:MOST_CHARACTERS]}") from None
    texts = (report.get("title"), report.get("verdict")) if isinstance(report, dict) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ReportError(f"{file_of(name)} is no report of a Spark job")
    return report, stamp


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    columns, rows, total = table.get("columns"), table.get("rows"), table.get("total")
    columns = columns[:MOST_COLUMNS] if isinstance(columns, list) else []
    rows = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    return {
        "title": _text(table.get("title")),
        "columns": [_text(each) for each in columns],
        "rows": [[_cell(each) for each in row[: len(columns)]] for row in rows[:MOST_ROWS]],
        "total": total if isinstance(total, int) else len(rows),
    }


def _cell(value: Any) -> str | float | None:
    """Return a value as a page has it: what a browser can hold as a number is one, everything else a text."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _EXACT:
        return value
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = ", ".join(map(str, value[:MOST_COLUMNS]))
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
