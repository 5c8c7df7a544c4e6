"""One broker's part in replication when a controller elects its master: epochs, the sync-state set, the confirm offset.

The controller's side of it (who is master, what the set is) is :mod:`understudy.broker.led`, which hands in what was
decided and is told what should be decided. The two meet here and nowhere else.

Source: AutoSwitchHAService.java, DefaultMessageStore.getConfirmOffset.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Sequence
from typing import Any

import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.giving_way import why_to_give_way
from understudy.broker.identity import Identity
from understudy.broker.replication import Replication
from understudy.broker.role import Role
from understudy.broker.storage import BrokerStartError
from understudy.broker.switch_epochs import (
    begin_epoch,
    cut_at_hole,
    first_byte,
    flush_all,
    hide_unconfirmed,
    prepare_to_lead,
)
from understudy.broker.switch_question import SetQuestion
from understudy.broker.switch_settings import KeyedSwitchSettings
from understudy.ha.following import MasterFollower
from understudy.ha.master import HaMaster
from understudy.ha.settings import ReplicatedLog
from understudy.ha.switch.epoch_file import FILE_NAME, EpochFile, EpochFileError
from understudy.ha.switch.epochs import NO_EPOCH, EpochRow
from understudy.ha.switch.keeper import EVERYBODY, SyncStateKeeper
from understudy.ha.switch.sync_state import NEVER, Moment
from understudy.runtime.signal import Signal
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

FLUSH_MS = 1000
"""How long a lone master waits for its disk before it looks again whether it is still alone."""


class SwitchReplication(Replication):
    """Replication of one broker that a controller leads.

    Attributes:
        own_id: persistent id, set before the first role.
        sync_state_wanted: called with the set that the controller should be asked for; must not wait.
        commanded: address of the master that the controllers named, ``None`` before they have: nobody else is followed,
            whatever name servers show.
        log_is_short: the log, as it was opened, lacked bytes that it is known to have had.
        epoch_claimed: called with the epoch of a master's log of which the controllers have said nothing yet.
        registered: says of an IP address whether a replica that the controllers know is there.
    """

    def __init__(self, world: World, options: BrokerOptions, identity: Identity) -> None:
        super().__init__(world, options, identity)
        self._switch = KeyedSwitchSettings(options)
        self._history: EpochFile | None = None
        self._keeper: SyncStateKeeper | None = None
        self._fenced = True
        self._disk_wanted = Signal()
        self._appointed: tuple[frozenset[int], int, Moment] = (frozenset(), 0, NEVER)
        self._unconfirmed: int | None = None
        self._epoch_begins: int | None = None
        self._former_epoch = NO_EPOCH  # of the log as it was opened: in it, this broker may have led in a former life
        self.own_id = 0
        self.commanded: str | None = None
        self.log_is_short = False
        self.sync_state_wanted: list[Callable[[frozenset[int]], None]] = []
        self.epoch_claimed: list[Callable[[int], None]] = []
        self.registered: Callable[[str], bool] = lambda host: False

    # --- lifetime ------------------------------------------------------------------------------------------------

    def open(self, store: MessageStore) -> None:
        """Take *store* and read the epochs beside it. Raises ``BrokerStartError``: they cannot be read."""
        super().open(store)
        self.log_is_short = store.max_physical_offset < store.confirmed_before
        keys = self._options.store
        path = keys.store_path_epoch_file or os.path.join(keys.store_path_root_dir, FILE_NAME)
        self._history = EpochFile(self._world.disk, path)
        try:
            self._history.load()
        except EpochFileError as error:
            raise BrokerStartError(str(error)) from None
        self._former_epoch = self._history.epochs.last_epoch  # though the bytes of it may be lost
        history = self._history.epochs = self._history.epochs.within(store.max_physical_offset)
        if self._switch.all_must_ack and (history or self._history.lost):
            hide_unconfirmed(store, history.entries[0].start if history else 0)

    async def prepare(self, role: Role) -> None:
        """Begin an epoch for a master: whole records only, all of them durable, and the epoch noted.

        A slave's log ends where it lacks something: its master has it, and what follows, too.

        Raises ``OSError``: nothing of it is true; the epoch, for one, is of a former life of this broker: slaves could
        not tell what was written then from what would be written now.
        """
        store = self._log
        if role.is_slave:
            if store.hole is not None:
                await cut_at_hole(self._epochs, store, store.hole)
            return
        if role.epoch <= self._former_epoch:
            raise OSError(f"epoch {role.epoch} is no new one: the log had {self._former_epoch} when it was opened")
        await prepare_to_lead(store)
        await begin_epoch(self._epochs, store, role.epoch, store.max_physical_offset)

    def begin(self) -> None:
        """Open the side of the role in force; what readers may see is what is confirmed."""
        super().begin()
        store, keeper = self._log, self._keeper
        if keeper is not None:
            store.set_confirmed(keeper.limit)
        elif self._switch.all_must_ack:
            store.set_confirmed(min(store.confirmed_before, store.max_physical_offset))
        store.set_writable(keeper is not None and not self._fenced)

    def end(self) -> None:
        """Close the side of a role whose session has ended."""
        super().end()
        if self._keeper is not None:
            self._keeper.retire()
        self._keeper = None

    def _make_master(self, log_to_give: ReplicatedLog) -> HaMaster:
        store = self._log
        limited = self._switch.all_must_ack
        before = min(store.confirmed_before, store.max_physical_offset) if limited else None
        members, set_epoch, proven_at = self._appointed
        durable = (lambda: store.flushed_offset) if log_to_give is store else None
        keeper = SyncStateKeeper(
            self._world.clock, log_to_give, self._epochs, durable, self._switch, self.own_id, before, members, set_epoch
        )
        keeper.prove(proven_at, set_epoch)
        keeper.fenced, keeper.unconfirmed = self._fenced, self._unconfirmed
        keeper.confirm_changed.append(self._confirmed)
        keeper.wanted.append(self._want)
        self._keeper = keeper
        return HaMaster(self._world, log_to_give, self._parameters, "", 0, self._listener, converse=keeper.converse)

    def _admits(self, host: str) -> bool:
        registered = not self._options.store.ha_registered_slaves_only or self.registered(host)
        return registered and super()._admits(host)

    def _make_slave(self, store: MessageStore) -> MasterFollower[Any]:
        from understudy.ha.switch.slave import SwitchSlave  # a master starts without it

        slave = SwitchSlave(self._world, store, self._parameters, self._epochs, self._switch, self.own_id)
        slave.confirm_changed.append(self._confirmed_by_master)
        slave.cutting = self.cutting
        slave.healing = self._heal
        slave.is_named = self._is_named
        return slave

    def _is_named(self, epoch: int) -> bool:
        named = epoch <= self._identity.role.epoch
        for callback in () if named else self.epoch_claimed:
            callback(epoch)
        return named

    async def _heal(self, hole: int) -> None:
        if self.healing is not None:
            await self.healing(hole)

    @property
    def _log(self) -> MessageStore:
        assert self._store is not None  # opened before a role begins
        return self._store

    @property
    def _epochs(self) -> EpochFile:
        assert self._history is not None  # opened before a role begins
        return self._history

    def follow(self, master_address: str | None, ha_address: str | None) -> None:
        """Learn where the log of the commanded master is; any other is not followed.

        Nor is anybody before there is one: a former master that does not know of its successor yet, and that name
        servers still show, would have what it never had cut from the only log that has it.
        """
        if self.commanded is not None and master_address == self.commanded:
            super().follow(master_address, ha_address)

    def lose_master(self) -> None:
        """Take no notice of it: the controllers say who is master, not the name servers."""

    def _fixed_address(self) -> str | None:
        return None  # who is master changes, whatever ``haMasterAddress`` says

    # --- what the controller's side asks and says ----------------------------------------------------------------

    def last_epoch(self) -> int:
        """Return the newest epoch of the log; -1 without any."""
        return self._epochs.epochs.last_epoch

    def max_offset(self) -> int:
        """Return the end of the log in bytes."""
        return self._log.max_physical_offset

    def confirm_offset(self) -> int:
        """Return up to where readers may see the log, in bytes."""
        return self._keeper.confirm_offset if self._keeper is not None else self._log.confirm_offset

    def epochs(self) -> Sequence[EpochRow]:
        """Return the epochs of the log, oldest first: those whose bytes were deleted are none."""
        return self._epochs.epochs.from_offset(first_byte(self._log)).rows()

    @property
    def gives_up(self) -> str:
        """See :attr:`understudy.broker.led.replication.LedReplication.gives_up`."""
        patience_s = self._options.broker.controller_heart_beat_timeout_mills / 1000
        return why_to_give_way(self._keeper, self._log, patience_s, sync_flush=self._switch.sync_flush)

    async def same_role(self, epoch: int) -> None:
        """Go on as before in a newer *epoch*: connections and session stay. Raises ``OSError``."""
        keeper, store = self._keeper, self._log
        if self.slave is not None:
            self.slave.try_now()  # it may have waited for the controllers to name this epoch
        if keeper is None or epoch <= self._epochs.epochs.last_epoch:
            return
        keeper.unconfirmed = epoch
        await flush_all(store)
        # What is written from here on is of the new epoch: slaves are not to get it as of the one before.
        self._epoch_begins = store.max_physical_offset
        self._withhold()
        try:
            await begin_epoch(self._epochs, store, epoch, self._epoch_begins)
        finally:
            self._epoch_begins = None
            self._withhold()

    def _withhold(self) -> None:
        if self.master is not None:
            starts = (self._log.hole if self._hole_withheld else None, self._epoch_begins)
            self.master.withhold(min((each for each in starts if each is not None), default=None))

    @property
    def trust_s(self) -> float:
        """How long the word of a controller that this is the master holds, in seconds."""
        return self._switch.trust_s

    def appoint(self, epoch: int, members: frozenset[int], set_epoch: int, proven_at: Moment) -> None:
        """See :meth:`understudy.broker.led.replication.LedReplication.appoint`."""
        self._appointed, self._unconfirmed = (members, set_epoch, proven_at), epoch

    def confirmed(self, epoch: int) -> None:
        """Take note that the controllers have heard that this broker leads in *epoch*; before, others may yet."""
        if self._keeper is not None:
            self._keeper.confirmed(epoch)
            self._tell_copies()

    def prove(self, asked_at: Moment, set_epoch: int) -> None:
        """Take note that a controller, asked at *asked_at*, said that this broker is master, and the set's epoch."""
        if self._keeper is not None:
            self._keeper.prove(asked_at, set_epoch)
            self._tell_copies()

    def doubt(self) -> None:
        """Take note that a controller may have missed this broker: what was said before proves nothing."""
        if self._keeper is not None:
            self._keeper.doubt()

    def followers(self) -> Collection[int]:
        """Return the persistent ids of the slaves that are connected to this master; on a slave nobody."""
        return self._keeper.followers if self._keeper is not None else ()

    def copying(self) -> Collection[int]:
        """Return the persistent ids of the slaves that have reported: what this master never had is cut off there."""
        return self._keeper.copying if self._keeper is not None else ()

    def set_sync_state(self, members: frozenset[int], set_epoch: int) -> None:
        """Take the set that the controller has; without effect on a slave."""
        if self._keeper is not None:
            self._keeper.accepted(members, set_epoch)
            self._tell_copies()

    def asking(self, members: frozenset[int], set_epoch: int) -> SetQuestion | None:
        """Know that the controller is to be asked for *members* in the place of the set of *set_epoch*.

        Unless another set has come to be wanted since that was decided: without one of *members*, what is acknowledged
        need not be there any more.
        """
        if self._keeper is None or members not in (self._keeper.state.latest, self._keeper.state.accepted):
            return None
        log_to_flush = self._log if self._switch.all_must_ack else None
        question = SetQuestion(self._keeper, members, set_epoch, log_to_flush, self._tell_copies)
        self._tell_copies()
        return question

    def wanted_sync_state(self) -> frozenset[int]:
        """Return the set that is right now, this broker included; on a slave nobody but it."""
        if self._keeper is None:
            return frozenset({self.own_id})
        before = self._keeper.state
        members = self._keeper.look()
        if self._keeper.state != before:
            self._tell_copies()
        return members

    def set_fenced(self, fenced: bool) -> None:
        """Serve no slave and take no message while it is not known who is master."""
        self._fenced = fenced
        if self._keeper is not None:
            self._keeper.fenced = fenced
        if self._store is not None:
            self._store.set_writable(self._keeper is not None and not fenced)

    # --- copies --------------------------------------------------------------------------------------------------

    def copies_needed(self) -> int | None:
        """Return how many copies a send needs now; ``None``: refuse it before it is written."""
        keeper, keys = self._keeper, self._options.store
        if keeper is None:
            return 1
        if len(keeper.state.electable) < keys.min_in_sync_replicas or keeper.forsaken:
            return None
        if not keys.all_ack_in_sync_state_set and keeper.proven and keeper.unconfirmed is None:
            return keys.in_sync_replicas
        if keys.all_ack_in_sync_state_set or len(keeper.state.everybody) > 1 or keeper.unconfirmed is not None:
            return EVERYBODY
        return keys.in_sync_replicas

    def copies_in_reach(self) -> int | None:
        """Return how many copies a due message needs now; ``None``: too few are in sync, put nothing."""
        copies, keeper = self.copies_needed(), self._keeper
        if copies in (None, EVERYBODY) or keeper is None:
            return copies
        return min(copies or 1, len(keeper.state.electable))

    def copied(self, copies: int) -> int:
        """Return the offset in bytes before which at least *copies* replicas, this one included, have everything."""
        return self._keeper.copied(copies) if self._keeper is not None else 0

    # --- the disk of a lone master --------------------------------------------------------------------------------

    async def run_master(self) -> None:
        """Give the log to slaves until cancelled; while there may be none in the set, have it durable at once."""
        store = self._log
        store.hidden_grew.append(self._look_at_disk)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(super().run_master)
                nursery.start_soon(self._keep_durable_alone)
        finally:
            store.hidden_grew.remove(self._look_at_disk)

    async def _keep_durable_alone(self) -> None:
        while (keeper := self._keeper) is not None:
            if not keeper.waits_for_disk:
                await self._disk_wanted.wait()
                continue
            # What one sync has is confirmed, though there may be more by then.
            await self._log.wait_flushed(self._log.max_physical_offset, FLUSH_MS)
            keeper.update()
            super()._tell_copies()

    @property
    def waits_for_disk(self) -> bool:
        """Whether sends wait for the disk, for this master may be alone in its set."""
        return self._keeper is not None and self._keeper.waits_for_disk

    def settings_changed(self) -> None:
        """Take what may change while a role lasts."""
        super().settings_changed()
        if self._keeper is not None:
            self._keeper.update()
            self._tell_copies()

    def log_grew(self) -> None:
        """Wake transfers to slaves, and who waits for the disk."""
        self._look_at_disk()
        super().log_grew()

    def _look_at_disk(self) -> None:
        if self._keeper is not None and self._keeper.waits_for_disk:
            self._disk_wanted.set()

    def _tell_copies(self) -> None:
        self._look_at_disk()  # this master may have come to be alone
        super()._tell_copies()

    # --- inside --------------------------------------------------------------------------------------------------

    def _want(self, members: frozenset[int]) -> None:
        self._tell_copies()
        for callback in self.sync_state_wanted:
            callback(members)

    def _confirmed(self, limit: int | None) -> None:
        self._log.set_confirmed(limit)
        self.log_grew()  # slaves are told

    def _confirmed_by_master(self, offset: int) -> None:
        # The log is that of a master that the controllers named: of what it never had nothing is left, nor the epochs.
        self._former_epoch = min(self._former_epoch, self.last_epoch())
        store = self._log
        known = min(max(offset, store.confirmed_before), store.max_physical_offset)
        store.set_confirmed(known if self._switch.all_must_ack else None)
