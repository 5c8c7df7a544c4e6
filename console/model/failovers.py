"""Failovers as timelines: what was seen and told of each, from the last sign of the master to its return.

A step has the time that a broker tells where one does (``told``), else the time of the look that showed it first, which
may be one look later than it happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from understudy.console.model.groups import ACTING, MASTER, NONE, Group, Member, acting_starts
from understudy.console.model.looks import MASTER_ID, Look

MOST_KEPT = 50
STEPS = {
    "T0": "the master's last answer",
    "T1": "the name server drops the master",
    "T2": "the slave decides to act",
    "T3": "its services run",
    "T4": "clients are told to read from it",
    "T5": "it gives out messages",
    "R1": "the master is up again, in pre-online",
    "R2": "the master is registered again",
}
"""Steps in their order, with what each means."""
_HANDED_OUT = "msgGetTotalTodayNow"


@attrs.frozen
class Step:
    """When something happened; *told* by a broker, or seen by a look."""

    at_ms: int
    told: bool = False


@attrs.frozen
class Failover:
    """One loss of a master.

    Attributes:
        group: that lost it.
        master: address of the master; ``""`` when it was gone before the first look.
        acting: address of the slave that acts or acted; ``""`` when none did.
        why: why it acted, in its own words.
        steps: by the keys of :data:`STEPS`.
        over: the master is back.
        handed_out: how many messages the slave had given out when it was first seen acting; ``None`` unknown.
        silent: the master did not answer at some time of it.
    """

    group: str
    master: str
    acting: str
    why: str
    steps: Mapping[str, Step]
    over: bool = False
    handed_out: float | None = None
    silent: bool = False

    @property
    def began_ms(self) -> int:
        """The first time that is known of it."""
        return min(step.at_ms for step in self.steps.values())


def observe(
    known: Sequence[Failover], before: Mapping[str, Group], after: Mapping[str, Group], look: Look
) -> tuple[Failover, ...]:
    """Return the failovers after one more look, the newest last; at most :data:`MOST_KEPT`.

    Args:
        known: those until now.
        before: the groups as they were before the look.
        after: the groups as they are.
        look: what was seen.
    """
    if look.groups is None:
        return tuple(known)
    found = list(known)
    for name, group in after.items():
        index = next((number for number, each in enumerate(found) if each.group == name and not each.over), None)
        if index is None:
            begun = _begun(before.get(name), group, look)
            if begun is not None:
                found.append(_continued(begun, group, look))
        else:
            found[index] = _continued(found[index], group, look)
    return tuple(found[-MOST_KEPT:])


def _begun(before: Group | None, group: Group, look: Look) -> Failover | None:
    if group.state == MASTER or (before is None and group.state == NONE):
        return None
    master = group.master
    steps: dict[str, Step] = {}
    if before is not None and before.state == MASTER:
        if master is not None and master.answer is not None:
            steps["T0"] = Step(master.answer.at_ms)
        steps["T1"] = Step(look.at_ms)
    elif group.state != ACTING:
        return None
    return Failover(group.name, "" if master is None else master.address, "", "", steps)


def _continued(failover: Failover, group: Group, look: Look) -> Failover:
    steps = dict(failover.steps)
    leader = group.members.get(group.leader)
    if group.state == ACTING and leader is not None and leader.answer is not None:
        starts = acting_starts(leader.answer)
        steps.setdefault("T2", Step(min(starts), True) if starts else Step(look.at_ms))
        steps.setdefault("T3", Step(max(starts), True) if starts else Step(look.at_ms))
        if "T1" in steps and steps["T2"].at_ms < steps["T1"].at_ms:
            steps["T1"] = Step(steps["T2"].at_ms)  # the slave decided because of it: it was no later
        handed_out = leader.answer.number(_HANDED_OUT)
        if failover.acting != leader.address:
            failover = attrs.evolve(failover, acting=leader.address, why=group.why, handed_out=handed_out)
        elif None not in (handed_out, failover.handed_out) and (handed_out or 0) > (failover.handed_out or 0):
            steps.setdefault("T5", Step(look.at_ms))
        if group.shown.get(MASTER_ID) == leader.address:
            steps.setdefault("T4", Step(look.at_ms))
    master = group.master
    if master is not None:
        failover = attrs.evolve(failover, silent=failover.silent or not master.answers)
        back = _back(failover, master)
        if back is not None:
            steps.setdefault("R1", back)
    if group.state == MASTER:
        steps["R2"] = Step(look.at_ms)
    return attrs.evolve(failover, steps=steps, over=group.state == MASTER)


def _back(failover: Failover, master: Member) -> Step | None:
    """Return when the master answered again: as its new process tells, or after it was silent; else it never left."""
    if not master.answers or master.answer is None:
        return None
    boot_ms, lost = master.answer.number("bootTimestamp"), failover.steps.get("T0")
    if boot_ms is not None and lost is not None and boot_ms > lost.at_ms:
        return Step(int(boot_ms), True)
    return Step(master.answer.at_ms) if failover.silent else None
