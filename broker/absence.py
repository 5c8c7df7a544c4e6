"""Whether a broker was away for so long that others have acted for it: a pure state machine.

A process that is stopped or moved does not notice: for it no time has passed, and it would go on with what it knew. The
only traces are in the clocks and in what name servers answer, so every decision that could be out of date looks at them
first. A broker that was away is **isolated**: it tells no name server of itself until it has learned what happened
meanwhile (pre-online). So is every broker at its start.

The rules:

* A broker that was away, or is isolated, answers no reader: what it knows of offsets may be old, and whoever still asks
  it will be told of others in a moment, perhaps before it can commit what it would read here.
* A gap between two looks at the clocks that is longer than the broker trusts isolates it.
* An answer after a silence of all name servers that was that long isolates it, unless nobody else is in the group. Who
  is remembered is in it: a slave that acted meanwhile may be gone by now, and may be back in a moment.
* A master that the view before showed and that no name server shows any more was **dropped**: it is isolated, for a
  slave may have acted since. So is a slave of a group without master: another slave may have acted instead. A broker
  that another name server still shows was not dropped.
* A slave that would begin to act, and has copied nothing since it came back, is **outdated**: who acted until now may
  have told the other slaves alone.
* Settings may change at any time. A broker that is watched from now on was not away before: nobody has looked at its
  clocks, or listened to name servers. So what it knows of its group is old, and must not make a slave act. One that is
  isolated stays so until pre-online is done, whatever they say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import attrs

MASTER_ID = 0
STARTED = "the process has started"
DROPPED = "every name server that answers had dropped this broker"
OUTDATED = "it would act for the master, and has copied nothing since it came back: others may know more"


@attrs.frozen
class Moment:
    """One reading of both clocks, in milliseconds. A suspended machine stops the first, not the second."""

    monotonic_ms: float
    wall_ms: int


def limit_ms(timeout_ms: int, *periods_ms: int) -> float:
    """Return how long a broker may be silent before it must think that others act for it.

    Args:
        timeout_ms: when name servers drop a silent broker.
        periods_ms: of what is sent and asked regularly; the last sign of life may be as old as that.
    """
    return max(timeout_ms - 2 * max(periods_ms, default=0), timeout_ms / 2)


def gap_ms(before: Moment, now: Moment) -> float:
    """Return how long nothing happened between two readings: what either clock says, the longer time."""
    return max(now.monotonic_ms - before.monotonic_ms, now.wall_ms - before.wall_ms)


@attrs.frozen
class Limits:
    """What a broker trusts, in milliseconds.

    Attributes:
        pause: the longest pause of its process.
        silence: the longest silence of all name servers.
    """

    pause: float
    silence: float


@functools.lru_cache(maxsize=64)  # asked for before each decision of a producer and each acknowledgement
def limits(timeout_ms: int, heartbeat_ms: int, view_ms: int) -> Limits:
    """Return the limits of a broker.

    Args:
        timeout_ms: ``brokerNotActiveTimeoutMillis``.
        heartbeat_ms: ``brokerHeartbeatInterval``.
        view_ms: ``syncBrokerMemberGroupPeriod``; two questions may go wrong, however seldom they are asked.
    """
    return Limits(limit_ms(timeout_ms, heartbeat_ms), max(limit_ms(timeout_ms, view_ms), 2 * view_ms))


@attrs.frozen
class State:
    """What a broker knows of its own presence.

    Attributes:
        broker_id, address: this broker.
        moment: of the last look at the clocks.
        is_slave: whether it is a slave.
        watched: others could act for it, or it for others (``enableSlaveActingMaster``): somebody looks and listens.
        skips: it comes back without asking anybody (``skipPreOnline``).
        contact_ms: monotonic time of the last answer of a name server, ``None`` before the first.
        contact_lost: no name server has answered for longer than the limit.
        isolated: nobody may find it until pre-online is done.
        cause: why it is, or was last.
    """

    broker_id: int
    address: str
    moment: Moment
    is_slave: bool = False
    watched: bool = False
    skips: bool = False
    contact_ms: float | None = None
    contact_lost: bool = False
    isolated: bool = False
    cause: str = STARTED

    @property
    def guarded(self) -> bool:
        """Whether it is isolated when it was away; else it never becomes so."""
        return self.watched and not self.skips

    def silent_ms(self, now: Moment) -> float:
        """Return for how long no name server has answered."""
        return 0.0 if self.contact_ms is None else now.monotonic_ms - self.contact_ms

    def absent(self, now: Moment, trusted: Limits) -> bool:
        """Return whether the process has done nothing for so long that what it knows is out of date.

        Right even before the look that notices it: everything that would act on old knowledge asks here first.
        """
        return self.guarded and gap_ms(self.moment, now) > trusted.pause

    def out_of_touch(self, now: Moment, trusted: Limits) -> bool:
        """Return whether name servers may have dropped this broker: it must not register before it knows more."""
        return self.absent(now, trusted) or (self.guarded and self.silent_ms(now) > trusted.silence)

    def readable_until_ms(self, trusted: Limits) -> float:
        """Return until which wall time readers may be answered, if the clocks are not looked at before.

        After it the broker was away, noticed or not; minus infinity while it is isolated.
        """
        if self.isolated:
            return -math.inf
        return self.moment.wall_ms + trusted.pause if self.guarded else math.inf


@attrs.frozen
class Began:
    """The broker begins in a role: isolated when others could have acted for it.

    Attributes:
        broker_id, is_slave: of the role.
        watched: others could act for it, or it for others.
        cause: why it begins.
        skips: it comes back without asking anybody.
    """

    broker_id: int
    is_slave: bool
    watched: bool
    cause: str = STARTED
    skips: bool = False


@attrs.frozen
class Guarded:
    """The settings were changed while the broker runs.

    Attributes:
        watched: others could act for it, or it for others, from now on.
        skips: it comes back without asking anybody from now on.
    """

    watched: bool
    skips: bool = False


@attrs.frozen
class Looked:
    """The clocks were looked at."""


@attrs.frozen
class Contact:
    """A name server answered.

    Attributes:
        found: ids and addresses that it shows.
        before: those of the view before.
        remembered: those that were shown not long ago, this broker included.
    """

    found: Mapping[int, str]
    before: Mapping[int, str] | None
    remembered: Mapping[int, str] = attrs.field(factory=dict)


@attrs.frozen
class Online:
    """Pre-online is done.

    Attributes:
        heard: a name server has answered at its end.
    """

    heard: bool = False


@attrs.frozen
class Outdated:
    """The broker would act for its master, and others of its group may know more than it."""


Event = Began | Guarded | Looked | Contact | Online | Outdated


@attrs.frozen
class Isolated:
    """Nobody may find the broker from now on."""

    cause: str


@attrs.frozen
class Register:
    """Tell the name servers of the broker as soon as it may be found."""


@attrs.frozen
class Decide:
    """What the broker's role depends on may have changed."""


@attrs.frozen
class ForgetView:
    """What was known of the group is old: ask before anything depends on it."""


Action = Isolated | Register | Decide | ForgetView


def step(state: State, event: Event, now: Moment, trusted: Limits) -> tuple[State, tuple[Action, ...]]:
    """Return the state after *event*, and what is to be done.

    Args:
        state: before.
        event: what happened.
        now: both clocks.
        trusted: what the settings allow at the moment.
    """
    if isinstance(event, Began):
        state = attrs.evolve(
            state,
            broker_id=event.broker_id,
            is_slave=event.is_slave,
            watched=event.watched,
            skips=event.skips,
            moment=now,
            cause=event.cause,
        )
        return attrs.evolve(state, isolated=state.guarded), (Decide(),)
    if isinstance(event, Guarded):
        return _guarded(state, event, now)
    if isinstance(event, Online):
        if event.heard:  # what happened in the silence before is known by now
            state = attrs.evolve(state, contact_ms=now.monotonic_ms, contact_lost=False)
        return attrs.evolve(state, isolated=False), (Register(), Decide())
    if isinstance(event, Looked):
        return _looked(state, now, trusted)
    if isinstance(event, Outdated):
        state, isolated = _isolate(state, OUTDATED)
        return state, tuple(isolated)
    return _contact(state, event, now, trusted)


def _guarded(state: State, event: Guarded, now: Moment) -> tuple[State, tuple[Action, ...]]:
    if (event.watched, event.skips) == (state.watched, state.skips):
        return state, ()
    begins = event.watched and not state.watched
    if begins:
        state = attrs.evolve(state, moment=now, contact_ms=now.monotonic_ms, contact_lost=False)
    state = attrs.evolve(state, watched=event.watched, skips=event.skips)
    # Name servers go by the timeout of whoever is watched, and say who may be acted for.
    return state, ((ForgetView(),) if begins else ()) + (Register(), Decide())


def _looked(state: State, now: Moment, trusted: Limits) -> tuple[State, tuple[Action, ...]]:
    gap = gap_ms(state.moment, now)
    state = attrs.evolve(state, moment=now)
    actions: list[Action] = []
    if gap > trusted.pause:
        state, actions = _isolate(state, f"this process did nothing for {gap:.0f} ms")
    lost = state.silent_ms(now) > trusted.silence
    if (lost or lost != state.contact_lost or state.is_slave) and Decide() not in actions:
        actions.append(Decide())
    return attrs.evolve(state, contact_lost=lost), tuple(actions)


def _contact(state: State, event: Contact, now: Moment, trusted: Limits) -> tuple[State, tuple[Action, ...]]:
    silent = state.silent_ms(now)
    others = event.found.keys() - {state.broker_id}
    actions: list[Action] = []
    if silent > trusted.silence:
        if others or event.remembered.keys() - {state.broker_id}:
            state, actions = _isolate(state, f"no name server was reached for {silent:.0f} ms")
        actions.append(Register())
    elif others and _dropped(state, event):
        state, actions = _isolate(state, DROPPED)
    return attrs.evolve(state, contact_ms=now.monotonic_ms), tuple(actions)


def _dropped(state: State, event: Contact) -> bool:
    was_shown = (event.before or {}).get(state.broker_id) == state.address
    if not was_shown or state.broker_id in event.found:
        return False
    return not state.is_slave or MASTER_ID not in event.found


def _isolate(state: State, cause: str) -> tuple[State, list[Action]]:
    if not state.guarded or state.isolated:
        return state, []
    return attrs.evolve(state, isolated=True, cause=cause), [Isolated(cause), Decide()]
