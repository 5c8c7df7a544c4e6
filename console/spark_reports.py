"""Reports of the Spark jobs below one folder: found, and read within bounds. Nothing outside that folder is ever read.

What a browser names is opened part by part, each below the one before, and a link is followed nowhere but at the folder
itself. All of this is for a thread: disks are slow.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs

from understudy.format.json_dialect import JsonError, loads_in_steps

FILE = "report.json"
MOST_REPORTS = 500
MOST_NAMES = 20_000
"""Names of files and folders that one look takes in."""
MOST_DEPTH = 3
"""Folders between the one that was given and a report."""
MOST_BYTES = 8 << 20
MOST_BYTES_READ = MOST_BYTES
"""Of reports in one look, which is two seconds of a thread; those that are left are read in the next ones."""
MOST_TROUBLES = 50
MOST_TABLES, MOST_COLUMNS, MOST_ROWS = 16, 64, 2_000
MOST_FACTS, MOST_CHARACTERS = 64, 2_000
_SEVERITIES = ("damaged", "differ", "unknown", "agree")
"""The first word of a report's verdict, the worst first; ``unknown`` is what none of the jobs writes."""
_NO_REPORTS = (".parquet", ".journal")
_EXACT = 1 << 53  # larger numbers are not exact in a browser


class ReportError(Exception):
    """A report, or the folder, cannot be read; the message is one line."""


@attrs.frozen
class Stamp:
    """By what a file is known again that nobody has changed."""

    written_ns: int
    size: int
    number: int


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


def look(folder: str, before: Mapping[str, Known]) -> Listing:
    """Return the reports below *folder*.

    Args:
        folder: where jobs write them (``--out``), or folders with them.
        before: what was known; a file that nobody changed is not read again.

    Raises:
        ReportError: the folder cannot be read.
    """
    search = _Search(MOST_NAMES)
    try:
        with _opened(folder) as root:
            search.below(root, ())
    except OSError as error:
        raise ReportError(f"{folder} cannot be read: {error.strerror}") from None
    newest = sorted(search.found.items(), key=lambda item: (-item[1].written_ns, item[0]))
    known: dict[str, Known] = {}
    room, unread = MOST_BYTES_READ, 0
    for name, stamp in newest[:MOST_REPORTS]:
        old = before.get(name)
        if old is not None and old.stamp == stamp:
            known[name] = old
        elif stamp.size > MOST_BYTES:
            known[name] = Known(stamp, trouble=_too_large(name, stamp.size))
        elif stamp.size > room:
            unread += 1
        else:
            room -= stamp.size
            known[name] = _known(folder, name, stamp)
    return Listing(known, unread, max(len(newest) - MOST_REPORTS, 0), search.more, tuple(search.troubles))


def one(folder: str, name: str) -> dict[str, Any]:
    """Return the report called *name* as a page has it.

    Args:
        folder: as it is for :func:`look`.
        name: of the report's folder below it, ``.`` for that folder itself.

    Raises:
        ReportError: there is none, or it cannot be read.
    """
    report, stamp = _read(folder, name)
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


@attrs.define
class _Search:
    """Looks for reports; *left* is how many names it still takes in, and *more* whether there are others."""

    left: int
    more: bool = False
    found: dict[str, Stamp] = attrs.field(factory=dict)
    troubles: list[str] = attrs.field(factory=list)

    def below(self, folder: int, parts: tuple[str, ...]) -> None:
        """Note the reports in an open *folder*, whose name below the first is *parts*, and in those below it."""
        name = "/".join(parts) or "."
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.left <= 0:
                    self.more = True
                    return
                self.left -= 1
                if entry.name == FILE and entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    self.found[name] = _stamp(about)
                elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(_NO_REPORTS):
                    folders.append(entry.name)
        for each in sorted(folders) if len(parts) < MOST_DEPTH else ():
            try:
                with _opened(each, folder) as inner:
                    self.below(inner, (*parts, each))
            except OSError as error:
                self.troubles.append(f"{'/'.join((*parts, each))} cannot be read: {error.strerror}")


@contextmanager
def _opened(path: str, inside: int | None = None) -> Iterator[int]:
    """Open a folder; *inside* another one that is open, a link is not followed. Raises ``OSError``."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if inside is None else os.O_NOFOLLOW)
    folder = os.open(path, flags, dir_fd=inside)
    try:
        yield folder
    finally:
        os.close(folder)


def _known(folder: str, name: str, stamp: Stamp) -> Known:
    try:
        report, _ = _read(folder, name)
    except ReportError as error:
        return Known(stamp, trouble=str(error))
    return Known(stamp, _text(report["title"]), _text(report["verdict"]))


def _read(folder: str, name: str) -> tuple[dict[str, Any], Stamp]:
    """Return the report called *name*, whose title and verdict are texts. Raises :class:`ReportError`."""
    parts = [] if name == "." else name.split("/")
    if len(parts) > MOST_DEPTH or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ReportError("there is no such report")
    try:
        with ExitStack() as stack:
            inside = stack.enter_context(_opened(folder))
            for part in parts:
                inside = stack.enter_context(_opened(part, inside))
            # not blocking: a pipe of that name must not keep the thread
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(FILE, flags, dir_fd=inside), "rb") as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode):
                    raise ReportError("there is no such report")
                if about.st_size > MOST_BYTES:
                    raise ReportError(_too_large(name, about.st_size))
                data = file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ReportError("there is no such report") from None
    except (OSError, UnicodeEncodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "that is no name of a file"
        raise ReportError(f"{_file(name)} cannot be read: {why}") from None
    try:
        report = loads_in_steps(data)
    except JsonError as error:
        raise ReportError(f"{_file(name)} is damaged: {' '.join(str(error).split())[:MOST_CHARACTERS]}") from None
    texts = (report.get("title"), report.get("verdict")) if isinstance(report, dict) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ReportError(f"{_file(name)} is no report of a Spark job")
    return report, _stamp(about)


def _stamp(about: os.stat_result) -> Stamp:
    return Stamp(about.st_mtime_ns, about.st_size, about.st_ino)


def _file(name: str) -> str:
    return FILE if name == "." else f"{name}/{FILE}"


def _too_large(name: str, size: int) -> str:
    return f"{_file(name)} has {size} bytes; the console reads {MOST_BYTES} at most, the page beside it shows it"


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
