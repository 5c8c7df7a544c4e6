"""Who leads the controllers, as far as one member may say it; and the word in the log about it, or that nobody does."""

from __future__ import annotations

from understudy.controller.raft.facts import Facts
from understudy.controller.raft.member import QuorumMember
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("controller.leadership")


def heard_leader(facts: Facts) -> str | None:
    """Return the leader that was heard within the election time, or ``None``.

    A member that cannot win an election keeps the name of its last leader; telling it to anybody would send brokers and
    operators to a dead controller.
    """
    if facts.role != "LEADER" and facts.next_election_in_seconds <= 0:
        return None
    return facts.leader


async def tell_who_leads(member: QuorumMember) -> None:
    """Say whom this member follows in each term, until cancelled; its own elections it says anyway."""
    said: tuple[int, str] | None = None
    while True:
        facts = member.facts()
        if facts.leader is not None and facts.leader != facts.member and (facts.term, facts.leader) != said:
            said = (facts.term, facts.leader)
            log.info("the quorum has a leader", leader=facts.leader, term=facts.term, member=facts.member)
        await member.wait_change()


async def tell_when_nobody_leads(member: QuorumMember, clock: Clock, patience_seconds: float) -> None:
    """Say once that no controller is active, and once that one is again, until cancelled.

    Args:
        member: this controller's member of the quorum.
        clock: of this controller.
        patience_seconds: how long an election may take before anybody is told; the next look comes as late.
    """
    since: float | None = None
    said = False
    while True:
        await clock.sleep(patience_seconds)
        facts, now = member.facts(), clock.monotonic()
        leader = heard_leader(facts)
        if leader is None and since is None:
            since = now
        elif leader is None and since is not None and not said:
            said = True
            majority = 2 * (len(facts.connected) + 1) > len(member.settings.addresses)
            why = "a majority is connected but elected nobody yet" if majority else "this member reaches no majority"
            log.warning(
                f"no controller is active: {why}; elections wait, routes and traffic go on",
                member=facts.member,
                connected=", ".join(facts.connected) or "nobody",
                problem=facts.problem or "none",
            )
        elif leader is not None and since is not None:
            if said:
                log.info("a controller is active again", leader=leader, after_seconds=round(now - since, 1))
            since, said = None, False
