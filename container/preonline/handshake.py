"""What a broker does before anybody may find it: a pure state machine.

A master that comes back tells each living slave of its group where it is (906), waits until that slave copies its log,
takes over what the slave knows better, and asks who is alive once more: a slave that came meanwhile may act for it by
now. Only when no slave is left that was not asked it registers. A slave finds its master and begins to copy. Without a
master it may be the one that acts from now on: then it tells the slave that acted until now, which stands back, and
takes over what that one knows better. Whoever finds nobody goes online at once.

A state says what to do next; the shell does it and reports how it went. Whatever fails in the middle, the group is
asked anew after a pause: a slave that died is dropped by the name servers, one that came is found, and taking over
twice changes nothing.

Source: BrokerPreOnlineService.java. Differs: the broker's own old entry at the name servers is never waited for, a
retry begins with fresh members, slaves that come meanwhile are asked, too, and one that does not copy in time delays
the master once, not for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

MASTER_ID = 0


class Phase(Enum):
    """What is to be done next."""

    ASK_MEMBERS = "ask who is alive"
    ANNOUNCE = "tell a slave that its master, or the one that acts for it from now on, comes back"
    AWAIT_COPY = "wait until the slave copies the log"
    TAKE_OVER = "take over what the slave knows better"
    ASK_MASTER = "ask the master where its log is"
    AWAIT_FOLLOWING = "wait until the master's log is copied"
    PAUSE = "wait before the next try"
    ONLINE = "register"


@attrs.frozen
class Member:
    """Another broker of the group."""

    broker_id: int
    address: str


@attrs.frozen
class State:
    """Where the handshake stands.

    Attributes:
        own_id, own_address: this broker.
        phase: what to do next.
        target: with whom.
        waiting: slaves that come after *target*.
        finished: slaves whose knowledge was taken over in this round.
        given_up: slaves that were asked for long enough in this round.
        tries: rounds that failed so far.
        trouble: what went wrong last, for people; ``""`` when nothing did.
    """

    own_id: int
    own_address: str
    phase: Phase = Phase.ASK_MEMBERS
    target: Member | None = None
    waiting: tuple[Member, ...] = ()
    finished: tuple[Member, ...] = ()
    given_up: tuple[Member, ...] = ()
    tries: int = 0
    trouble: str = ""


@attrs.frozen
class Members:
    """The answer to :attr:`Phase.ASK_MEMBERS`."""

    found: Mapping[int, str]


@attrs.frozen
class Done:
    """The phase went well."""


@attrs.frozen
class Failed:
    """It did not; why, for people."""

    why: str


@attrs.frozen
class GivenUp:
    """The slave was asked for long enough; the master goes on without it."""

    why: str


Event = Members | Done | Failed | GivenUp


def step(state: State, event: Event) -> State:
    """Return what comes after *event* in *state*."""
    if state.phase is Phase.PAUSE:
        return attrs.evolve(state, phase=Phase.ASK_MEMBERS, target=None, waiting=(), finished=(), given_up=())
    if isinstance(event, Failed):
        return _failed(state, event)
    if isinstance(event, GivenUp):
        assert state.target is not None
        return _next_slave(attrs.evolve(state, given_up=(*state.given_up, state.target), trouble=event.why))
    if isinstance(event, Members):
        return _members(state, event.found)
    if state.phase is Phase.ANNOUNCE:
        return attrs.evolve(state, phase=Phase.AWAIT_COPY if state.own_id == MASTER_ID else Phase.TAKE_OVER)
    if state.phase is Phase.AWAIT_COPY:
        return attrs.evolve(state, phase=Phase.TAKE_OVER)
    if state.phase is Phase.TAKE_OVER:
        assert state.target is not None
        return _next_slave(attrs.evolve(state, finished=(*state.finished, state.target)))
    if state.phase is Phase.ASK_MASTER:
        return attrs.evolve(state, phase=Phase.AWAIT_FOLLOWING)
    return attrs.evolve(state, phase=Phase.ONLINE, target=None)


def _members(state: State, found: Mapping[int, str]) -> State:
    others = tuple(
        Member(broker_id, address)
        for broker_id, address in sorted(found.items())
        if broker_id != state.own_id and address != state.own_address
    )
    asked = {*state.finished, *state.given_up}
    if state.own_id == MASTER_ID:
        new = tuple(member for member in others if member not in asked)
        if not new:
            return attrs.evolve(state, phase=Phase.ONLINE, target=None)
        return _next_slave(attrs.evolve(state, waiting=new))
    if others and others[0].broker_id == MASTER_ID:
        return attrs.evolve(state, phase=Phase.ASK_MASTER, target=others[0])
    if others and state.own_id < others[0].broker_id and others[0] not in asked:
        return _next_slave(attrs.evolve(state, waiting=others[:1]))  # it acts; the others copy from it
    return attrs.evolve(state, phase=Phase.ONLINE, target=None)


def _next_slave(state: State) -> State:
    if not state.waiting:
        return attrs.evolve(state, phase=Phase.ASK_MEMBERS, target=None)
    first, *rest = state.waiting
    return attrs.evolve(state, phase=Phase.ANNOUNCE, target=first, waiting=tuple(rest))


def _failed(state: State, event: Failed) -> State:
    if state.phase is Phase.AWAIT_COPY:
        # What the slave knows can be taken over all the same; sends will say when copies are missing.
        return attrs.evolve(state, phase=Phase.TAKE_OVER, trouble=event.why)
    if state.phase is Phase.AWAIT_FOLLOWING:
        return attrs.evolve(state, phase=Phase.ONLINE, target=None, trouble=event.why)
    return attrs.evolve(state, phase=Phase.PAUSE, tries=state.tries + 1, trouble=event.why)
