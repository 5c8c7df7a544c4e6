"""When a broker registers, and with which of its name servers: a pure state machine.

Each name server is told for itself; one that does not answer delays nobody. Everything is told at the start, in turn,
when asked for, and to a name server that has lost the broker; changed topics are told alone. A name server that did not
take something is told everything after :data:`RETRY_SECONDS`; one that still has not answered the last time is told
everything as soon as it has. A broker that nobody may find tells nothing.

Source: BrokerController.java (registerBrokerAll).
"""

from __future__ import annotations

import math
from enum import Enum

import attrs

from understudy.broker import unheard
from understudy.broker.unheard import Unheard

RETRY_SECONDS = 5.0
MANY_TOPICS = 2_000
"""When more have changed, name servers are told everything."""


@attrs.frozen
class State:
    """What was told, and what must be.

    Attributes:
        full: everything must be told.
        changed: names of topics that must be told, in the order of their changes.
        due, retry: monotonic seconds when everything is told again, and when those in *missed* are.
        missed: name servers that did not take what they were told last.
        took: name servers that have this broker, as far as is known.
        under_way: name servers that have not answered yet.
        again: those of them that must be told everything when they have.
        told_at: monotonic seconds of the last registration that was taken, ``None`` before.
        unheard: losses of this broker.
    """

    full: bool = True
    changed: tuple[str, ...] = ()
    due: float = -math.inf
    retry: float = -math.inf
    missed: frozenset[str] = frozenset()
    took: frozenset[str] = frozenset()
    under_way: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    told_at: float | None = None
    unheard: Unheard = attrs.field(factory=Unheard)

    @property
    def wake_at(self) -> float:
        """Monotonic seconds at which the next :class:`Look` is worth while."""
        return min(self.due, self.retry) if self.missed else self.due


class TellResult(Enum):
    """What came of telling one name server."""

    TOOK = "it took everything"
    HAS_IT = "it had everything"
    MISSED = "it did not take it"
    ANNOUNCED = "it was told of topics alone"


@attrs.frozen
class Settings:
    """What the keys of the broker say at the moment.

    Attributes:
        period_seconds: from one registration to the next.
        only_when_changed: ask first whether a name server has another version (``forceRegister=false``).
        heartbeats: whether name servers drop a broker that they do not hear (``enableSlaveActingMaster``).
        timeout_seconds: after which time they do.
        notice_seconds: how long after that the broker may find it out.
    """

    period_seconds: float = 30.0
    only_when_changed: bool = False
    heartbeats: bool = True
    timeout_seconds: float = 10.0
    notice_seconds: float = 2.0


@attrs.frozen
class Begun:
    """The service begins: nothing is under way."""


@attrs.frozen
class Look:
    """It may be time for something; these are the name servers, and whether they may be told of the broker."""

    servers: tuple[str, ...]
    withheld: bool = False


@attrs.frozen
class Everything:
    """Everything must be told soon."""


@attrs.frozen
class Changed:
    """These topics were changed."""

    topics: tuple[str, ...]


@attrs.frozen
class FoundLost:
    """A name server that answers does not have this broker."""


@attrs.frozen
class Closed:
    """The connection to a name server has ended; it drops who registered over it."""

    server: str


@attrs.frozen
class Answered:
    """What came of telling one name server."""

    server: str
    result: TellResult
    withheld: bool = False


@attrs.frozen
class Told:
    """The round is over: everyone that is quick has answered."""

    everything: bool


Event = Begun | Look | Everything | Changed | FoundLost | Closed | Answered | Told


@attrs.frozen
class Register:
    """Tell these everything."""

    servers: tuple[str, ...]
    only_when_changed: bool = False
    regular: bool = True


@attrs.frozen
class Announce:
    """Tell these of some topics, and those of them in *everything* everything."""

    servers: tuple[str, ...]
    topics: tuple[str, ...]
    everything: frozenset[str] = frozenset()


@attrs.frozen
class StayAway:
    """Heartbeats do not arrive: say that the broker stays away for this long."""

    seconds: float


Action = Register | Announce | StayAway
Result = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, now: float, settings: Settings) -> Result:
    """Return the state after *event* at *now* (monotonic seconds), and what is to be done.

    Args:
        state: before it.
        event: what has happened.
        now: moment (monotonic seconds).
        settings: periods and limits.
    """
    if isinstance(event, Begun):
        return attrs.evolve(state, under_way=frozenset(), again=frozenset()), ()
    if isinstance(event, Everything):
        return attrs.evolve(state, full=True), ()
    if isinstance(event, Changed):
        if len(state.changed) + len(event.topics) > MANY_TOPICS:
            return attrs.evolve(state, full=True), ()
        names = dict.fromkeys((*state.changed, *event.topics))
        return attrs.evolve(state, changed=tuple(names)), ()
    if isinstance(event, FoundLost):
        return _found_lost(state, now, settings)
    if isinstance(event, Closed):
        if event.server not in state.took:
            return state, ()  # nothing was dropped; who is there is asked again later
        return _found_lost(attrs.evolve(state, took=state.took - {event.server}), now, settings)
    if isinstance(event, Answered):
        return _answered(state, event, now)
    if isinstance(event, Told):
        if event.everything:
            state = attrs.evolve(state, due=now + settings.period_seconds)
        return attrs.evolve(state, retry=now + RETRY_SECONDS), ()
    return _look(state, event, now, settings)


def _look(state: State, event: Look, now: float, settings: Settings) -> Result:
    if event.withheld:
        return state, ()
    servers = event.servers
    missed = state.missed.intersection(servers)
    if state.full or now >= state.due:
        state = attrs.evolve(state, full=False, changed=(), missed=frozenset())
        return _tell(state, Register(servers, settings.only_when_changed))
    if state.changed:
        announce = Announce(servers, state.changed, missed)
        return _tell(attrs.evolve(state, changed=(), missed=frozenset()), announce)
    if missed and now >= state.retry:
        again = tuple(each for each in servers if each in missed)
        return _tell(
            attrs.evolve(state, missed=frozenset()), Register(again, settings.only_when_changed, regular=False)
        )
    return attrs.evolve(state, missed=missed), ()


def _tell(state: State, action: Register | Announce) -> Result:
    """Tell whoever has answered the last time; the others are told everything when they have."""
    free = tuple(each for each in action.servers if each not in state.under_way)
    busy = frozenset(action.servers) - frozenset(free)
    state = attrs.evolve(state, under_way=state.under_way.union(free), again=state.again | busy)
    return state, (attrs.evolve(action, servers=free),)


def _answered(state: State, event: Answered, now: float) -> Result:
    server, result = event.server, event.result
    if result is TellResult.TOOK:
        state = attrs.evolve(state, told_at=now)
    if result in (TellResult.TOOK, TellResult.HAS_IT):
        state = attrs.evolve(state, took=state.took | {server})
    elif result is TellResult.MISSED:
        state = attrs.evolve(state, missed=state.missed | {server})
    again = server in state.again and not event.withheld
    state = attrs.evolve(state, again=state.again - {server})
    if again:
        return attrs.evolve(state, missed=state.missed - {server}), (Register((server,), regular=False),)
    return attrs.evolve(state, under_way=state.under_way - {server}), ()


def _found_lost(state: State, now: float, settings: Settings) -> Result:
    if not settings.heartbeats:
        return attrs.evolve(state, full=True), ()
    before = state.unheard.away_until
    judged, at_once = unheard.lost(state.unheard, now, state.told_at, settings.timeout_seconds, settings.notice_seconds)
    state = attrs.evolve(state, unheard=judged)
    if at_once:
        return attrs.evolve(state, full=True), ()
    # Said once, though the broker is found lost at every look meanwhile.
    return state, ((StayAway(settings.timeout_seconds),) if judged.away_until != before else ())
