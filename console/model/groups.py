"""Who leads each broker group, since when, and why: the first question of the first screen.

A group *has a master* when one is registered; it is *acted for* when none is and a slave looks after what is stored;
else nobody leads it. While no name server answers, what was known stays, and the view says how old it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from understudy.console.model.looks import MASTER_ID, BrokerLook, GroupAddresses, Look

MASTER, ACTING, NONE = "master", "acting", "none"
MOST_GROUPS = 1_000
MOST_GONE = 8
"""Members of a group that are no longer registered and still shown."""
_ACTING_REASON = "acting"


@attrs.frozen
class Member:
    """One broker of a group, also one that is gone.

    Attributes:
        broker_id: in its group.
        address: where clients reach it.
        registered: a name server lists it.
        look: its newest answer, or why there is none.
        answer: its newest answer that was one; ``None`` when it never answered.
        silent_since_ms: when it first did not answer; ``None`` while it does.
    """

    broker_id: int
    address: str
    registered: bool
    look: BrokerLook | None = None
    answer: BrokerLook | None = None
    silent_since_ms: int | None = None

    @property
    def answers(self) -> bool:
        """Whether it answered the newest question."""
        return self.look is not None and self.look.answered

    @property
    def acts(self) -> bool:
        """Whether it is a slave that looks after what is stored."""
        return self.broker_id != MASTER_ID and self.look is not None and self.look.answered and self.look.active


@attrs.frozen
class Group:
    """One broker group.

    Attributes:
        name: of the group.
        cluster: that it belongs to.
        members: by address, those that are gone too.
        state: :data:`MASTER`, :data:`ACTING` or :data:`NONE`.
        leader: address of the master or of the slave that acts; ``""`` for none.
        since_ms: since when it is so.
        exact: whether *since_ms* is told by the broker; else it is when that was seen first.
        shown: address by id as clients are told.
    """

    name: str
    cluster: str
    members: Mapping[str, Member]
    state: str
    leader: str
    since_ms: int
    exact: bool
    shown: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def master(self) -> Member | None:
        """The member with the master's id that is registered, else one that was."""
        return min(
            (each for each in self.members.values() if each.broker_id == MASTER_ID),
            key=lambda each: not each.registered,
            default=None,
        )

    @property
    def why(self) -> str:
        """In words, why it is as it is; ``""`` when nobody says."""
        leader = self.members.get(self.leader)
        if leader is not None:
            look = leader.answer
            if not leader.answers:
                return (
                    "" if leader.look is None else f"registered, but it does not answer this page: {leader.look.error}"
                )
            if look is None or look.roster is None:
                return ""
            if not look.active:
                return str(look.roster.get("activeReason") or "")
            return "" if self.state == MASTER else _acting(look)
        known = sorted(self.members.values(), key=lambda each: each.broker_id)
        told = [
            f"broker {each.broker_id}: {each.look.roster.get('activeReason')}"
            for each in known
            if each.look is not None and each.look.roster is not None and each.look.roster.get("activeReason")
        ]
        return "; ".join(told) or "no member of it answers"


def _acting(look: BrokerLook) -> str:
    for service in (look.roster or {}).get("services") or ():
        reason = str(service.get("reason") or "")
        if service.get("state") == "running" and reason.startswith(f"{_ACTING_REASON}: "):
            return reason.removeprefix(f"{_ACTING_REASON}: ")
    return ""


def part_of(member: Member, group: Group) -> str:
    """Return what a member is in its group now, in a word."""
    if member.address == group.leader:
        return "master" if group.state == MASTER else "acting"
    if not member.registered:
        return "gone" if not member.answers else "not registered"
    return "slave" if member.broker_id != MASTER_ID else "master"


def observe(known: Mapping[str, Group], look: Look) -> dict[str, Group]:
    """Return the groups after one more look; at most :data:`MOST_GROUPS`, those registered first."""
    listed = look.groups if look.groups is not None else {name: _as_known(group) for name, group in known.items()}
    names = sorted(listed)[:MOST_GROUPS]
    names += [name for name in sorted(known) if name not in listed][: MOST_GROUPS - len(names)]
    found = {}
    for name in names:
        before = known.get(name)
        addresses = listed.get(name) or GroupAddresses("" if before is None else before.cluster, {})
        found[name] = _group(name, addresses, before, look)
    return found


def _as_known(group: Group) -> GroupAddresses:
    registered = {each.broker_id: each.address for each in group.members.values() if each.registered}
    return GroupAddresses(group.cluster, registered, group.shown)


def _group(name: str, addresses: GroupAddresses, before: Group | None, look: Look) -> Group:
    members: dict[str, Member] = {}
    for broker_id, address in sorted(addresses.registered.items()):
        members[address] = _member(Member(broker_id, address, True), before, look)
    gone = [] if before is None else [each for each in before.members.values() if each.address not in members]
    for each in gone[-MOST_GONE:]:
        members[each.address] = _member(attrs.evolve(each, registered=False), before, look)
    state, leader = _leads(members.values())
    group = Group(name, addresses.cluster, members, state, leader, look.at_ms, False, addresses.shown)
    told_ms = _told_since(members[leader].answer, state) if leader else None
    if told_ms is not None:
        return attrs.evolve(group, since_ms=told_ms, exact=True)
    if before is not None and (before.state, before.leader) == (state, leader):
        return attrs.evolve(group, since_ms=before.since_ms, exact=before.exact)
    return group


def _member(member: Member, before: Group | None, look: Look) -> Member:
    known = None if before is None else before.members.get(member.address)
    now = look.brokers.get(member.address)
    if known is not None:
        kept = (known.look, known.answer, known.silent_since_ms)
        member = attrs.evolve(member, look=kept[0], answer=kept[1], silent_since_ms=kept[2])
    if now is None:
        return member
    if now.answered:
        return attrs.evolve(member, look=now, answer=now, silent_since_ms=None)
    since_ms = now.at_ms if member.silent_since_ms is None else member.silent_since_ms
    return attrs.evolve(member, look=now, silent_since_ms=since_ms)


def _leads(members: Iterable[Member]) -> tuple[str, str]:
    listed = [each for each in members if each.registered]
    for each in listed:
        if each.broker_id == MASTER_ID:
            return MASTER, each.address
    for each in listed:
        if each.acts:
            return ACTING, each.address
    return NONE, ""


def _told_since(answer: BrokerLook | None, state: str) -> int | None:
    """Return since when a leader leads as it says itself; ``None`` when it does not say."""
    if answer is None:
        return None
    starts = acting_starts(answer) if state == ACTING else _master_starts(answer)
    if starts:
        return min(starts)
    boot = answer.number("bootTimestamp") if state == MASTER else None
    return int(boot) if boot else None


def acting_starts(look: BrokerLook) -> list[int]:
    """Return when each service was started that a slave runs because it acts."""
    return _starts(look, f"{_ACTING_REASON}: ")


def _master_starts(look: BrokerLook) -> list[int]:
    return _starts(look, "master")


def _starts(look: BrokerLook, reason: str) -> list[int]:
    return [
        int(each["startedAt"])
        for each in (look.roster or {}).get("services") or ()
        if each.get("state") == "running" and str(each.get("reason") or "").startswith(reason) and each.get("startedAt")
    ]
