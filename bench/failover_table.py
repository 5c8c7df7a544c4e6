"""What the bench of failovers measures, what each figure must be, and how figures become tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.testkit.drills.led_replicas import TIMEOUT_MS

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
        return "-" if self.must_s is None and (self.must_ratio is None or ratio is None) else "pass"


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

MISSED_S = TIMEOUT_MS / 1000 + 0.2
LED_TARGETS = (
    Target("led_kill_decided_s", "killed master: the controllers have another"),
    Target("led_kill_route_s", "killed master: the route leads to it"),
    Target(
        "led_kill_send_s",
        "killed master: first accepted send",
        0.15,
        1.0,
        note="at most 0.15 s, and no longer than Java",
    ),
    Target(
        "led_signal_send_s",
        "the same, from the signal on",
        0.15,
        note="at most 0.15 s; the others count from the end of the process",
    ),
    Target(
        "led_frozen_send_s",
        f"frozen, timeout {TIMEOUT_MS} ms: first accepted send",
        MISSED_S,
        note=f"`controllerHeartBeatTimeoutMills={TIMEOUT_MS}`; at most {MISSED_S:g} s",
    ),
    Target("led_return_up_s", "return: process start to open port"),
    Target("led_return_set_s", "return: open port to the sync-state set"),
    Target("led_longer_set_s", "return with a longer log: the same", 1.0, note="at most 1 s; what only it had is cut"),
    Target("led_frozen_set_s", "frozen that goes on: to the sync-state set"),
)


def medians(rounds: Sequence[Figures]) -> Figures:
    keys = dict.fromkeys(key for figures in rounds for key in figures)
    return {key: statistics.median(figures[key] for figures in rounds if key in figures) for key in keys}


def table(ours: Figures, java: Figures, targets: Sequence[Target] = TARGETS) -> list[str]:
    """Returns the result as lines of text."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    lines = [f"{'seconds':44}{'Java':>9}{'ours':>9}{'ratio':>8}{'must':>8}{'ratio must':>12}{'goal':>7}  result"]
    for target in targets:
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


def missed(ours: Figures, java: Figures, targets: Sequence[Target]) -> list[Target]:
    """Returns the targets that a figure misses."""
    return [target for target in targets if target.verdict(ours.get(target.key), java.get(target.key)) == "MISS"]


def page_table(ours: Sequence[Figures], java: Sequence[Figures], targets: Sequence[Target] = TARGETS) -> list[str]:
    """Returns the result as lines of a table in Markdown: of each figure the median, and the least and the greatest.

    What was not measured has its row, too, so that the page never shows less than the bench can.
    """

    def cell(rounds: Sequence[Figures], key: str) -> str:
        found = sorted(figures[key] for figures in rounds if key in figures)
        if not found:
            return NOT_MEASURED
        least, median, greatest = (f"{each:.3g}" for each in (found[0], statistics.median(found), found[-1]))
        return median if least == greatest else f"{median} ({least} to {greatest})"

    number = max(len(ours), len(java))
    rounds = {0: "no round yet", 1: "one round"}.get(number, f"median (least to greatest) of {number} rounds")
    return [
        f"{TABLE_BEGIN}{rounds} | Java 5.4.0 | here | |",
        "|---|---|---|---|",
        *(
            f"| {target.label} | {cell(java, target.key)} | {cell(ours, target.key)} | {target.note}".rstrip() + " |"
            for target in targets
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
