"""A master's sync-state set as it lives: slaves report, and what should be asked and what is confirmed follows.

The rules are in :mod:`understudy.ha.switch.sync_state`; this holds their state for one term of one master.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import attrs

from understudy.ha.settings import HaParameters, ReplicatedLog
from understudy.ha.switch import sync_state
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.epochs import EpochEntry
from understudy.ha.switch.frames import MasterHandshake, Report, SlaveFrameReader, SlaveHandshake, header
from understudy.ha.switch.settings import SwitchSettings
from understudy.ha.switch.sync_state import NEVER, Asked, Follower, Moment, SyncState
from understudy.ha.wire import WireError
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("ha.sync_state")

EVERYBODY = 1 << 30
"""The number of copies that stands for all of the sync-state set (``allAckInSyncStateSet``)."""


class SyncStateKeeper:
    """The sync-state set of one master.

    Args:
        clock: monotonic time.
        store: the log that slaves get.
        history: its epochs.
        durable: returns up to where the log survives a loss of power, in bytes; ``None``: all of *store* does.
        settings: may change while it runs.
        own_id: the master's persistent id.
        confirmed: the confirm offset (bytes) until now; ``None`` when readers could see everything.
        members: what the controller says the set is.
        set_epoch: counts its changes.

    Attributes:
        state: the set.
        wanted: called with the set that the controller should be asked for, whenever that changes; must not wait.
        confirm_changed: called with :attr:`limit` whenever it has moved.
        fenced: no slave is served, for another one may be master.
        unconfirmed: the epoch of which the controllers have not heard yet that this master leads; ``None`` once they
            have. Until then they may elect another one as if they had never elected this one.
    """

    def __init__(
        self,
        clock: Clock,
        store: ReplicatedLog,
        history: EpochFile,
        durable: Callable[[], int] | None,
        settings: SwitchSettings,
        own_id: int,
        confirmed: int | None,
        members: frozenset[int] = frozenset(),
        set_epoch: int = 0,
    ) -> None:
        self._clock = clock
        self._store = store
        self.history = history
        self._durable = durable
        self._settings = settings
        self._limit = confirmed
        self._followers: dict[int, Follower] = {}
        self._newest: dict[int, SwitchConversation] = {}
        self._proven_at = NEVER
        self._left_at = self._doubted_at = -math.inf
        self.state = SyncState(own_id, members | {own_id}, set_epoch)
        self.wanted: list[Callable[[frozenset[int]], None]] = []
        self.confirm_changed: list[Callable[[int | None], None]] = []
        self.fenced = False
        self.unconfirmed: int | None = None

    # --- what a broker asks --------------------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """Up to where readers may see the log, in bytes."""
        end = self._store.max_physical_offset
        before = end if self._limit is None else self._limit
        if self.unconfirmed is not None and self._settings.all_must_ack:
            return min(before, end)
        return sync_state.confirm_offset(
            self.state, self._followers, end, self._end_alone, before, all_must_ack=self._settings.all_must_ack
        )

    @property
    def limit(self) -> int | None:
        """The confirm offset; ``None`` where it is the end of the log, whatever is appended."""
        safe_alone = self._durable is None and self.state.everybody == {self.state.own_id} and self.unconfirmed is None
        return None if safe_alone or not self._settings.all_must_ack else self.confirm_offset

    @property
    def waits_for_disk(self) -> bool:
        """Whether this master may be alone in its set, and something of its log is not on its disk yet.

        Nothing of that is acknowledged or shown.
        """
        return self.state.may_be_alone and self._settings.all_must_ack and not self.is_durable

    @property
    def is_durable(self) -> bool:
        """Whether the whole log survives a loss of power."""
        return self._end_alone >= self._store.max_physical_offset

    @property
    def _end_alone(self) -> int:
        """Up to where the log is safe without any slave."""
        end = self._store.max_physical_offset
        return end if self._durable is None else min(self._durable(), end)

    @property
    def followers(self) -> Collection[int]:
        """The persistent ids of the connected slaves."""
        return self._followers.keys()

    @property
    def copying(self) -> Collection[int]:
        """The persistent ids of the slaves that have reported where their logs end."""
        return {broker_id for broker_id, follower in self._followers.items() if follower.acknowledged >= 0}

    def copied(self, copies: int) -> int:
        """Return the offset in bytes before which *copies* replicas have everything; :data:`EVERYBODY` for all."""
        if self.unconfirmed is not None:
            return 0
        end = self._store.max_physical_offset
        everybody = copies == EVERYBODY
        if everybody and self._settings.all_must_ack:
            return sync_state.copied_by_all(self.state, self._followers, self._end_alone)
        wanted = self._settings.copies if everybody else copies
        enough = sync_state.copied_by(self.state, self._followers, end, wanted)
        return enough if self.proven else min(enough, sync_state.copied_by_all(self.state, self._followers, end))

    def update(self) -> None:
        """Take note that the disk has more than before, or that a setting was changed."""
        self._confirm()

    @property
    def proven(self) -> bool:
        """Whether nobody else can be master yet; else only what all possible members have is safe."""
        now = Moment(self._clock.monotonic(), self._clock.wall_ms() / 1000)
        missed_at = max(self._left_at, self._doubted_at)
        return sync_state.is_proven(self._proven_at, missed_at, now, self._settings.trust_s)

    @property
    def forsaken(self) -> bool:
        """Whether nothing can be acknowledged: no controller says that this is the master.

        And a member is away, or they have not heard yet that it leads: neither can they now.
        """
        silent = self._clock.monotonic() - max(self._proven_at.monotonic, self._left_at)
        away = self.state.everybody - self._followers.keys() - {self.state.own_id}
        waits = bool(away) or self.unconfirmed is not None
        return waits and silent > self._settings.trust_s and not self.proven

    def doubt(self) -> None:
        """Take note that a controller may have missed this master: it proves nothing before one is asked again."""
        self._doubted_at = self._clock.monotonic()

    def confirmed(self, epoch: int) -> None:
        """Take note that the controllers have heard that this master leads in *epoch*."""
        if self.unconfirmed is not None and epoch >= self.unconfirmed:
            self.unconfirmed = None
            self._confirm()

    def prove(self, asked_at: Moment, set_epoch: int) -> None:
        """Take note that a controller, asked at *asked_at*, said that this broker is master, and how old the set is.

        Args:
            asked_at: when it was asked.
            set_epoch: what it said of the set.
        """
        self._proven_at = max(self._proven_at, asked_at)
        settled = self.state.settled(asked_at.monotonic, set_epoch)
        if settled != self.state:
            self.state = settled
            self._confirm()

    def asking(self, members: frozenset[int], set_epoch: int) -> Asked:
        """Take note that the controller is about to be asked for *members*, unless others are wanted before it is.

        Args:
            members: the set.
            set_epoch: of the set that it is to replace.
        """
        question = Asked(members, set_epoch, math.inf)
        self.state = self.state.asking(question)
        self._confirm()
        return question

    def leaves(self, question: Asked) -> Asked | None:
        """Take note that *question* leaves: from now on who is in it may be elected any moment.

        So where a message is shown once all of the set have it, nothing of that may be missing to who comes in. It will
        not for long: they are counted, and nothing is confirmed that they lack, since the question is decided.

        Returns:
            What it is called from now on; ``None``: another set is wanted by now, or who comes in lacks something that
            is confirmed; it must not leave.
        """
        if question not in self.state.asked:
            return None
        joining = question.members - self.state.accepted
        if self._settings.all_must_ack and any(self._lacks_confirmed(each) for each in joining):
            self.refused(question)
            return None
        until = self._clock.monotonic() + self._settings.asked_s
        self.state = self.state.left(question, until)
        return attrs.evolve(question, until=until)

    def _lacks_confirmed(self, broker_id: int) -> bool:
        follower = self._followers.get(broker_id)
        return follower is None or follower.acknowledged < self.confirm_offset

    def refused(self, question: Asked) -> None:
        """Take note that the controller refused *question*, or never got it."""
        self.state = self.state.refused(question)
        self._confirm()

    def retire(self) -> None:
        """Know that this is no master any more: what it was about to ask is not asked."""
        self.state = self.state.wanting(self.state.accepted)

    def accepted(self, members: frozenset[int], set_epoch: int) -> None:
        """Take what the controller says the set is."""
        before, self.state = self.state, self.state.answered(members, set_epoch)
        if before.accepted != self.state.accepted:
            log.info("sync-state set", members=sorted(self.state.accepted), set_epoch=set_epoch)
        self._confirm()

    def look(self) -> frozenset[int]:
        """Return the set that is right now; the controller is to be asked for it when it is not the one in force."""
        members = sync_state.after_look(
            self.state,
            self._followers,
            self._store.max_physical_offset,
            self._clock.monotonic(),
            self._settings.patience_s,
        )
        self.state = self.state.wanting(members)
        self._confirm()
        return members

    # --- what slaves say -----------------------------------------------------------------------------------------

    def converse(self) -> SwitchConversation:
        """Return what speaks with a slave that has just connected."""
        return SwitchConversation(self)

    def greeted(self, conversation: SwitchConversation, handshake: SlaveHandshake) -> MasterHandshake:
        """Take the first frame of a slave; its former connections count no more.

        It may have another life than the one that a former connection still seems to serve, and have lost something
        between them: it leaves the set, and comes back with its reports.

        Raises:
            WireError: it is not served.
        """
        if self.fenced:
            raise WireError("this broker does not know whether it is still the master; the slave is to ask again")
        if handshake.broker_id == self.state.own_id:
            raise WireError(f"the slave has broker id {handshake.broker_id}, which is this master's own")
        former = self._newest.get(handshake.broker_id, conversation)
        self._newest[handshake.broker_id] = conversation
        self._followers[handshake.broker_id] = Follower(learner=handshake.learner)
        if former is not conversation:
            self._leave(handshake.broker_id)
        end = self._store.max_physical_offset
        return MasterHandshake(end, self.history.epochs.within(end))

    def sent(self, conversation: SwitchConversation, broker_id: int, master_end: int) -> None:
        """Take note that a slave is sent something."""
        if self._newest.get(broker_id) is conversation:
            self._followers[broker_id] = self._followers[broker_id].sent(master_end, self._clock.monotonic())

    def reported(self, conversation: SwitchConversation, broker_id: int, offset: int, master_end: int) -> None:
        """Take a slave's report.

        Args:
            conversation: the connection that it came over; one that a newer one has replaced counts no more.
            broker_id: of the slave.
            offset: byte before which the slave has everything.
            master_end: end of the master's log (bytes) when the report came.
        """
        if self._newest.get(broker_id) is not conversation:
            return
        now = self._clock.monotonic()
        follower = self._followers[broker_id].reported(offset, master_end, now)
        self._followers[broker_id] = follower
        last = self.history.epochs.entries[-1:]
        start = last[0].start if last else 0
        # Under steady traffic nobody ever has everything: who is close counts from now on, see leaves().
        needed = follower.mark if follower.is_close(now) else self.confirm_offset
        self._ask(sync_state.after_report(self.state, broker_id, follower, needed, start))
        self._confirm()

    def ended(self, conversation: SwitchConversation, broker_id: int) -> None:
        """Take note that a slave is gone: it leaves the set at once."""
        if self._newest.get(broker_id) is conversation:
            del self._newest[broker_id], self._followers[broker_id]
            self._leave(broker_id)

    def _leave(self, broker_id: int) -> None:
        if broker_id in self.state.everybody:
            self._left_at = self._clock.monotonic()
        self._ask(self.state.latest - {broker_id})

    def _ask(self, members: frozenset[int]) -> None:
        if members == self.state.latest:
            return
        self._confirm()  # what was acknowledged until now counts, whatever those have who are counted from now on
        self.state = self.state.wanting(members)
        self._confirm()
        for callback in self.wanted:
            callback(members)

    def _confirm(self) -> None:
        now = self.limit
        if now != self._limit:
            self._limit = now
            for callback in self.confirm_changed:
                callback(now)


class SwitchConversation:
    """Controller mode on one connection: a handshake with epochs, then frames of one epoch each."""

    undecided = False

    def __init__(self, keeper: SyncStateKeeper) -> None:
        self._keeper = keeper
        self._reader = SlaveFrameReader()
        self._handshake: SlaveHandshake | None = None
        self._answered = self._transferring = False
        self._told_confirm = -1
        self.reply = b""

    @property
    def in_sync(self) -> bool:
        return self._handshake is not None and self._handshake.broker_id in self._keeper.state.accepted

    @property
    def has_news(self) -> bool:
        return self._keeper.limit not in (None, self._told_confirm)

    def feed(self, data: bytes | None) -> int | None:
        offset = None
        self._answered = self._answered or (self._handshake is not None and not self.reply)
        for frame in self._reader.feed(data or b""):
            if isinstance(frame, Report):
                if self._handshake is None:
                    raise WireError("the slave reports before its handshake")
                if not self._answered:  # it may have what is to be cut
                    raise WireError("the slave reports before it was answered what this master has")
                offset = frame.offset if offset is None else max(offset, frame.offset)
                self._transferring = True
                continue
            if self._transferring:
                raise WireError("the slave begins a second handshake in the middle of the transfer")
            if self._handshake not in (None, frame):
                raise WireError(f"the slave of broker id {self._handshake.broker_id} greets anew as another one")
            self._handshake = frame
            self.reply = self._keeper.greeted(self, frame).to_bytes()
        return offset

    def whole_log(self, settings: HaParameters) -> bool:
        return self._handshake is None or not self._handshake.last_file_only

    def bytes_until_border(self, offset: int) -> int:
        epochs = self._keeper.history.epochs
        entry = epochs.at(offset)
        return (
            (epochs.entries[0].start if epochs else offset + (1 << 62)) - offset
            if entry is None
            else (epochs.end_of(entry) - offset)
        )

    def header(self, offset: int, body_bytes: int) -> bytes:
        epochs = self._keeper.history.epochs
        entry = epochs.at(offset) or (epochs.entries[0] if epochs else EpochEntry(0, 0))
        self._told_confirm = self._keeper.confirm_offset
        return header(offset, body_bytes, entry, self._told_confirm)

    def sent(self, master_end: int) -> None:
        if self._handshake is not None:
            self._keeper.sent(self, self._handshake.broker_id, master_end)

    def reported(self, offset: int, master_end: int) -> None:
        if self._handshake is not None:
            self._keeper.reported(self, self._handshake.broker_id, offset, master_end)

    def ended(self) -> None:
        if self._handshake is not None:
            self._keeper.ended(self, self._handshake.broker_id)
