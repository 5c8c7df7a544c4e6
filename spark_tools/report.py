"""One HTML file that opens without a network: tables that sort on a click and plots drawn as SVG."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.spark_tools.durable import replace_file

MOST_ROWS = 2000
_COLOURS = ("#2f6f9f", "#c2571a", "#4c8c4a", "#8a4f9e", "#b8860b", "#5f6b73", "#a33b3b", "#2a8c8c")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report; `total` is the number of rows there are when not all are shown.

    `shown` says for columns of milliseconds how a page words them; it sorts by the numbers, and files for programs have
    those.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    total: int | None = None
    shown: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing of a report."""

    title: str
    svg: str


@dataclass(slots=True)
class Report:
    """What a job found, ready to be written as HTML and JSON."""

    title: str
    verdict: str
    facts: dict[str, Any] = field(default_factory=dict)
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def bars(title: str, values: Sequence[tuple[str, int]] | Sequence[tuple[str, float]], unit: str = "") -> Plot:
    """Horizontal bars, one per label, with their values written beside them."""
    height = 26 * len(values) + 10
    most = max((value for _, value in values), default=0) or 1
    parts = []
    for row, (label, value) in enumerate(values):
        width = max(1.0, 420 * value / most) if value else 0.0
        y = 26 * row + 6
        colour = _COLOURS[row % len(_COLOURS)]
        parts.append(
            f'<text x="238" y="{y + 14}" text-anchor="end">{html.escape(_short(label))}</text>'
            f'<rect x="246" y="{y}" width="{width:.1f}" height="18" rx="2" fill="{colour}"/>'
            f'<text x="{252 + width:.1f}" y="{y + 14}">{_number(value)}{html.escape(unit)}</text>'
        )
    return Plot(title, _svg(title, 780, height, "".join(parts)))


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_unit: str, y_unit: str) -> Plot:
    """Lines over a common x axis, one per name.

    Args:
        title: of the plot.
        series: points (x, y) of each line, by name.
        x_unit: written below the plot.
        y_unit: written beside it.
    """
    points = [point for line in series.values() for point in line]
    width, height, left, bottom = 780, 300, 70, 40
    low_x, high_x = min((x for x, _ in points), default=0), max((x for x, _ in points), default=1)
    high_y = max((y for _, y in points), default=1) or 1
    span = (high_x - low_x) or 1

    def place(x: float, y: float) -> str:
        return (
            f"{left + (x - low_x) / span * (width - left - 20):.1f},{height - bottom - y / high_y * (height - 70):.1f}"
        )

    parts = [
        f'<line x1="{left}" y1="{height - bottom}" x2="{width - 20}" y2="{height - bottom}" stroke="#888"/>'
        f'<line x1="{left}" y1="30" x2="{left}" y2="{height - bottom}" stroke="#888"/>'
        f'<text x="{left - 6}" y="36" text-anchor="end">{_number(high_y)} {html.escape(y_unit)}</text>'
        f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end">0</text>'
        f'<text x="{left}" y="{height - 22}">{_number(low_x)}</text>'
        f'<text x="{width - 20}" y="{height - 22}" text-anchor="end">{_number(high_x)} {html.escape(x_unit)}</text>'
    ]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(x, y) for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 10 + 170 * (number % 4)}" y="{14 + 14 * (number // 4)}" fill="{colour}">')
        parts.append(f"{html.escape(_short(name, 24))}</text>")
    return Plot(title, _svg(title, width, height, "".join(parts)))


def _svg(title: str, width: int, height: int, inner: str) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">{inner}</svg>'
    )


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1200px;padding:0 16px;color:#1d2327}
h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:28px 0 8px}
.verdict{font-weight:600;padding:8px 12px;border-radius:4px;background:#eef3f6;display:inline-block}
.verdict.agree{background:#e2f1e2}.verdict.differ{background:#fbeedd}.verdict.damaged{background:#f8dfdf}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px}dt{color:#5f6b73}dd{margin:0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:4px 8px;border-bottom:1px solid #dde3e7;text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{cursor:pointer;background:#f4f6f8;white-space:nowrap}td.n{text-align:right;font-variant-numeric:tabular-nums}
th[aria-sort=ascending]::after{content:" \\25b2"}th[aria-sort=descending]::after{content:" \\25bc"}
svg text{font:12px system-ui,sans-serif;fill:#1d2327}.note{color:#5f6b73}
"""

_SCRIPT = """
for (const head of document.querySelectorAll('th')) head.addEventListener('click', () => {
  const table = head.closest('table'), body = table.tBodies[0], column = head.cellIndex;
  const up = head.getAttribute('aria-sort') !== 'ascending';
  for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const key = row => { const text = row.cells[column].dataset.v; const n = Number(text);
    return text !== '' && !Number.isNaN(n) ? n : text; };
  const rows = [...body.rows].map(row => [key(row), row]);
  rows.sort(([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? -1 : 1)
    * (up ? 1 : -1));
  body.append(...rows.map(([, row]) => row));
});
document.documentElement.dataset.ready = 'yes';
"""


def render(report: Report) -> str:
    """The report as one self-contained HTML page."""
    kind = report.verdict.split()[0].rstrip(":,").lower()
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">",
        f"<title>{html.escape(report.title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(report.title)}</h1>",
        f'<p class="verdict {html.escape(kind)}">{html.escape(report.verdict)}</p><dl>',
    ]
    for name, value in report.facts.items():
        parts.append(f"<dt>{html.escape(name)}</dt><dd>{html.escape(_cell(value))}</dd>")
    parts.append("</dl>")
    parts += [f'<h2>{html.escape(plot.title)}</h2><div class="scroll">{plot.svg}</div>' for plot in report.plots]
    parts += [_render_table(table) for table in report.tables]
    parts.append(f"<script>{_SCRIPT}</script></body></html>\n")
    return "".join(parts)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value)
    return str(value)


def _render_table(table: Table) -> str:
    total = table.total if table.total is not None else len(table.rows)
    parts = [f"<h2>{html.escape(table.title)}</h2>"]
    if table.note:
        parts.append(f'<p class="note">{html.escape(table.note)}</p>')
    if not table.rows:
        return "".join([*parts, '<p class="note">none</p>'])
    if total > len(table.rows):
        parts.append(f'<p class="note">{len(table.rows)} of {total} rows; all of them are in the Parquet files</p>')
    names = [name.removesuffix(" (ms)") if name in table.shown else name for name in table.columns]
    words = [table.shown.get(name, _cell) for name in table.columns]
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    parts.append(f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>')
    for row in table.rows:
        cells = []
        for value, word in zip(row, words, strict=True):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            key = "" if value is None else str(value)
            mark = ' class="n"' if number else ""
            cells.append(f'<td{mark} data-v="{html.escape(key)}">{html.escape(word(value))}</td>')
        parts.append("<tr>" + "".join(cells) + "</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def as_json(report: Report) -> str:
    """The report's facts and tables as JSON."""
    body = {
        "title": report.title,
        "verdict": report.verdict,
        "facts": report.facts,
        "tables": [
            {
                "title": table.title,
                "columns": list(table.columns),
                "rows": [list(row) for row in table.rows],
                "total": table.total if table.total is not None else len(table.rows),
            }
            for table in report.tables
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=False, default=str)


def write_report(report: Report, directory: str) -> str:
    """Writes report.html, report.json and one Parquet file per table; returns the path of the page."""
    os.makedirs(directory, exist_ok=True)
    page = os.path.join(directory, "report.html")
    replace_file(page, render(report).encode())
    replace_file(os.path.join(directory, "report.json"), as_json(report).encode())
    for table in report.tables:
        _write_parquet(table, directory)
    return page


def _write_parquet(table: Table, directory: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    name = "".join(letter if letter.isalnum() else "-" for letter in table.title.lower()).strip("-")
    columns = {column: [row[number] for row in table.rows] for number, column in enumerate(table.columns)}
    if not table.rows:
        arrays = pa.table({column: pa.array([], pa.string()) for column in table.columns})
    else:
        arrays = pa.table({column: _column(values) for column, values in columns.items()})
    parquet.write_table(arrays, os.path.join(directory, f"table-{name}.parquet"))


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a column of mixed kinds is kept as text
        return pa.array([None if value is None else _cell(value) for value in values], pa.string())
