"""What a master, or the slave that acts for it, makes of the silence around it: a pure state machine.

A slave acts for a master that the name servers have lost. The master may not know of that, so it listens to both: name
servers, and the slaves that copy from it. As long as either speaks, no slave acts: a name server would not have lost a
master that it answers, and a slave that acts stops copying. When both are silent, the master does two things:

* after a short silence it **holds back** what falls due, and whatever else it would decide by itself: to wait a moment
  costs nothing, and what a slave never hears of it will deliver again;
* after a longer one its slaves count as silent for its services, too (:mod:`~understudy.container.acting`): an idle
  slave speaks seldom, and services that end and begin cost more than a message that waits.

The second lasts until a name server answers: a slave that is heard again may have acted, and its word alone does not
tell how far. Then the master comes back through pre-online.

A slave that acts copies from nobody, and what it hears of others proves nothing: its master may be back, or another
slave may act by now. It listens to name servers only, and holds back what falls due long before it stops.

The slaves of the last view count, those that were in the group not long before, and those that have come since: a slave
that acts must not be overlooked because it was gone when the last view was taken, or because another one, which the
view did not show yet, has come in its place.
"""

from __future__ import annotations

import functools

import attrs

from understudy.ha.hearing import Hearing


@attrs.frozen
class Limits:
    """How long a silence is trusted, in milliseconds.

    Attributes:
        due: by what falls due.
        services: by services.
        contact: of name servers.
        acting: of name servers, by what falls due at a slave that acts.
    """

    due: float
    services: float
    contact: float
    acting: float


@functools.lru_cache(maxsize=64)  # asked for before each decision of a producer and each acknowledgement
def limits(slave_timeout_ms: float, contact_ms: float, beat_ms: float, view_ms: float) -> Limits:
    """Return the limits of a broker.

    Args:
        slave_timeout_ms: ``slaveTimeout``.
        contact_ms: how long name servers may be silent (:attr:`understudy.broker.absence.Limits.silence`).
        beat_ms: ``haSendHeartbeatInterval``, how often a slave that has nothing to say speaks; once may go wrong.
        view_ms: ``syncBrokerMemberGroupPeriod``, how often name servers are asked; once may go wrong.
    """
    due = min(slave_timeout_ms, contact_ms)
    return Limits(due, max(contact_ms, 1.5 * beat_ms), contact_ms, min(max(due, 2 * view_ms), contact_ms))


@attrs.frozen
class State:
    """What is known.

    Attributes:
        slaves_silent: a slave has not been heard, or has got nothing, for longer than services trust.
        cut_off: so it was while name servers were silent, and they still are.
        holds_back: nothing that falls due is delivered now.
    """

    slaves_silent: bool = False
    cut_off: bool = False
    holds_back: bool = False


@attrs.frozen
class Listened:
    """The broker listened.

    Attributes:
        guarded: a slave could act for it.
        contact_ms: monotonic time of the last answer of a name server, ``None`` before the first.
        others: how many other members the last view shows, or showed not long before.
        hearing: its slaves; ``None``: this broker has none, for it is one.
        acts: it is a slave that acts.
    """

    guarded: bool
    contact_ms: float | None
    others: int
    hearing: Hearing | None
    acts: bool = False


@attrs.frozen
class HoldBack:
    """What falls due is held back from now on; *why*, for people."""

    why: str


@attrs.frozen
class GoOn:
    """What falls due is delivered again."""


Action = HoldBack | GoOn


def step(state: State, event: Listened, now_ms: float, trusted: Limits) -> tuple[State, tuple[Action, ...]]:
    """Return the state after *event* at *now_ms* (monotonic), and what is to be said.

    Args:
        state: before it.
        event: what was heard, and when.
        now_ms: moment (monotonic milliseconds).
        trusted: how long what was heard is trusted (milliseconds).
    """
    contact = 0.0 if event.contact_ms is None else now_ms - event.contact_ms
    silent = _silent(event, now_ms, trusted.services)
    cut_off = contact > trusted.contact and (state.cut_off or silent)
    holds_back = cut_off or (contact > trusted.due and _silent(event, now_ms, trusted.due))
    if event.acts:
        holds_back = contact > trusted.acting
    after = State(silent or cut_off, cut_off, holds_back)
    stands_by = event.hearing is None and not event.acts
    if holds_back == state.holds_back or stands_by:
        return after, ()
    others = "the master or another slave may deliver" if event.acts else "not every slave is heard, so one may act"
    why = f"no name server for {contact:.0f} ms and {others}"
    return after, (HoldBack(why) if holds_back else GoOn(),)


def _silent(event: Listened, now_ms: float, limit_ms: float) -> bool:
    """Return whether a slave has got nothing for *limit_ms*, as far as it says."""
    hearing = event.hearing
    if hearing is None or not event.guarded:
        return False
    missed = hearing.misses(now_ms / 1000, limit_ms / 1000, since=(event.contact_ms or 0) / 1000)
    return missed or hearing.heard_within(now_ms / 1000, limit_ms / 1000) < event.others
