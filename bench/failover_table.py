"""What the bench of failovers measures, what each figure must be, and how figures become tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Figures = dict[str, float]


@dataclass(frozen=True)
class Target:
    """One figure: what it must stay below, and which part of the real system's figure it must and should be.

    `note` is said beside it in pages.
    """

    key: str
    label: str
    must_s: float | None = None
    must_ratio: float | None = None
    goal_ratio: float | None = None
    note: str = ""

    def verdict(self, ours: float | None, java: float | None) -> str:
        """Return goal, pass or MISS; "-" when there is nothing to compare with."""
        if ours is None:
            return "-"
        ratio = ours / java if java else None
        if self.must_s is not None and ours > self.must_s:
            return "MISS"
        if self.must_ratio is not None and ratio is not None and ratio > self.must_ratio:
            return "MISS"
        if self.goal_ratio is not None and ratio is not None and ratio <= self.goal_ratio:
            return "goal"
        return "-" if self.must_s is None and ratio is None else "pass"


DROPS = "the reference drops one broker of a closed connection, by chance; the others after their timeout"
UNNOTICED = "the reference registers at once and loses what was committed meanwhile; here it goes through pre-online"
TARGETS = (
    Target("kill_route_s", "killed container: rewritten route", 0.5, None, 0.1, DROPS),
    Target("kill_read_s", "killed container: first good read", 1.0, None, 0.1),
    Target("silent_route_s", "silent container, 1 s timeouts: route", 2.0, None, 0.5),
    Target("silent_read_s", "silent container, 1 s timeouts: first read", 2.0, None, 0.5),
    Target("return_send_s", "return: process start to first send", None, 1 / 3, 1 / 5, "three brokers in the process"),
    Target("frozen_route_s", "frozen container: rewritten route", note="timeouts of 10 s, the default"),
    Target("frozen_send_s", "frozen container that goes on: first send", note=UNNOTICED),
    Target("merge_s", "pre-online, 1,000 groups x 64 queues", 2.0, note="every offset has changed"),
    Target("merge_send_s", "return with them: start to first send"),
)


def medians(rounds: Sequence[Figures]) -> Figures:
    keys = dict.fromkeys(key for figures in rounds for key in figures)
    return {key: statistics.median(figures[key] for figures in rounds if key in figures) for key in keys}


def table(ours: Figures, java: Figures) -> list[str]:
    """Returns the result as lines of text."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    lines = [f"{'seconds':44}{'Java':>9}{'ours':>9}{'ratio':>8}{'must':>8}{'ratio must':>12}{'goal':>7}  result"]
    for target in TARGETS:
        mine, theirs = ours.get(target.key), java.get(target.key)
        if mine is None and theirs is None:
            continue
        ratio = mine / theirs if mine is not None and theirs else None
        wanted = f"{cell(target.must_s):>8}{cell(target.must_ratio):>12}{cell(target.goal_ratio):>7}"
        row = f"{target.label:44}{cell(theirs):>9}{cell(mine):>9}{cell(ratio):>8}{wanted}"
        lines.append(f"{row}  {target.verdict(mine, theirs)}")
    return lines


TABLE_BEGIN = "| seconds, "
NOT_MEASURED = "not measured"


def page_table(ours: Sequence[Figures], java: Sequence[Figures]) -> list[str]:
    """Returns the result as lines of a table in Markdown: of each figure the least and the greatest of all rounds.

    What was not measured has its row, too, so that the page never shows less than the bench can.
    """

    def cell(rounds: Sequence[Figures], key: str) -> str:
        found = [
            f"{figures[key]:.3g}" for figures in sorted(rounds, key=lambda each: each.get(key, 0)) if key in figures
        ]
        if not found:
            return NOT_MEASURED
        return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"

    number = max(len(ours), len(java))
    rounds = "one round" if number == 1 else f"least to greatest of {number} rounds"
    return [
        f"{TABLE_BEGIN}{rounds} | Java 5.4.0 | here | |",
        "|---|---|---|---|",
        *(
            f"| {target.label} | {cell(java, target.key)} | {cell(ours, target.key)} | {target.note}".rstrip() + " |"
            for target in TARGETS
        ),
    ]


def table_of_page(page: str) -> tuple[int, int]:
    """Returns begin and end of the table in *page* (Markdown). Raises ValueError when there is none, or two."""
    if f"\n{page}".count(f"\n{TABLE_BEGIN}") != 1:
        raise ValueError(f"it must hold one table that begins with: {TABLE_BEGIN.strip()}")
    begin = f"\n{page}".index(f"\n{TABLE_BEGIN}")
    end = page.find("\n\n", begin)
    return begin, len(page.rstrip("\n")) if end < 0 else end


def put_into(path: Path, lines: Sequence[str]) -> None:
    """Replaces the table of the page at *path* by *lines*. Raises ValueError, OSError."""
    page = path.read_text(encoding="utf-8")
    begin, end = table_of_page(page)
    path.write_text(page[:begin] + "\n".join(lines) + page[end:], encoding="utf-8")
