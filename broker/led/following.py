"""What a broker does that a controller leads: whom it asks, which word it takes, what its role is. Pure.

The laws:

* Only the leader of the controllers says who is master. A push (1008) comes from anybody who can reach the port: it is
  a reason to ask the leader at once, and never more.
* A word counts when its epoch is newer than every one taken before, or, in the same epoch, when its set is newer. An
  older one changes nothing, whatever it says.
* One change of the role at a time; what is newer meanwhile waits and comes next. A change that failed is made when the
  leader is asked the next time. Who is elected counts the time from the word on, whatever older change is in the way.
* Without a master the leader is asked for an election, by each replica that notices: that there is none, only the
  answer to the question who is master (1004) says. That to a registration leaves out a master that was not heard yet.
* The set that replication wants is asked for until it is the one in force, or another master is. A new master asks for
  the set that it has before, which is not refused for who is in it: so the controllers hear that it leads. Until they
  have, they may elect others of the former set.
* A master has the leader say so again and again: with the time of the question it can tell until when nobody else is.
  When its connection to a controller ends, it has to be said anew: controllers elect as soon as they see such an end.

Source: ReplicasManager.java. Differs: pushes are confirmed, and failed steps are repeated after a moment instead of at
the next period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

import attrs

from understudy.ha.switch.sync_state import NEVER, Moment


class Ask(Enum):
    """What a controller can be asked."""

    LEADER = "who leads the controllers"
    REPLICAS = "who is master"
    ELECTION = "to have a master elected"
    SET = "to change the sync-state set"


@attrs.frozen
class Word:
    """What the controllers say of a group.

    Attributes:
        master_id: persistent id of the master; ``None``: there is none.
        master_address: ``host:port``.
        epoch: grows with each change of the master.
        members: persistent ids of the sync-state set.
        set_epoch: grows with each change of the set.
    """

    master_id: int | None
    master_address: str
    epoch: int
    members: frozenset[int]
    set_epoch: int


@attrs.frozen
class Pace:
    """Pauses in seconds.

    Attributes:
        leader: between two questions who leads (``syncControllerMetadataPeriod``).
        replicas: between two questions who is master (``syncBrokerMetadataPeriod``).
        proof: the same for a master, at most: its word is needed before the former one holds no longer.
        again: after something that failed.
    """

    leader: float = 10.0
    replicas: float = 5.0
    proof: float = 2.5
    again: float = 0.5


# --- what happens ----------------------------------------------------------------------------------------------------


@attrs.frozen
class LeaderIs:
    """The answer to the question who leads; ``""``: nobody knows."""

    address: str


@attrs.frozen
class Said:
    """The leader has answered *ask*, which it was asked at *asked_at*."""

    ask: Ask
    word: Word
    asked_at: Moment = NEVER


@attrs.frozen
class Failed:
    """A question came to nothing.

    Attributes:
        ask: the question.
        lost: whoever was asked does not answer or does not lead.
    """

    ask: Ask
    lost: bool


@attrs.frozen
class Pushed:
    """Somebody says that the role has changed (1008)."""

    word: Word


@attrs.frozen
class Changed:
    """The role of *word* is in force, or, with an *error*, the former one still is."""

    word: Word
    error: str = ""


@attrs.frozen
class Wanted:
    """Replication wants *members* to be the sync-state set."""

    members: frozenset[int]


@attrs.frozen
class Doubted:
    """A connection to a controller has ended: it may have missed this broker; or a log *claims* an epoch unheard of."""

    claims: bool = False


@attrs.frozen
class Looked:
    """Time has passed."""


Event: TypeAlias = LeaderIs | Said | Failed | Pushed | Changed | Wanted | Doubted | Looked

# --- what is to be done ----------------------------------------------------------------------------------------------


@attrs.frozen
class Question:
    """Ask this; for :attr:`Ask.SET` with the *members* that are wanted."""

    ask: Ask
    members: frozenset[int] = frozenset()


@attrs.frozen
class TakeRole:
    """Have the broker be what it was told.

    Attributes:
        word: what that is.
        same: it follows whom it followed, or is master as before.
    """

    word: Word
    same: bool


@attrs.frozen
class TakeNews:
    """The role stays; its set, or the address of its master, is another one."""

    word: Word


Action: TypeAlias = Question | TakeRole | TakeNews


class Named(NamedTuple):
    """The leader's word that this broker is master: of which epoch, when it was asked, how old the set was then."""

    epoch: int
    asked_at: Moment
    set_epoch: int


class Elected(NamedTuple):
    """The newest word, when it names this broker and is not in force yet: of which epoch, and when it was heard."""

    epoch: int
    since: float


_UNNAMED = Named(0, NEVER, 0)
_NEVER: Mapping[Ask, float] = {ask: math.inf for ask in Ask}


@attrs.frozen
class State:
    """What one broker knows of its group.

    Attributes:
        own_id: its persistent id.
        leader: address of the controller that leads; ``""`` while it is unknown.
        role: the word in force.
        changing: the word that is being taken.
        next_role: the newest word, while an older one is being taken.
        wanted: the set that replication wants, since the role began; at first that of the role.
        confirmed: the controllers have heard that this broker is the master of its role.
        asked: questions under way.
        asked_set: the set that was asked for last.
        due: when each question is to be asked (monotonic seconds).
        named: the newest epoch in which the leader named this broker as master, and the word that was asked for last.
        elected: this broker is to be master and is not yet, whatever change of its role may be in the way.
    """

    own_id: int
    leader: str = ""
    role: Word | None = None
    changing: Word | None = None
    next_role: Word | None = None
    wanted: frozenset[int] | None = None
    confirmed: bool = False
    asked: frozenset[Ask] = frozenset()
    asked_set: frozenset[int] = frozenset()
    due: Mapping[Ask, float] = _NEVER
    named: Named = _UNNAMED
    elected: Elected | None = None

    @property
    def is_master(self) -> bool:
        """Whether the role in force is the master's."""
        return self.role is not None and self.role.master_id == self.own_id

    @property
    def next_set(self) -> frozenset[int]:
        """The set to ask for next: that of the role until the controllers have heard of it, then the one wanted."""
        members = self.wanted if self.confirmed or self.role is None else self.role.members
        return frozenset() if members is None else members

    @property
    def epoch(self) -> int:
        """The newest epoch of which a word was taken, in force or not."""
        return max(word.epoch for word in (self.role, self.changing, self.next_role, NOBODY) if word is not None)

    @property
    def proven_at(self) -> Moment:
        """When the leader was asked last that named this broker as master of its epoch."""
        return self.named_at(self.role.epoch) if self.role is not None else NEVER

    def named_at(self, epoch: int) -> Moment:
        """Return when the leader was asked last that named this broker as master of *epoch*."""
        return self.named.asked_at if self.named.epoch == epoch else NEVER

    def next_at(self) -> float:
        """Return when :class:`Looked` is due (monotonic seconds)."""
        return min((at for ask, at in self.due.items() if self._may_ask(ask)), default=math.inf)

    def _may_ask(self, ask: Ask) -> bool:
        return ask not in self.asked and (ask is Ask.LEADER or bool(self.leader))

    def at(self, ask: Ask, time: float) -> State:
        """Return the state with *ask* due at *time*."""
        return attrs.evolve(self, due={**self.due, ask: time})


NOBODY = Word(None, "", 0, frozenset(), 0)
"""What is known before anybody was asked."""


def begin(own_id: int, leader: str, word: Word, now: float) -> tuple[State, list[Action]]:
    """Begin with the word of the leader, which is asked again at once.

    Args:
        own_id: persistent id.
        leader: address of the controller that answered.
        word: its answer.
        now: monotonic seconds.
    """
    state = State(own_id, leader).at(Ask.LEADER, now).at(Ask.REPLICAS, now)
    state, news = _hear(state, word, now)
    state, actions = _act(state, now)
    return state, news + actions


def step(state: State, event: Event, now: float, pace: Pace) -> tuple[State, list[Action]]:
    """Return the next state and what is to be done.

    Args:
        state: until now.
        event: what happened.
        now: monotonic seconds.
        pace: in force.
    """
    news: list[Action] = []
    match event:
        case LeaderIs(address):
            state = _answered(state, Ask.LEADER).at(Ask.LEADER, now + (pace.leader if address else pace.again))
            if address and address != state.leader:
                state = state.at(Ask.REPLICAS, now)
            state = attrs.evolve(state, leader=address or state.leader)
        case Said(ask, word, asked_at):
            state = _answered(state, ask)
            if word.master_id == state.own_id:
                state = attrs.evolve(state, named=max(state.named, Named(word.epoch, asked_at, word.set_epoch)))
            state, news = _hear(state, word, now)
            if ask is Ask.REPLICAS and word.master_id is None and word.epoch >= state.epoch:
                state = state.at(Ask.ELECTION, now)
            if state.due[Ask.REPLICAS] == math.inf:
                pause = pace.replicas if word.master_id is not None else pace.again
                state = state.at(
                    Ask.REPLICAS, now + (min(pause, pace.proof) if word.master_id == state.own_id else pause)
                )
            if ask is Ask.SET:
                heard = state.role is not None and word.epoch == state.role.epoch
                state = _want_next(attrs.evolve(state, confirmed=state.confirmed or heard), now, pace)
        case Failed(ask, lost):
            state = _answered(state, ask).at(ask, now + pace.again)
            if ask in (Ask.ELECTION, Ask.SET):
                # what it was asked for may be out of date: first look
                state = state.at(ask, math.inf).at(Ask.REPLICAS, now + pace.again)
            if lost and ask is not Ask.LEADER:
                state = attrs.evolve(state, leader="").at(Ask.LEADER, now + pace.again)
                state = state.at(Ask.REPLICAS, now)
            if ask is Ask.SET:
                # Another set than the one that was refused may lack who made it be refused.
                state = _want(state, now + pace.again) if lost else _want_next(state, now, pace)
        case Pushed(word):
            if plausible(word) and _is_news(state, word):
                state = state.at(Ask.REPLICAS, now)
        case Changed(word, error):
            state = attrs.evolve(state, changing=None)
            if error:
                state = state.at(Ask.REPLICAS, now + pace.again)
            else:
                leads = word.master_id == state.own_id
                state = attrs.evolve(state, role=word, wanted=word.members if leads else None, confirmed=False)
                state = _want(state.at(Ask.SET, math.inf), now)
        case Doubted() if state.is_master or event.claims:
            state = state.at(Ask.REPLICAS, now)
        case Wanted(members):
            state = _want(attrs.evolve(state, wanted=members), now)
    state, actions = _act(state, now)
    return state, news + actions


def _answered(state: State, ask: Ask) -> State:
    return attrs.evolve(state, asked=state.asked - {ask})


def plausible(word: Word) -> bool:
    """Return whether *word*, which anybody may have pushed, names a master that is in its set."""
    return word.master_id is not None and word.master_id > 0 and word.master_id in word.members


def _is_news(state: State, word: Word) -> bool:
    if word.epoch != state.epoch:
        return word.epoch > state.epoch
    return state.role is not None and word.set_epoch > state.role.set_epoch


def _hear(state: State, word: Word, now: float) -> tuple[State, list[Action]]:
    """Take a word of the leader."""
    role = state.role
    if word.master_id is None:
        return state, []
    if word.epoch > state.epoch:
        return attrs.evolve(state, next_role=word).at(Ask.ELECTION, math.inf), []
    in_force = role is not None and state.changing is None and word.epoch == role.epoch
    if not in_force or role is None or word.master_id != role.master_id:
        return state, []
    if word.set_epoch > role.set_epoch or (
        word.set_epoch == role.set_epoch and word.master_address != role.master_address
    ):
        return _want(attrs.evolve(state, role=word), now), [TakeNews(word)]
    return state, []


def _want(state: State, at: float) -> State:
    """Have the set asked for at *at* when it is wanted and not in force."""
    role = state.role
    wants = role is not None and state.wanted is not None and (state.wanted != role.members or not state.confirmed)
    needed = state.is_master and wants
    return state.at(Ask.SET, min(at, state.due[Ask.SET]) if needed else math.inf)


def _want_next(state: State, now: float, pace: Pace) -> State:
    """Have the set asked for after a question for one; another one need not wait."""
    return _want(state, now if state.next_set != state.asked_set else now + pace.again)


def _act(state: State, now: float) -> tuple[State, list[Action]]:
    """Begin what is due."""
    actions: list[Action] = []
    newest = state.next_role or state.changing
    if newest is None or newest.master_id != state.own_id:
        state = attrs.evolve(state, elected=None) if state.elected is not None else state
    elif state.elected is None or state.elected.epoch != newest.epoch:
        state = attrs.evolve(state, elected=Elected(newest.epoch, now))
    if state.next_role is not None and state.changing is None:
        word, role = state.next_role, state.role
        same = role is not None and role.master_id == word.master_id and role.master_address == word.master_address
        actions.append(TakeRole(word, same))
        state = attrs.evolve(state, changing=word, next_role=None)
    for ask in Ask:
        if state.due[ask] <= now and state._may_ask(ask):
            members = state.next_set if ask is Ask.SET else frozenset()
            actions.append(Question(ask, members))
            asked_set = members if ask is Ask.SET else state.asked_set
            state = attrs.evolve(state, asked=state.asked | {ask}, asked_set=asked_set).at(ask, math.inf)
    return state, actions
