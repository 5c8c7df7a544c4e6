"""Who is in sync with a master that a controller elected: the sync-state set, and what it decides. Pure.

The controller keeps the set and elects from it. The master asks for changes: a slave that has caught up comes in, one
that lags or is gone goes out. Until the controller has answered, any of them may be the one it elects from:

* a message of which *every* replica must have a copy needs those of all sets that were asked for;
* who may be counted as *one of several* copies is in all of them: whoever is only in some may not be electable;
* where every replica must have a copy, and the master is alone in one of those sets, its disk must have it, too;
* a master that may have been replaced (:func:`is_proven`) needs all of them, however many copies are asked for: the one
  who was elected has left, and has everything that it had acknowledged before.

A learner copies, but is never counted. A slave counts once, however often it is connected.

Source: AutoSwitchHAService.java, GroupTransferService.java. Differs: the reference counts learners, replicas outside of
the set and each connection where several copies are asked for, and takes a connected slave that says nothing for one
that has caught up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import attrs

CLOSE_SECONDS = 0.5
"""Who had everything that the master had so long ago is about to have all: what it lacks is on its way."""


@attrs.frozen
class Follower:
    """What a master knows of one slave, by its persistent id.

    Attributes:
        acknowledged: end of its log (bytes) as it last reported; -1 before.
        learner: it is never counted.
        caught_up: monotonic seconds when it last had everything that the master had had then; minus infinity before.
        mark: the end of the master's log (bytes) at :attr:`marked_at`; reached once it is acknowledged.
        marked_at: monotonic seconds.
    """

    acknowledged: int = -1
    learner: bool = False
    caught_up: float = -math.inf
    mark: int = -1
    marked_at: float = -math.inf

    def sent(self, master_end: int, now: float) -> Follower:
        """Return it after the master sent it something; a mark that is not reached yet stays."""
        if self.acknowledged < self.mark:
            return self
        return attrs.evolve(self, mark=master_end, marked_at=now)

    def reported(self, offset: int, master_end: int, now: float) -> Follower:
        """Return it after it reported *offset*.

        Args:
            offset: end of its log, at most *master_end*.
            master_end: end of the master's log now, in bytes.
            now: monotonic seconds.
        """
        caught_up = self.caught_up
        if offset >= master_end:
            caught_up = now
        elif self.mark >= 0 and offset >= self.mark:
            caught_up = max(caught_up, self.marked_at)
        return attrs.evolve(self, acknowledged=max(self.acknowledged, offset), caught_up=caught_up)

    def lags(self, master_end: int, now: float, patience_s: float) -> bool:
        """Return whether it lacks something and has not caught up for *patience_s* seconds."""
        return self.acknowledged < master_end and now - self.caught_up > patience_s

    def is_close(self, now: float) -> bool:
        """Return whether it lacks at most what came within the last moment."""
        return now - self.caught_up <= CLOSE_SECONDS


@attrs.frozen
class Asked:
    """A question to the controller that is about to leave, is under way, or that nobody has answered.

    Attributes:
        members: the set that was asked for.
        set_epoch: of the set that it was to replace: the controller accepts it as long as that one is in force.
        until: monotonic seconds after which no controller takes it any more; whether one has, only a controller that is
            asked later can say. Infinite before it has left.
    """

    members: frozenset[int]
    set_epoch: int
    until: float


@attrs.frozen
class SyncState:
    """The sync-state set as a master knows it.

    Attributes:
        own_id: the master's persistent id; always a member.
        accepted: what the controller accepted last.
        set_epoch: counts its changes.
        wanted: what the controller is to be asked for; ``None`` when that is the set in force.
        asked: questions that may be accepted yet, whatever has been wanted since.
        everybody: all that may be in the controller's set now.
        electable: all that are in the controller's set, whichever it has.
        may_be_alone: one of the sets that the controller may have is of the master alone.
    """

    own_id: int
    accepted: frozenset[int]
    set_epoch: int = 0
    wanted: frozenset[int] | None = None
    asked: tuple[Asked, ...] = ()
    # Made once: they are asked for with each message.
    everybody: frozenset[int] = attrs.field(init=False, eq=False, repr=False)
    electable: frozenset[int] = attrs.field(init=False, eq=False, repr=False)
    may_be_alone: bool = attrs.field(init=False, eq=False, repr=False)

    @everybody.default
    def _everybody(self) -> frozenset[int]:
        return self.accepted.union(self.latest, *(each.members for each in self.asked))

    @electable.default
    def _electable(self) -> frozenset[int]:
        return self.accepted.intersection(self.latest, *(each.members for each in self.asked))

    @may_be_alone.default
    def _may_be_alone(self) -> bool:
        alone = {self.own_id}
        return alone in (self.accepted, self.latest) or any(each.members == alone for each in self.asked)

    @property
    def replaceable(self) -> bool:
        """Whether the controller may have a set with others, of whom it can elect one, whatever this master wants."""
        heard = (each.members for each in self.asked if each.until < math.inf)
        return self.accepted.union(*heard) != {self.own_id}

    @property
    def latest(self) -> frozenset[int]:
        """The set that is wanted; else the one in force."""
        return self.accepted if self.wanted is None else self.wanted

    def wanting(self, members: frozenset[int]) -> SyncState:
        """Return it once *members* is what the controller is to be asked for; questions that left may come true."""
        asked = tuple(each for each in self.asked if each.until < math.inf or each.members == members)
        return attrs.evolve(self, wanted=None if members == self.accepted else members, asked=asked)

    def asking(self, question: Asked) -> SyncState:
        """Return it when *question* is to leave; of those before it the last of its kind stands for all."""
        before = {(each.members, each.set_epoch): each for each in self.asked}
        return attrs.evolve(self, asked=(*before.values(), question))

    def left(self, question: Asked, until: float) -> SyncState:
        """Return it when *question* has left, which may be accepted *until* then (monotonic seconds)."""
        asked = (attrs.evolve(each, until=until) if each == question else each for each in self.asked)
        return attrs.evolve(self, asked=tuple(asked))

    def refused(self, question: Asked) -> SyncState:
        """Return it after the controller refused *question*, or never got it."""
        return attrs.evolve(self, asked=tuple(each for each in self.asked if each != question))

    def settled(self, asked_at: float, set_epoch: int) -> SyncState:
        """Return it without the questions that were never accepted, nor can be any more.

        Args:
            asked_at: monotonic seconds when a controller was asked that said *set_epoch*.
            set_epoch: of the set in force then: what was to replace it has not.
        """
        asked = tuple(each for each in self.asked if each.until > asked_at or each.set_epoch != set_epoch)
        return self if asked == self.asked else attrs.evolve(self, asked=asked)

    def answered(self, members: frozenset[int], set_epoch: int) -> SyncState:
        """Return it after the controller said its set; one that is older than the known one changes nothing.

        A newer set settles a question. While the one that it was to replace is in force, it may be accepted yet,
        whatever the controller says meanwhile, until its time is over (:meth:`settled`).
        """
        if set_epoch < self.set_epoch:
            return self
        members = members | {self.own_id}
        wanted = None if self.wanted == members else self.wanted
        asked = tuple(each for each in self.asked if each.set_epoch >= set_epoch)
        return SyncState(self.own_id, members, set_epoch, wanted, asked)


def after_report(state: SyncState, broker_id: int, follower: Follower, needed: int, epoch_start: int) -> frozenset[int]:
    """Return the set that is right after a slave reported: with it, when it has caught up.

    Args:
        state: the set as it is.
        broker_id: the slave's persistent id.
        follower: what is known of it after the report.
        needed: what it must have (bytes) before it is counted.
        epoch_start: where the master's own epoch begins (bytes); below it the slave's log may still differ.
    """
    members = state.latest
    reached = follower.acknowledged >= max(needed, epoch_start, follower.mark)
    if follower.learner or broker_id in members or not reached or follower.caught_up == -math.inf:
        return members
    return members | {broker_id}


def after_look(
    state: SyncState, followers: Mapping[int, Follower], master_end: int, now: float, patience_s: float
) -> frozenset[int]:
    """Return the set that is right now: without those that lag, became learners or are not connected.

    Args:
        state: the set as it is.
        followers: the connected slaves.
        master_end: end of the master's log (bytes).
        now: monotonic seconds.
        patience_s: ``haMaxTimeSlaveNotCatchup`` in seconds.
    """
    stays = {
        broker_id
        for broker_id, follower in followers.items()
        if not follower.learner and not follower.lags(master_end, now, patience_s)
    }
    return frozenset((state.latest & stays) | {state.own_id})


def confirm_offset(
    state: SyncState,
    followers: Mapping[int, Follower],
    master_end: int,
    durable: int,
    before: int,
    *,
    all_must_ack: bool,
) -> int:
    """Return up to where readers may see the log (bytes).

    Args:
        state: the set.
        followers: the connected slaves.
        master_end: end of the master's log.
        durable: up to where it survives a loss of the master's power.
        before: the confirm offset until now; it never goes back while the log stays.
        all_must_ack: ``allAckInSyncStateSet``; without it everything written is confirmed, as in the reference.
    """
    if not all_must_ack:
        return master_end
    return max(copied_by_all(state, followers, durable), min(before, master_end))


def copied_by_all(state: SyncState, followers: Mapping[int, Follower], alone: int) -> int:
    """Return the offset (bytes) before which every possible member has everything; 0 while one is not heard.

    Args:
        state: the set.
        followers: what each slave has reported, by broker id.
        alone: up to where the log of a master that may be alone is safe: what its disk has, where that is to be relied
            on, since nobody else could be elected when it has lost its power.
    """
    others = state.everybody - {state.own_id}
    copied = min((_acknowledged(followers, member) for member in others), default=alone)
    return min(copied, alone) if state.may_be_alone else copied


def copied_by(state: SyncState, followers: Mapping[int, Follower], master_end: int, copies: int) -> int:
    """Return the offset (bytes) before which at least *copies* electable replicas, the master included, have all.

    Args:
        state: who is in the set and may be elected.
        followers: what each slave has reported, by broker id.
        master_end: end of the master's log (bytes).
        copies: how many replicas, the master included.
    """
    if copies <= 1:
        return master_end
    known = sorted((_acknowledged(followers, member) for member in state.electable - {state.own_id}), reverse=True)
    return min(known[copies - 2], master_end) if len(known) >= copies - 1 else 0


class Moment(NamedTuple):
    """One reading of both clocks, in seconds. A suspended machine stops the first, not the second."""

    monotonic: float
    wall: float


NEVER = Moment(-math.inf, -math.inf)


def is_proven(proven_at: Moment, left_at: float, now: Moment, trust_s: float) -> bool:
    """Return whether nobody else can be master yet.

    Whoever is elected follows this master no longer. So a member that leaves may have been elected, and only a
    controller that is asked afterwards can say that it was not. One that is cut off leaves no trace; but nobody is
    elected before the controllers have missed this master for a while, or a connection of it to them has ended.

    Args:
        proven_at: when a controller was asked that said that this broker is master.
        left_at: when a possible member of the set was last seen to leave, or a connection to a controller ended
            (monotonic seconds).
        now: both clocks.
        trust_s: how long the word of a controller holds, in seconds.
    """
    age = max(now.monotonic - proven_at.monotonic, now.wall - proven_at.wall)
    return left_at <= proven_at.monotonic and age <= trust_s


def _acknowledged(followers: Mapping[int, Follower], member: int) -> int:
    follower = followers.get(member)
    return 0 if follower is None or follower.learner else max(follower.acknowledged, 0)
