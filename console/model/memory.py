"""All that is known of a cluster, one look after the other, and the first screen made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.console.model import containers, failovers, groups, rates, sync_sets, waiting
from understudy.console.model.failovers import STEPS, Failover
from understudy.console.model.groups import ACTING, MASTER, NONE, Group, Member, part_of
from understudy.console.model.lag import LagLook, Ranking
from understudy.console.model.looks import Look
from understudy.console.model.rates import Rates
from understudy.console.model.sync_sets import SyncSetLook
from understudy.console.model.waiting import StuckLook

FIRST_ROWS = 10
_ORDER = {NONE: 0, ACTING: 1, MASTER: 2}


@attrs.frozen
class Memory:
    """What is known.

    Attributes:
        at_ms: of the newest look; 0 before the first.
        groups: broker groups by name.
        failovers: the newest last.
        rates: of messages.
        lags: how far consumers are, by broker group.
        ranking: the same as one table; made anew by whoever changes *lags*, in a thread when it is large.
        stuck: what waits, by broker group.
        sync_sets: of the groups that controllers lead, by broker group.
        error: why no name server answers, ``""`` when one does.
        silent_since_ms: since when; ``None`` while one answers.
    """

    at_ms: int = 0
    groups: Mapping[str, Group] = attrs.field(factory=dict)
    failovers: tuple[Failover, ...] = ()
    rates: Rates = attrs.field(factory=Rates)
    lags: Mapping[str, LagLook] = attrs.field(factory=dict)
    ranking: Ranking = attrs.field(factory=Ranking)
    stuck: Mapping[str, StuckLook] = attrs.field(factory=dict)
    sync_sets: Mapping[str, SyncSetLook] = attrs.field(factory=dict)
    error: str = ""
    silent_since_ms: int | None = None


def observe(known: Memory, look: Look) -> Memory:
    """Return what is known after one more look."""
    now = groups.observe(known.groups, look)
    silent_ms = None
    if look.groups is None:
        silent_ms = look.at_ms if known.silent_since_ms is None else known.silent_since_ms
    return attrs.evolve(
        known,
        at_ms=look.at_ms,
        groups=now,
        failovers=failovers.observe(known.failovers, known.groups, now, look),
        rates=rates.observe(known.rates, now, look.at_ms),
        lags={name: each for name, each in known.lags.items() if name in now},
        stuck={name: each for name, each in known.stuck.items() if name in now},
        sync_sets={
            name: each for name, each in known.sync_sets.items() if name in now and sync_sets.controllers_of(now[name])
        },
        error=look.error,
        silent_since_ms=silent_ms,
    )


def with_lag(known: Memory, name: str, look: LagLook) -> Memory:
    """Return what is known after the leader of broker group *name* was asked how far its consumers are."""
    if look.error and name in known.lags:
        look = attrs.evolve(known.lags[name], error=look.error)
    return attrs.evolve(known, lags={**known.lags, name: look})


def with_stuck(known: Memory, name: str, look: StuckLook) -> Memory:
    """Return what is known after the leader of broker group *name* was asked what waits."""
    if look.error and name in known.stuck:
        look = attrs.evolve(known.stuck[name], error=look.error)
    return attrs.evolve(known, stuck={**known.stuck, name: look})


def with_sync_sets(known: Memory, looks: Mapping[str, SyncSetLook]) -> Memory:
    """Return what is known after controllers were asked for the sets of the groups in *looks*."""
    found = dict(known.sync_sets)
    for name, look in looks.items():
        before = found.get(name)
        found[name] = look if before is None or not look.error else attrs.evolve(before, error=look.error)
    return attrs.evolve(known, sync_sets=found)


# --- what is shown ---------------------------------------------------------------------------------------------------


def first_screen(known: Memory) -> dict[str, Any]:
    """Return the first screen: is every group led, who lags, what waits, how much goes through, the last failover."""
    behind = [row for row in known.ranking.groups if row["behind"]]
    stuck = waiting.rows_of(known.stuck.values())
    return {
        "at": known.at_ms,
        "nameServer": {"error": known.error, "silentSince": known.silent_since_ms},
        "verdict": verdict(known),
        "groups": group_rows(known),
        "containers": containers.rows_of(known.groups),
        "lag": {
            "total": sum(row["behind"] for row in behind),
            "groups": len(behind),
            "rows": behind[:FIRST_ROWS],
            "unknown": _unknown(known, known.lags),
        },
        "waiting": {
            "kinds": waiting.kinds_of(known.stuck.values()),
            "rows": [row for row in stuck if row.get("stuck")][:FIRST_ROWS],
            "unknown": _unknown(known, known.stuck),
            "cannotSay": sorted(name for name, look in known.stuck.items() if not look.says),
        },
        "rate": points(known)[-1:],
        "failovers": failover_rows(known)[:FIRST_ROWS],
    }


def verdict(known: Memory) -> dict[str, str]:
    """Return the answer to "is every group led" in a word and a sentence."""
    if known.silent_since_ms is not None:
        return {"state": "unknown", "text": f"No name server answers, what follows is old: {known.error}"}
    if not known.at_ms:
        return {"state": "unknown", "text": "Nothing was asked yet."}
    if not known.groups:
        return {"state": "unknown", "text": "The name server lists no broker."}
    lost = [group.name for group in known.groups.values() if group.state == NONE]
    if lost:
        return {"state": "none", "text": f"Without master, and nobody acts: {_listed(lost)}."}
    acted = [group.name for group in known.groups.values() if group.state == ACTING]
    if acted:
        return {"state": "acting", "text": f"Without master, a slave acts: {_listed(acted)}."}
    silent = [group.name for group in known.groups.values() if not group.members[group.leader].answers]
    if silent:
        return {"state": "unknown", "text": f"The master is registered, but does not answer: {_listed(silent)}."}
    count = len(known.groups)
    every = {1: "The group has its master.", 2: "Both groups have a master."}
    return {"state": "ok", "text": every.get(count, f"All {count} groups have a master.")}


def group_rows(known: Memory) -> list[dict[str, Any]]:
    """Return a row for each broker group, those without a master first."""
    ordered = sorted(known.groups.values(), key=lambda group: (_ORDER[group.state], _is_silent(group), group.name))
    return [_group_row(known, group) for group in ordered]


def _is_silent(group: Group) -> bool:
    return not (group.leader and group.members[group.leader].answers)


def _group_row(known: Memory, group: Group) -> dict[str, Any]:
    leader = group.members.get(group.leader)
    end = None if leader is None or leader.answer is None else leader.answer.number("commitLogMaxOffset")
    members = [
        _member_row(known, each, group, end)
        for each in sorted(group.members.values(), key=lambda each: (each.broker_id, not each.registered))
    ]
    sync_set = known.sync_sets.get(group.name)
    behind = {each["address"]: each["behindBytes"] for each in members}
    return {
        "name": group.name,
        "cluster": group.cluster,
        "state": group.state,
        "leader": group.leader,
        "leaderId": None if leader is None else leader.broker_id,
        "answers": bool(leader is not None and leader.answers),
        "since": group.since_ms,
        "exact": group.exact,
        "why": group.why,
        "members": members,
        "syncSet": None if sync_set is None else sync_sets.row_of(sync_set, group, behind),
    }


def _member_row(known: Memory, member: Member, group: Group, end: float | None) -> dict[str, Any]:
    look = member.answer
    roster = None if look is None else look.roster
    role = (roster or {}).get("role") or {}
    own_end = None if look is None else look.number("commitLogMaxOffset")
    follows = member.address != group.leader and end is not None and own_end is not None and member.answers
    rate, home = known.rates.now.get(member.address), containers.home_of(member)
    return {
        "id": member.broker_id,
        "address": member.address,
        "registered": member.registered,
        "answers": member.answers,
        "error": "" if member.look is None else member.look.error,
        "silentSince": member.silent_since_ms,
        "part": part_of(member, group),
        "place": home.kind,
        "container": home.address,
        "isolated": bool((roster or {}).get("isolated")),
        "reason": str((roster or {}).get("activeReason") or ""),
        "kind": str(role.get("kind") or ""),
        "epoch": role.get("epoch"),
        "warnings": [str(each) for each in (roster or {}).get("warnings") or ()],
        "version": "" if look is None or look.figures is None else look.figures.get("brokerVersionDesc", ""),
        "boot": None if look is None else look.number("bootTimestamp"),
        "logEnd": own_end,
        "behindBytes": max((end or 0) - (own_end or 0), 0) if follows else None,
        "inSync": None if look is None or look.replication is None else look.replication.get("inSyncSlaveNums"),
        "disk": None if look is None else look.number("commitLogDiskRatio"),
        "put": None if rate is None else rate[0],
        "got": None if rate is None else rate[1],
        "hasRoster": roster is not None,
    }


def points(known: Memory) -> list[list[Any]]:
    """Return the rates as ``[time, in, out, latency]``, the oldest first; what is unknown is ``None``."""
    return [
        [each.at_ms, _rounded(each.put_per_second), _rounded(each.got_per_second), _rounded(each.latency_ms)]
        for each in known.rates.points
    ]


def failover_rows(known: Memory) -> list[dict[str, Any]]:
    """Return the failovers, the newest first, each with its steps in their order."""
    return [
        {
            "group": each.group,
            "master": each.master,
            "acting": each.acting,
            "why": each.why,
            "over": each.over,
            "began": each.began_ms,
            "steps": [
                {"step": name, "text": text, "at": each.steps[name].at_ms, "told": each.steps[name].told}
                for name, text in STEPS.items()
                if name in each.steps
            ],
        }
        for each in reversed(known.failovers)
        if each.steps
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _unknown(known: Memory, looks: Mapping[str, LagLook] | Mapping[str, StuckLook]) -> list[str]:
    """Return the broker groups of which nothing is known, or only what they said before."""
    return sorted(name for name in known.groups if name not in looks or looks[name].error)


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
