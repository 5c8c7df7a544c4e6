"""Who is alive in a broker's group: a pure state machine over what name servers answer and push.

Three sources feed one view: the regular question (901, or 105 for old name servers), the pushed notice that the
smallest id changed (905), and the settings of each member, asked of it once in a while.

Name servers may see different things. A slave that one of them tells of no master asks all others before it believes
it: a master that only one name server has lost is there (differs because the reference's slave acts on the first answer
and delivers beside its master for as long as the name servers disagree). So does a master that one of them has lost:
where another one still shows it, no slave has acted for it, and it only registers again.

A step returns what the shell has to do; answers of name servers come back as events.

Source: BrokerController.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from understudy.broker import group_memory
from understudy.broker.group_memory import GroupMemory
from understudy.broker.member_events import (
    Action,
    Answered,
    Arrived,
    Ask,
    AskAgain,
    AskOthers,
    AskSettings,
    Contact,
    Due,
    Event,
    FindLog,
    Follow,
    Following,
    LoseMaster,
    Lost,
    NoAnswer,
    Notice,
    Noticed,
    Opinions,
    Registered,
    Remember,
    SettingsOf,
    Shown,
    TellServers,
    Twin,
    View,
    Warn,
)

MASTER_ID = 0
SETTINGS_SECONDS = 60.0
"""How long what a member said of its settings is taken for true."""
SETTINGS_RETRY_SECONDS = 10.0
"""When a member that did not say, or for which no slave may act, is asked again."""


@attrs.frozen
class Own:
    """The broker whose view it is."""

    broker_id: int
    address: str
    is_slave: bool
    acting_enabled: bool = True


@attrs.frozen
class State:
    """What a broker knows of its group.

    Attributes:
        own: the broker itself.
        members: ids and addresses of the last view, in order; ``None`` until a name server has answered.
        memory: whom it remembers.
        ask_settings_at: by address, monotonic seconds when a member is asked for its settings again.
        first: the name server that is asked first, the one that answered last.
        pending: the answer that waits for second opinions, ``None``: none does.
        left: name servers that this round has not asked yet.
        overtaken: since this round began a name server has told something newer than what it may answer.
    """

    own: Own
    members: View | None = None
    memory: GroupMemory = attrs.field(factory=GroupMemory)
    ask_settings_at: Mapping[str, float] = attrs.field(factory=dict)
    first: str | None = None
    pending: View | None = None
    left: tuple[str, ...] = ()
    overtaken: bool = False

    @property
    def alive(self) -> int:
        """How many replicas live, this one included."""
        return len({*(self.members or {}), self.own.broker_id})

    @property
    def master_declines(self) -> bool:
        """Whether the master of this slave would take nothing back of what a slave does for it."""
        return self.own.is_slave and MASTER_ID in self.memory.declining

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that members of a group must have in common and do not, for people."""
        found = []
        for broker_id in sorted(self.memory.declining):
            address = (self.memory.members or {}).get(broker_id)
            what = (
                "it would take nothing back, so no slave acts for it"
                if broker_id == MASTER_ID
                else "it acts for no master, and no slave with a greater id does"
            )
            found.append(
                f"enableSlaveActingMaster is false at member {broker_id} ({address}) and true here: {what}; "
                "give all members of a group the same value"
            )
        return tuple(found) if self.own.acting_enabled else ()


Step = tuple[State, tuple[Action, ...]]


def shows(own: Own, view: View) -> bool:
    """Return whether *view* shows this broker itself."""
    return view.get(own.broker_id) == own.address


def shown(state: State) -> bool:
    """Return whether the last view shows this broker itself."""
    return shows(state.own, state.members or {})


def together(own: Own, views: Iterable[View]) -> View:
    """Return who is shown by any of *views*, this broker at its own address if one shows it there."""
    found: dict[int, str] = {}
    for view in views:
        found.update(view if shows(own, view) else {each: view[each] for each in view if each not in found})
    return found


def drops(state: State, found: View) -> bool:
    """Return whether *found* shows others of the group, and no longer this broker, as the last view did."""
    return shown(state) and state.own.broker_id not in found and bool(found)


# --- the step ------------------------------------------------------------------------------------------------------


def step(state: State, event: Event, now: float) -> Step:
    """Return the state after *event* at *now* (monotonic seconds), and what is to be done."""
    if isinstance(event, Due):
        servers = event.servers
        if state.first in servers:
            turn = servers.index(state.first)
            servers = (*servers[turn:], *servers[:turn])
        return _ask_next(attrs.evolve(state, left=servers, pending=None, overtaken=False), Following())
    if isinstance(event, NoAnswer):
        return _ask_next(state, event.following)
    if isinstance(event, Answered | Opinions) and state.overtaken:
        return attrs.evolve(state, left=(), pending=None), (AskAgain(),)
    if isinstance(event, Answered):
        state = attrs.evolve(state, first=event.server, left=())
        others = tuple(each for each in event.servers if each != event.server)
        if event.found and others and _misses_master(state, event.found):
            return attrs.evolve(state, pending=event.found), (AskOthers(others),)
        return _take(state, event.found, event.found, event.following, now)
    if isinstance(event, Opinions):
        found = state.pending or {}
        return _take(
            attrs.evolve(state, pending=None), _with_master(state, found, event.views), found, event.following, now
        )
    if isinstance(event, Noticed):
        return _noticed(state, event, now)
    if isinstance(event, Registered):
        if state.members is not None:
            members = {**state.members, state.own.broker_id: state.own.address}
            state = attrs.evolve(state, members=dict(sorted(members.items())), overtaken=True)
        return state, ()
    return _settings(state, event, now)


def _ask_next(state: State, following: Following) -> Step:
    if not state.left:
        return state, _find_log(state, following)
    first, *rest = state.left
    return attrs.evolve(state, left=tuple(rest)), (Ask(first),)


def _misses_master(state: State, found: View) -> bool:
    if MASTER_ID in found:
        return False
    return state.own.is_slave or shown(state)


def _with_master(state: State, found: View, views: tuple[View, ...]) -> View:
    """Return *found* with the master of another view that still shows one, and with this broker if one shows it.

    A master counts itself only. A slave counts slaves of smaller ids, too: one that another name server shows acts.
    """
    own = state.own
    for view in views:
        if own.is_slave:
            found = {**{each: view[each] for each in view if MASTER_ID < each < own.broker_id}, **found}
        master = view.get(MASTER_ID)
        if master is not None and (own.is_slave or master == own.address):
            found = {MASTER_ID: master, **found}
        if view.get(own.broker_id) == own.address:
            found = {own.broker_id: own.address, **found}
    return found


def _take(state: State, found: View, answered: View, following: Following, now: float) -> Step:
    """Make *found* the view; *answered* is what the name server that was asked first said."""
    own, before = state.own, state.members
    actions: list[Action] = [Contact(found, before, state.memory.members or {})]
    held = answered.get(own.broker_id)
    if held is None:
        actions.append(Lost())
    elif held != own.address and (before or {}).get(own.broker_id) != held:
        actions.append(Twin(held))
    if found:
        # The reference keeps its role when nobody is listed; so does whoever reads an unchanged view.
        state, shown = _show(state, found, following, now)
        actions += shown
    actions += _find_log(state, following)
    return state, tuple(actions)


def _show(state: State, found: View, following: Following, now: float) -> tuple[State, list[Action]]:
    actions: list[Action] = []
    if MASTER_ID not in found and state.own.is_slave and following.address is not None and not following.returning:
        actions.append(LoseMaster())
    elif MASTER_ID in found and following.returning and MASTER_ID not in (state.members or {}):
        actions.append(Arrived())
    memory = group_memory.observe(state.memory, found, state.own.broker_id, now)
    if memory.members != state.memory.members:
        actions.append(Remember())
    actions.append(Shown())
    ask_at = {address: at for address, at in state.ask_settings_at.items() if address in found.values()}
    for broker_id, address in found.items():
        if broker_id != state.own.broker_id and now >= ask_at.get(address, now):
            ask_at[address] = now + SETTINGS_RETRY_SECONDS
            actions.append(AskSettings(broker_id, address))
    state = attrs.evolve(state, members=dict(sorted(found.items())), memory=memory, ask_settings_at=ask_at)
    return state, actions


def _find_log(state: State, following: Following) -> tuple[Action, ...]:
    master = (state.members or {}).get(MASTER_ID)
    if not state.own.is_slave or master is None or (master == following.address and following.log_known):
        return ()
    return (FindLog(master),)


def after_notice(members: View | None, notice: Notice) -> dict[int, str] | None:
    """Return the view after a pushed notice: without the address that is gone, with the new smallest id, and nobody
    below it."""
    if notice.min_broker_id is None:
        return None if members is None else dict(members)
    found = {
        broker_id: address
        for broker_id, address in (members or {}).items()
        if broker_id >= notice.min_broker_id and address != notice.offline_address
    }
    if notice.min_broker_address:
        found[notice.min_broker_id] = notice.min_broker_address
    return dict(sorted(found.items()))


def _noticed(state: State, event: Noticed, now: float) -> Step:
    notice, following = event.notice, event.following
    found = after_notice(state.members, notice)
    if found is None:
        return state, ()
    if not event.trusted or (event.servers > 1 and _misses_master(state, found)):
        return state, (AskAgain(),)
    state, actions = _show(attrs.evolve(state, overtaken=True), found, following, now)
    if notice.min_broker_id == MASTER_ID:
        actions.append(Follow(notice.min_broker_address, notice.ha_address))
    elif notice.offline_address == following.address and not following.returning and LoseMaster() not in actions:
        # A master that has just said that it comes back is not online yet: what is gone is its entry of a former life.
        actions.append(LoseMaster())
    return state, tuple(actions)


def _settings(state: State, event: SettingsOf, now: float) -> Step:
    if event.acting_enabled is None:
        return state, ()
    before = state.warnings
    declining = state.memory.declining - {event.broker_id}
    if not event.acting_enabled:
        declining |= {event.broker_id}
    pause = SETTINGS_SECONDS if event.acting_enabled else SETTINGS_RETRY_SECONDS  # no slave acts until it is mended
    ask_at = {**state.ask_settings_at, event.address: now + pause}
    changed = declining != state.memory.declining
    memory = attrs.evolve(state.memory, declining=declining)
    state = attrs.evolve(state, ask_settings_at=ask_at, memory=memory)
    told = tuple(Warn(text) for text in state.warnings if text not in before)
    return state, ((Remember(), TellServers(), Shown(), *told) if changed else ())
