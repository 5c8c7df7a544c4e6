"""What a run of a drill showed."""

from __future__ import annotations

from collections import Counter

import attrs

from understudy.container.preonline.report import Report
from understudy.testkit.drills.acting_kinds import Kind
from understudy.testkit.drills.lateness import Lateness
from understudy.testkit.history import Verdict

ALLOWED_REPEAT = "allowed repeat, "
"""Counts whose name begins like this say how many repeats a row of the table of allowed ones explains."""


@attrs.frozen
class Step:
    """One step of the timeline; *seconds* after the fault."""

    name: str
    seconds: float


@attrs.define
class DrillResult:
    """What a run showed.

    Attributes:
        seed, fault, group: what was played.
        steps: the timeline.
        report: what the returning master took over, ``None`` when it never went through pre-online.
        verdict: of what clients saw.
        problems: promises broken by the brokers themselves.
        counts: how much happened, and how often each kind of fault.
        measures: the greatest of each duration that was seen, in seconds.
        kinds: what came of each kind of message.
        lateness: how late came what was due; ``None`` where nothing is promised of that.
    """

    seed: int
    fault: str
    group: str
    steps: list[Step]
    report: Report | None
    verdict: Verdict
    problems: list[str]
    counts: Counter[str] = attrs.field(factory=Counter)
    measures: dict[str, float] = attrs.field(factory=dict)
    kinds: list[Kind] = attrs.field(factory=list)
    lateness: Lateness | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was broken."""
        return self.verdict.ok and not self.problems

    @property
    def violations(self) -> list[str]:
        """Every broken promise in a line."""
        return [*self.problems, *(f"{each.rule}: {each.detail}" for each in self.verdict.violations)]
