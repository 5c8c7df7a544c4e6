"""What a figure of ours divided by the same figure of the real broker must and should be, and how a run did."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

Figures = dict[str, Any]


class Verdict(Enum):
    """How a ratio compares with its target."""

    GOAL = "goal"
    PASS = "pass"
    MISS = "MISS"
    NOT_MEASURED = "-"


@dataclass(frozen=True)
class Target:
    """One figure: where it is found in a side's figures, its unit, and the ratios ours / Java that count."""

    label: str
    step: str
    part: str | None
    unit: str
    must: float
    goal: float
    more_is_better: bool = False

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """Returns this figure of one side, or None when it was not measured."""
        found = figures.get(self.step)
        if self.part is not None:
            found = found.get(self.part) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else None

    def verdict(self, ratio: float | None) -> Verdict:
        if ratio is None:
            return Verdict.NOT_MEASURED
        if self.more_is_better:
            return Verdict.GOAL if ratio >= self.goal else Verdict.PASS if ratio >= self.must else Verdict.MISS
        return Verdict.GOAL if ratio <= self.goal else Verdict.PASS if ratio <= self.must else Verdict.MISS


def _rate(label: str, step: str, must: float, goal: float) -> Target:
    return Target(label, step, "msgs_s", "/s", must, goal, more_is_better=True)


def _cost(label: str, step: str, must: float, goal: float) -> Target:
    return Target(f"server CPU per 100,000: {label}", step, "server_cpu_s_per_100k", "s", must, goal)


TARGETS = (
    _rate("send, 1 thread", "send_sync_1", 1.4, 1.8),
    _rate("send, 64 threads", "send_sync_64", 2.0, 3.0),
    _rate("send, async", "send_async", 2.0, 3.0),
    Target("send p99, 64 threads", "send_sync_64", "p99_ms", "ms", 0.6, 0.3),
    _rate("send, batches of 32", "send_batch32", 0.9, 1.5),
    _rate("consume a backlog", "consume_backlog", 1.1, 1.5),
    _rate("consume by a condition, one in ten", "consume_sql", 1.5, 2.0),
    _rate("pull one queue", "pull_one_queue", 1.1, 1.5),
    _rate("send and commit, 64 threads", "send_transaction", 2.0, 3.0),
    _rate("pop and acknowledge a backlog", "pop_backlog", 1.3, 2.0),
    Target("p99 lateness of timers due in a minute", "timer_minute", "late_p99_ms", "ms", 1.0, 0.5),
    _rate("send, sync flush, 64 threads", "send_sync_flush_64", 1.0, 1.5),
    _rate("send, copied by a slave, 64 threads", "sync_master", 1.5, 2.0),
    Target("CPU of a slave on its master per 100,000", "sync_master", "slave_cpu_s_per_100k", "s", 0.5, 0.25),
    Target("log to an empty slave, from its start", "replicate", "attach_mb_s", "MB/s", 1.2, 2.0, more_is_better=True),
    _rate("send, all of three led replicas have it", "led_all_ack", 2.0, 3.0),
    Target("CPU of two slaves on a led master, 100,000", "led_steady", "slave_cpu_s_per_100k", "s", 0.25, 0.15),
    Target("backlog to a new led replica, from start", "led_replicate", "attach_mb_s", "MB/s", 1.2, 2.0, True),
    Target("backlog to a new led replica, 1st byte", "led_replicate", "mb_s", "MB/s", 1.2, 2.0, True),
    Target("end to end p50", "latency", "p50_ms", "ms", 0.6, 0.4),
    Target("end to end p99", "latency", "p99_ms", "ms", 0.6, 0.4),
    _cost("sent, 64 threads", "send_sync_64", 0.25, 0.12),
    _cost("sent in batches", "send_batch32", 0.9, 0.5),
    _cost("consumed", "consume_backlog", 0.3, 0.15),
    _cost("consumed by a condition", "consume_sql", 0.3, 0.15),
    _cost("popped", "pop_backlog", 0.4, 0.2),
    _cost("timers", "timer_minute", 0.4, 0.2),
    Target("start to first ack", "start_to_first_ack_ms", None, "ms", 1 / 8, 1 / 20),
    Target("restart after SIGKILL", "restart_killed_ms", None, "ms", 1 / 4, 1 / 10),
    Target("RssAnon idle", "anon_idle_mb", "all", "MB", 1 / 6, 1 / 12),
    Target("RssAnon after the load", "anon_after_mb", "all", "MB", 1 / 10, 1 / 20),
    Target("nine idle brokers: CPU", "nine_idle", "cpu_percent", "%", 1 / 10, 1 / 30),
    Target("nine idle brokers: RssAnon", "nine_idle", "anon_mb", "MB", 1 / 6, 1 / 10),
)


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    target: Target
    java: float | None
    ours: float | None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.java if self.ours is not None and self.java else None

    @property
    def verdict(self) -> Verdict:
        return self.target.verdict(self.ratio)


def medians(rounds: Iterable[Mapping[str, Any]]) -> Figures:
    """Returns the median of every number that the rounds of one side have in common places; a failed step has none."""
    merged: Figures = {}
    taken = list(rounds)
    for key in dict.fromkeys(key for figures in taken for key in figures):
        values = [figures[key] for figures in taken if key in figures]
        if all(isinstance(value, Mapping) for value in values):
            merged[key] = medians(value for value in values if "failed" not in value)
        else:
            numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
            if numbers:
                merged[key] = statistics.median(numbers)
    return merged


def compared(java: Mapping[str, Any], ours: Mapping[str, Any], targets: Sequence[Target] = TARGETS) -> list[Row]:
    return [Row(target, target.value(java), target.value(ours)) for target in targets]


def _cell(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def table(rows: Iterable[Row]) -> str:
    """Returns the ratios as text: the figure, both sides, ours / Java, what it must and should be, the verdict."""
    lines = [f"{'figure':42}{'unit':>5}{'Java':>13}{'ours':>13}{'ours/Java':>11}{'must':>9}{'goal':>9}  result"]
    for row in rows:
        sign = ">=" if row.target.more_is_better else "<="
        values = f"{_cell(row.java):>13}{_cell(row.ours):>13}{_cell(row.ratio, 3):>11}"
        wanted = f"{sign + _cell(row.target.must):>9}{sign + _cell(row.target.goal):>9}"
        lines.append(f"{row.target.label:42}{row.target.unit:>5}{values}{wanted}  {row.verdict.value}")
    return "\n".join(lines)
