"""Who becomes master of a group: a pure function that also says why (DefaultElectPolicy.java).

Differs from the reference: equal candidates do not collapse into one (the smaller id wins), offsets are compared in 64
bits, a candidate without a heartbeat record is not alive instead of an error.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

LOWEST_PRIORITY = 2_147_483_647


class Live(msgspec.Struct, array_like=True, frozen=True):
    """What the heartbeat of a living broker says.

    Args:
        epoch: newest epoch in its log.
        max_offset_bytes: end of its log.
        confirm_offset_bytes: what its replicas confirmed.
        priority: its configured priority, smaller is better.
        confirms: it acknowledges nothing as a new master before it has told the controllers that it leads, and that
            what it has is durable.
        incarnation: of its store: another one whenever something of that may be lost; empty when it does not say so.
    """

    epoch: int = -1
    max_offset_bytes: int = -1
    confirm_offset_bytes: int = -1
    priority: int = LOWEST_PRIORITY
    confirms: bool = False
    incarnation: str = ""


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What the policy made of one replica. *reason* starts with the name of the rule that decided."""

    broker_id: int
    chosen: bool
    reason: str


class Decision(msgspec.Struct, array_like=True, frozen=True):
    """The outcome: the new master or ``None``, whether it came from outside the sync state set, and every verdict."""

    master_id: int | None
    unclean: bool
    verdicts: list[Verdict]


def elect(
    sync_state_set: Iterable[int],
    replicas: Iterable[int],
    live: Mapping[int, Live],
    old_master: int | None,
    preferred: int | None,
    unclean_allowed: bool,
    lost: Container[int] = (),
) -> Decision:
    """Choose a master.

    Args:
        sync_state_set: ids that hold everything acknowledged.
        replicas: all registered ids of the group.
        live: heartbeat facts of the living ones.
        old_master: kept when it lives and nobody else is asked for.
        preferred: id an operator asks for.
        unclean_allowed: replicas outside the set may be chosen when the set gives nobody.
        lost: ids that are not in *sync_state_set* for having lost their memory.
    """
    in_set, registered = set(sync_state_set), sorted(set(replicas))
    eligible = sorted(in_set & set(registered))
    chosen, reason = _choose(eligible, live, old_master, preferred)
    unclean = False
    if chosen is None and unclean_allowed:
        chosen, reason = _choose(registered, live, old_master, preferred)
        unclean = chosen is not None and chosen not in in_set
    kept = chosen is not None and chosen == old_master and preferred is None
    verdicts = []
    for broker_id in registered:
        if broker_id == chosen:
            verdicts.append(Verdict(broker_id, True, reason))
        else:
            why = _excluded(broker_id, in_set, live, chosen, preferred, unclean_allowed, kept, lost)
            verdicts.append(Verdict(broker_id, False, why))
    return Decision(chosen, unclean, verdicts)


def _choose(
    eligible: list[int], live: Mapping[int, Live], old_master: int | None, preferred: int | None
) -> tuple[int | None, str]:
    alive = [broker_id for broker_id in eligible if broker_id in live]
    if not alive:
        return None, ""
    if old_master in alive and preferred in (None, old_master):
        return old_master, "still master: it is alive and nobody else was asked for"
    if preferred is not None:
        return (preferred, "asked for: it is alive and eligible") if preferred in alive else (None, "")
    best = min(alive, key=lambda broker_id: _rank(broker_id, live[broker_id]))
    facts = live[best]
    return best, f"best log: epoch {facts.epoch}, max offset {facts.max_offset_bytes}, priority {facts.priority}"


def _rank(broker_id: int, facts: Live) -> tuple[int, int, int, int]:
    return (-facts.epoch, -facts.max_offset_bytes, facts.priority, broker_id)


def _excluded(
    broker_id: int,
    in_set: set[int],
    live: Mapping[int, Live],
    chosen: int | None,
    preferred: int | None,
    unclean_allowed: bool,
    kept: bool,
    lost: Container[int],
) -> str:
    if broker_id not in live:
        where = "in the sync state set but " if broker_id in in_set else ""
        return f"not alive: {where}no heartbeat within its timeout"
    if broker_id in lost and not unclean_allowed:
        return "its memory is lost: its host, or its store, was started anew since it was in step, unlike another one's"
    if broker_id not in in_set and not unclean_allowed:
        return "not in the sync state set: it may lack acknowledged messages and unclean election is off"
    if broker_id not in in_set and chosen in in_set:
        return "not in the sync state set: a member of the set is available"
    if preferred is not None and broker_id != preferred:
        return f"not asked for: broker {preferred} was"
    if kept:
        return "the master in office is kept"
    if chosen is None:
        return "not chosen"
    own, best = live[broker_id], live[chosen]
    if own.epoch < best.epoch:
        return f"older log: epoch {own.epoch} against {best.epoch}"
    if own.epoch == best.epoch and own.max_offset_bytes < best.max_offset_bytes:
        return f"shorter log: max offset {own.max_offset_bytes} against {best.max_offset_bytes}"
    return f"lower priority or greater id: priority {own.priority} against {best.priority}"
