"""What a broker does before anybody may find it: a pure state machine.

A master that comes back tells each living slave of its group where it is (906), waits until that slave copies its log,
takes over what the slave knows better, and asks who is alive once more: a slave that came meanwhile may act for it by
now. One that lost the end of its log with the power first takes it back from the slave that has most of it. Only when
no slave is left that was not asked it registers. A slave finds its master and begins to copy. Without a master it may
be the one that acts from now on: then it takes what its log lacks from the slave that acted until now, tells that one,
which stands back, and takes over what it knows better. If it has copied nothing since it came back, the one that acted
may be gone, and have told the others alone: then it asks them all. Where the slave that acts has more of the same log
and cannot give it, that one goes on acting. Whoever finds nobody goes online at once.

Who is alive is what **all** name servers show together, and whom this broker remembers of its former life. A name
server that has just booted shows nobody, and is no proof of being alone: a remembered slave that no name server shows
is asked at the address it had. It has one timeout to answer there, which is how long it may take to be shown again. A
slave that is shown is asked for longer: it knows what was consumed meanwhile. When that time is over the master goes on
without it, and so it does at each later return until that slave has answered. A slave that took long to find its master
asks once more, too: that one may have been dropped meanwhile.

A state says what to do next; the shell does it and reports how it went. Whatever fails in the middle, the group is
asked anew after a pause: a slave that died is dropped by the name servers, one that came is found, and taking over
twice changes nothing. Who failed before is asked first then, so that the others go on acting until it is their turn.
What they know already is taken over before that: they may be lost while this master waits for another one.

Source: BrokerPreOnlineService.java. Differs: the broker's own old entry at the name servers is never waited for, a
retry begins with fresh members, slaves that come meanwhile are asked, too, and one that does not copy, does not answer
or cannot be understood delays the master once, not for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

import attrs

MASTER_ID = 0
FRESH_SECONDS = 0.5
"""How long what name servers show is believed: who took longer to find its master asks them once more."""


class Phase(Enum):
    """What is to be done next."""

    ASK_MEMBERS = "ask who is alive"
    LEARN = "take over what the slaves know already that are asked later"
    COMPLETE_LOG = "take what the end of the log lacks"
    ANNOUNCE = "tell a slave that its master, or the one that acts for it from now on, comes back"
    AWAIT_COPY = "wait until the slave copies the log"
    TAKE_OVER = "take over what the slave knows better"
    ASK_MASTER = "ask the master where its log is"
    AWAIT_FOLLOWING = "wait until the master's log is copied"
    PAUSE = "wait before the next try"
    ONLINE = "register"


@attrs.frozen(order=True)
class Member:
    """Another broker of the group."""

    broker_id: int
    address: str

    def __str__(self) -> str:
        return f"{'slave' if self.broker_id else 'master'} {self.broker_id} at {self.address}"


@attrs.frozen
class State:
    """Where the handshake stands.

    Attributes:
        own_id, own_address: this broker.
        former: the members that this broker remembers, without itself.
        left_out: those without which it went on before. Nobody waits for one that no name server shows.
        lone: it is known that there were no others.
        patience: for how many seconds a slave that name servers show is asked without any success.
        patient_until: monotonic seconds after which a slave that name servers show is left out when it fails.
        alone_at: the same for a remembered slave that no name server shows.
        phase: what to do next.
        target: with whom.
        waiting: slaves that come after *target*.
        shown: the members that a name server showed in this round.
        finished: slaves whose knowledge was taken over in this round.
        copying: those of them, and the target, that began to copy the log.
        given_up: slaves that are left out, for the rest of this return.
        failed: slaves that failed in some round.
        ever_shown: ids that name servers showed in some round; one that is gone since was dropped; nobody waits for it.
        asked_at: monotonic seconds when members were shown last.
        outdated: this slave is to ask all others, not the first one only.
        followed: the master that this slave has found, or has waited for long enough.
        tries: rounds that failed so far.
        trouble: what went wrong last, for people; ``""`` when nothing did.
    """

    own_id: int
    own_address: str
    former: tuple[Member, ...] = ()
    left_out: tuple[Member, ...] = ()
    lone: bool = False
    patience: float = math.inf
    patient_until: float = math.inf
    alone_at: float = 0.0
    phase: Phase = Phase.ASK_MEMBERS
    target: Member | None = None
    waiting: tuple[Member, ...] = ()
    shown: tuple[Member, ...] = ()
    finished: tuple[Member, ...] = ()
    copying: tuple[Member, ...] = ()
    given_up: tuple[Member, ...] = ()
    failed: frozenset[Member] = frozenset()
    ever_shown: frozenset[int] = frozenset()
    asked_at: float = -math.inf
    outdated: bool = False
    followed: Member | None = None
    tries: int = 0
    trouble: str = ""

    @property
    def reachable(self) -> tuple[Member, ...]:
        """Who of :attr:`waiting` is shown, and has not failed."""
        return tuple(each for each in self.waiting if each in self.shown and each not in self.failed)

    @property
    def known(self) -> tuple[Member, ...]:
        """Every other member of the group that is known of; one may stand there more than once."""
        return (*self.former, *self.left_out, *self.shown, *self.finished, *self.given_up)

    @property
    def told(self) -> tuple[Member, ...]:
        """Who has been told in this round that this broker comes back, and waits for it."""
        target = self.target if self.phase in (Phase.AWAIT_COPY, Phase.TAKE_OVER) else None
        return self.finished if target is None else (*self.finished, target)

    def line(self) -> str:
        """Return where it stands, for people."""
        target = f" ({self.target})" if self.target is not None else ""
        return f"under way: {self.phase.value}{target}" + (f"; last trouble: {self.trouble}" if self.trouble else "")


@attrs.frozen
class Members:
    """The answer to :attr:`Phase.ASK_MEMBERS`: every member that some name server shows."""

    found: tuple[Member, ...]


@attrs.frozen
class Done:
    """The phase went well."""


@attrs.frozen
class Unfinished:
    """There is more of the log to take than what came; meanwhile a master may have come."""


@attrs.frozen
class Behind:
    """The slave that acts has more of the same log, or of a later life, and cannot give it; why, for people."""

    why: str


@attrs.frozen
class Failed:
    """It did not; why, for people."""

    why: str


@attrs.frozen
class Finish:
    """An operator wants the broker online now."""


Event = Members | Done | Unfinished | Behind | Failed | Finish


def begin(
    own: Member,
    former: tuple[Member, ...],
    *,
    lone: bool,
    now: float,
    patience_seconds: float,
    timeout_seconds: float,
    left_out: tuple[Member, ...] = (),
    dropped: bool = False,
    outdated: bool = False,
) -> State:
    """Return the first state.

    After an absence, as at a start, a slave has acted for a long time, and is asked long. A master that was dropped has
    missed a moment only. It must not stay hidden for as long as the link to a slave is cut, while that slave acts and
    nobody takes sends: each second of it costs more than what the slave was told so far.

    Args:
        own: this broker.
        former: the members that it remembers.
        lone: it is known that there were no others.
        now: monotonic seconds.
        patience_seconds: how long a slave is asked that does not do its part.
        timeout_seconds: how long a living member may take to be shown by a name server that did not know it.
        left_out: the slaves without which it went on before, and that have not answered since.
        dropped: every name server had dropped this broker, though it was there.
        outdated: this slave would act, and has copied nothing since it came back.
    """
    longest = min(patience_seconds, timeout_seconds) if dropped else patience_seconds
    others = tuple(sorted(each for each in former if each.broker_id != own.broker_id and each.address != own.address))
    return State(
        own.broker_id,
        own.address,
        former=others,
        left_out=left_out if own.broker_id == MASTER_ID else (),
        lone=lone,
        outdated=outdated,
        patience=longest,
        patient_until=now + longest,
        alone_at=now + min(timeout_seconds, longest),
    )


def step(state: State, event: Event, now: float) -> State:
    """Return what comes after *event* in *state* at *now* (monotonic seconds)."""
    if isinstance(event, Finish):
        return _finish(state)
    if state.phase is Phase.PAUSE:
        return attrs.evolve(state, phase=Phase.ASK_MEMBERS, target=None, waiting=(), shown=(), finished=(), copying=())
    if isinstance(event, Behind):  # for as long as it is shown, and no master is; then this one must do
        state = attrs.evolve(state, patient_until=max(state.patient_until, now + state.patience))
        return attrs.evolve(state, phase=Phase.PAUSE, tries=state.tries + 1, trouble=event.why)
    if isinstance(event, Failed):
        return _failed(state, event.why, now)
    if isinstance(event, Members):
        return _members(attrs.evolve(state, asked_at=now), event.found)
    if state.phase is Phase.LEARN:
        return _next_slave(state)
    if isinstance(event, Unfinished):
        # Taking the log may last longer than patience does: it counts from what came last.
        patient_until = max(state.patient_until, now + state.patience)
        return attrs.evolve(state, phase=Phase.ASK_MEMBERS, target=None, waiting=(), patient_until=patient_until)
    if state.phase is Phase.COMPLETE_LOG:
        return attrs.evolve(state, phase=Phase.ANNOUNCE)
    if state.phase is Phase.ANNOUNCE:
        return attrs.evolve(state, phase=Phase.AWAIT_COPY if state.own_id == MASTER_ID else Phase.TAKE_OVER)
    if state.phase is Phase.AWAIT_COPY:
        assert state.target is not None
        return attrs.evolve(state, phase=Phase.TAKE_OVER, copying=(*state.copying, state.target))
    if state.phase is Phase.TAKE_OVER:
        assert state.target is not None
        return _next_slave(attrs.evolve(state, finished=(*state.finished, state.target)))
    if state.phase is Phase.ASK_MASTER:
        return attrs.evolve(state, phase=Phase.AWAIT_FOLLOWING)
    return _followed(state, now)


def _followed(state: State, now: float) -> State:
    """Go online, but ask once more who is alive when that took long: another slave may act for the master by now."""
    fresh = now - state.asked_at <= FRESH_SECONDS
    phase = Phase.ONLINE if fresh else Phase.ASK_MEMBERS
    return attrs.evolve(state, phase=phase, target=None, followed=state.target)


def _members(state: State, found: tuple[Member, ...]) -> State:
    others = tuple(
        sorted(each for each in found if each.broker_id != state.own_id and each.address != state.own_address)
    )
    if state.own_id == MASTER_ID:
        return _slaves(
            attrs.evolve(state, shown=others, ever_shown=state.ever_shown.union(each.broker_id for each in others))
        )
    if others and others[0].broker_id == MASTER_ID and others[0] != state.followed:
        return attrs.evolve(state, phase=Phase.ASK_MASTER, target=others[0])
    if others and state.own_id < others[0].broker_id:
        # The first one acts until now; the others copy from it.
        asked = (*state.finished, *state.given_up)
        new = tuple(each for each in (others if state.outdated else others[:1]) if each not in asked)
        if new:
            return _next_slave(attrs.evolve(state, shown=others, waiting=new))
    return attrs.evolve(state, phase=Phase.ONLINE, target=None)


def _slaves(state: State) -> State:
    missing = tuple(each for each in state.former if each.broker_id not in state.ever_shown)
    asked = {*state.finished, *state.given_up}
    new = [each for each in (*state.shown, *missing) if each not in asked]
    if not new:
        # Whoever was dropped meanwhile is not waited for, but may come back: what only it knows is taken over then.
        dropped = _unasked(state, (*state.left_out, *state.former, *sorted(state.failed)))
        return attrs.evolve(state, phase=Phase.ONLINE, target=None, given_up=(*state.given_up, *dropped))
    new.sort(key=lambda each: (each in state.shown and each not in state.failed, each))
    state = attrs.evolve(state, waiting=tuple(new), target=None)
    if state.reachable and len(state.reachable) < len(new):
        return attrs.evolve(state, phase=Phase.LEARN)
    return _next_slave(state)


def _unasked(state: State, members: Iterable[Member]) -> tuple[Member, ...]:
    """Return those of *members* that were neither asked nor given up, one of each id: the last one."""
    done = {each.broker_id for each in (*state.finished, *state.given_up)}
    return tuple(sorted({each.broker_id: each for each in members if each.broker_id not in done}.values()))


def _next_slave(state: State) -> State:
    if not state.waiting:
        return attrs.evolve(state, phase=Phase.ASK_MEMBERS, target=None)
    first, *rest = state.waiting
    return attrs.evolve(state, phase=Phase.COMPLETE_LOG, target=first, waiting=tuple(rest))


def _failed(state: State, why: str, now: float) -> State:
    if state.phase is Phase.LEARN:
        return _next_slave(state)
    if state.phase is Phase.AWAIT_COPY:
        # What the slave knows can be taken over all the same; sends will say when copies are missing.
        return attrs.evolve(state, phase=Phase.TAKE_OVER, trouble=why)
    out_of_patience = state.phase is Phase.ASK_MASTER and now >= state.patient_until
    if state.phase is Phase.AWAIT_FOLLOWING or out_of_patience:
        return _followed(attrs.evolve(state, trouble=why), now)
    if state.phase is Phase.ASK_MEMBERS and state.lone:
        given_up = (*state.given_up, *_unasked(state, state.left_out))
        return attrs.evolve(state, phase=Phase.ONLINE, given_up=given_up, trouble=why)
    target = state.target
    if target is not None and state.phase is not Phase.ASK_MASTER:
        shown = target in state.shown
        if now >= (state.patient_until if shown else state.alone_at):
            known = "" if shown else ", no name server shows it"
            left = attrs.evolve(
                state, given_up=(*state.given_up, target), trouble=f"{target} was left out{known}: {why}"
            )
            return _next_slave(left)
        state = attrs.evolve(state, failed=state.failed | {target})
    return attrs.evolve(state, phase=Phase.PAUSE, tries=state.tries + 1, trouble=why)


def _finish(state: State) -> State:
    """Go online without every slave that was not asked to the end."""
    known = (*state.left_out, *state.former, *state.shown, *state.waiting)
    left = _unasked(state, known) if state.own_id == MASTER_ID else ()
    names = ", ".join(map(str, left))
    trouble = "finished by an operator" + (f"; {names} left out" if left else "")
    if state.trouble:
        trouble = f"{trouble}; {state.trouble}"
    return attrs.evolve(state, phase=Phase.ONLINE, target=None, given_up=(*state.given_up, *left), trouble=trouble)
