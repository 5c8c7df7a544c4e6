"""What a master may not know when it is asked where a group is: what a slave took while nobody could tell it.

A master that was away asks its slaves before it answers readers. One that is cut off from the others, but reached by
consumers, is not away: it serves them, and a slave may act for it meanwhile. What that one took it learns when the cut
is over, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from understudy.testkit.drills.met_faults import NOTICE_SECONDS

CUTS = ("cut", "cut-in", "cut-out", "cut-off-servers")
"""Faults of a master's host in which consumers reach it, and name servers or slaves do not, or are not heard."""
_NAME = "silent answer"
_WHY = "consumers reach the master, which cannot learn that a slave acts: it serves them by what it knows itself"


@attrs.frozen
class Commit:
    """An offset that a broker took.

    Attributes:
        consumers: name of the group.
        offset: what was committed.
        address: of the broker.
        taken: virtual seconds.
    """

    consumers: str
    offset: int
    address: str
    taken: float


def may_not_know(commit: Commit, master: str, cuts: Iterable[tuple[float, float]], now: float) -> bool:
    """Return whether a master may answer less than *commit*: another one took it in a cut that is not over.

    Args:
        commit: in question.
        master: its address.
        cuts: when each of :data:`CUTS` of its host began and ended (virtual seconds; infinity: it has not).
        now: virtual seconds; the master notices within a second that a cut has ended.
    """
    return commit.address != master and any(
        begin <= commit.taken and now <= end + NOTICE_SECONDS for begin, end in cuts
    )


def answers_table() -> str:
    """Return what :func:`may_not_know` allows as a table in Markdown; ``docs/failover.md`` holds it."""
    faults = f"{', '.join(CUTS)} at the master's host"
    when = f"committed at a slave after the fault, and asked for until {NOTICE_SECONDS:g} s after its end"
    return "\n".join(
        (
            "| not known | why | after which fault | when it was committed, and asked for |",
            "|---|---|---|---|",
            f"| {_NAME} | {_WHY} | {faults} | {when} |",
        )
    )
