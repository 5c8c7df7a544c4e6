"""The slave's side in controller mode: cuts what its master never had, then appends what the master sends.

One connection: our handshake, the master's with its epochs, the cut, our report, the log. What is cut is decided by
:func:`understudy.ha.switch.epochs.common_end` alone, and the end of what stays is compared byte by byte with the
master's before anything follows it: a history that lies (a damaged file, a store of another group) is found out there.

Two masters of one epoch do not exist, so whoever is the master of our newest epoch has what was confirmed to us. One
that has not is another life of that master, and nothing confirmed is cut for it.

Order on the disk: first the history forgets an epoch, then the log its bytes; first the history knows an epoch, then
the log gets its bytes. So a stop in between leaves bytes that count as of too old an epoch, never of too new a one.

What this slave reports is what it would have after a loss of its power, where ``flushDiskType`` says that each message
is flushed (:attr:`SwitchSettings.sync_flush`); else what it has in memory. When a connection ends, it is made durable:
its master may be gone, and whoever is elected then is the only one who may be.

Source: AutoSwitchHAClient.java. Differs: the report of a slave that flushes each message (the reference's says what it
has in memory); the first report follows the handshake at once (the reference waits for its
heartbeat, 5 s); the whole list of epochs is learned from the handshake, where the reference notes only those it sees in
frames and so can miss some.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from understudy.ha import wire
from understudy.ha.continuity import MismatchError, check_continues
from understudy.ha.following import HaState, Line, MasterFollower
from understudy.ha.overlap import end_of
from understudy.ha.settings import ContinuedLog, HaParameters
from understudy.ha.switch import frames
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.epochs import EpochError, Epochs, common_end, joined
from understudy.ha.switch.frames import EpochTransfer, MasterHandshake, SlaveHandshake
from understudy.ha.switch.settings import SwitchSettings
from understudy.runtime.background import open_background
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("ha.slave")

FLUSH_MS = 1000
"""How long what has been appended is waited for, before what is durable by then is reported."""
HANDSHAKE_SECONDS = 5.0
"""How long a master may take to answer the handshake."""

Frame = MasterHandshake | EpochTransfer


class CutLog(ContinuedLog, Protocol):
    """The part of a message store that is needed here; offsets are bytes."""

    @property
    def flushed_offset(self) -> int: ...
    @property
    def confirmed_before(self) -> int: ...
    @property
    def disk_failed(self) -> bool: ...
    async def flush(self) -> bool: ...
    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool: ...
    async def truncate(self, offset: int) -> int: ...
    async def finish_truncation(self) -> None: ...


class SwitchSlave(MasterFollower[Frame]):
    """Copies the log of an elected master.

    Args:
        world: clock and network.
        store: the log that is written.
        settings: of every slave; may change while it runs.
        history: the epochs of the log.
        switch_settings: of controller mode; may change while it runs.
        own_id: our persistent id.

    Attributes:
        confirm_changed: called with the confirm offset in bytes whenever the master says it.
        cutting: awaited with a position in bytes before the log is cut there.
        healing: awaited, before a master is greeted, with a position in bytes where a master sent something in place of
            lost messages, which it may have got back by now.
        is_named: returns whether the controllers have named a master of an epoch, or of a later one; nothing is cut for
            one that only claims to lead. Has them asked, if they have not.
    """

    _store: CutLog

    def __init__(
        self,
        world: World,
        store: CutLog,
        settings: HaParameters,
        history: EpochFile,
        switch_settings: SwitchSettings,
        own_id: int,
    ) -> None:
        super().__init__(world, store, settings)
        self._history = history
        self._switch = switch_settings
        self._own_id = own_id
        self.confirm_changed: list[Callable[[int], None]] = []
        self.cutting: list[Callable[[int], Awaitable[None]]] = []
        self.healing: Callable[[int], Awaitable[None]] | None = None
        self.is_named: Callable[[int], bool] = lambda epoch: True
        self._grew = Signal()
        self._reporting = trio.Lock()

    def _report_frame(self, offset: int) -> bytes:
        return frames.Report(offset).to_bytes()

    async def _report(self, line: Line[Frame], offset: int) -> None:
        self._check_disk()
        async with self._reporting:  # of what came and of what is durable, in two tasks
            await super()._report(line, offset)

    async def _exchange(self, stream: ByteStream, address: str) -> str:
        self._check_disk()
        if self._switch.sync_flush and not await self._store.flush():
            raise OSError("it could not be made durable")
        try:
            return await self._converse(stream)
        finally:
            await self._store.flush()

    def _check_disk(self) -> None:
        """Report nothing any more once the disk has failed: this slave is to leave the set, or it might be elected."""
        if self._store.disk_failed:
            raise OSError("its disk has failed to flush; replace it and start again")

    async def _converse(self, stream: ByteStream) -> str:
        self._enter(HaState.HANDSHAKE)
        if self.healing is not None and self._store.hole is None and self._store.stand_in is not None:
            await self.healing(self._store.stand_in)
        line: Line[Frame] = Line(stream, frames.MasterFrameReader(), self._world.clock.monotonic())
        hello = SlaveHandshake(self._own_id, self._switch.last_file_only, self._switch.learner)
        await stream.send_all(hello.to_bytes())
        line.last_write = self._world.clock.monotonic()
        line.reported = self._store.max_physical_offset
        greeting: list[Frame] | str | None = None
        with self._world.clock.move_on_after(HANDSHAKE_SECONDS):
            greeting = await self._frames(line, silent=True)  # what we have may be cut yet
        if greeting is None:
            return f"the master did not answer the handshake within {HANDSHAKE_SECONDS:.0f} s"
        if isinstance(greeting, str):
            return f"{greeting} before it answered the handshake: it is no master, or does not know it yet"
        if not isinstance(greeting[0], MasterHandshake):
            raise wire.WireError("the master begins without a handshake")
        await self._cut(greeting[0])
        self._enter(HaState.TRANSFER)
        async with open_background() as nursery:
            if self._switch.sync_flush:
                nursery.start_soon(self._report_flushed, line)
            return await self._copy(line, greeting[0].epochs, greeting[1:])

    async def _report_flushed(self, line: Line[Frame]) -> None:
        """Report what has come to be durable, again and again."""
        store = self._store
        while True:
            end = store.max_physical_offset
            if end <= line.reported:
                await self._grew.wait()
                continue
            await store.wait_flushed(end, FLUSH_MS)
            durable = min(store.flushed_offset, store.max_physical_offset)
            if durable > line.reported:
                try:
                    await self._report(line, durable)
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    return  # who reads says so

    async def _cut(self, master: MasterHandshake) -> None:
        """Cut what the master does not have from our log, and note the epochs of what stays.

        The epoch that begins at its end is one of them: without it an empty log that comes to lead has nothing in
        common with the one of its former master, which has bytes of it.

        Raises:
            MismatchError: no part of our log is known to be of the master's.
        """
        await self._store.finish_truncation()
        end = self._store.max_physical_offset
        await self._history.save(self._history.epochs.within(end))
        if self._is_empty():
            await self._history.save(master.epochs.within(0))
            return
        if not self._history.epochs:
            return  # a log of plain replication: its end is compared, nothing of it is cut
        common = common_end(self._history.epochs, end, master.epochs, master.end)
        if common is None and end <= min((entry.start for entry in master.epochs), default=0):
            return  # the master knows nothing of what we have: our end is compared, nothing of it is cut
        if common is None:
            raise MismatchError(
                f"our log ({_named(self._history.epochs)}, up to {end}) and the master's ({_named(master.epochs)}, up "
                f"to {master.end}) have no epoch in common: nothing was cut. To follow this master, move this store "
                "away and start again"
            )
        if common < max(self._store.min_physical_offset, 0):
            raise MismatchError(
                f"our log begins at {self._store.min_physical_offset}, after {common}, where it parts from the "
                "master's: nothing was cut. To follow this master, move this store away and start again"
            )
        newest, ours = master.epochs.last_epoch, self._history.epochs.last_epoch
        if common < end and newest < ours:
            raise MismatchError(
                f"the master's newest epoch is {newest}, ours is {ours}: it leads no more, and does not know it yet; "
                "nothing was cut"
            )
        if common < end and not self.is_named(newest):
            raise MismatchError(
                f"the master's newest epoch is {newest}, of which no controller has said anything yet: they are asked; "
                "nothing was cut"
            )
        confirmed = min(self._store.confirmed_before, end)
        if common < confirmed and newest == ours:
            raise MismatchError(
                f"the master of epoch {newest} has had all of our log up to {confirmed} confirmed, and has it up to "
                f"{common} only: it leads once more in an epoch in which it has lost messages; nothing was cut"
            )
        if common < end:
            log.warning("what this master never had is cut", ours=end, common=common, epochs=_named(master.epochs))
            for callback in self.cutting:
                await callback(common)
            await self._history.save(self._history.epochs.cut_at(common))
            try:
                await self._store.truncate(common)
            except ValueError as error:
                raise MismatchError(f"our log cannot be cut at {common}: {error}") from None
        await self._note(master.epochs.within(common), self._history.epochs.cut_at(common))

    async def _note(self, epochs: Epochs, ours: Epochs | None = None) -> None:
        """Add the later ones of *epochs* to our history, which forgets those whose bytes were deleted.

        Args:
            epochs: of the master.
            ours: what stays of our history; all of it by default. An epoch without a byte that the master never had is
                none of it, or what comes next would count as of that epoch.
        """
        ours = self._history.epochs if ours is None else ours
        news = tuple(entry for entry in epochs if entry.epoch > ours.last_epoch)
        if news or ours != self._history.epochs:
            first = max(self._store.min_physical_offset, 0)
            await self._history.save(Epochs((*ours.entries, *news)).from_offset(first))

    async def _learn(self, epochs: Epochs) -> None:
        """Complete our history by the *epochs* of a master whose log is ours up to our end: ours may have lost some."""
        whole = joined(self._history.epochs, epochs).from_offset(max(self._store.min_physical_offset, 0))
        await self._history.save(whole)

    async def _copy(self, line: Line[Frame], known: Epochs, first: Sequence[Frame]) -> str:
        """Append what comes; return why the connection ended."""
        store = self._store
        overlap = None if self._is_empty() or store.hole is not None else end_of(store, self._settings.file_bytes)
        await self._report(
            line, 0 if self._is_empty() else store.max_physical_offset if overlap is None else overlap.position
        )
        asked_at, incoming = line.last_write, list(first)
        while True:
            if not incoming:
                received = await self._frames(line)
                if isinstance(received, str):
                    return received
                incoming = received
            transfers, incoming = _transfers(incoming), []
            known = _with_new_epochs(known, transfers)
            plain = [wire.Transfer(each.offset, each.body) for each in transfers if each.offset >= 0]
            if overlap is not None:
                plain = overlap.take(plain, line.last_read - asked_at)
                if not plain:
                    if line.reported < overlap.end:
                        await self._report(line, overlap.end)
                    continue
                await self._learn(known.within(overlap.end))
                overlap = None
            check_continues(plain, store.max_physical_offset, known=not self._is_empty())
            confirmed = transfers[-1].confirm_offset
            for transfer in wire.joined(plain):
                await self._append(transfer, known, confirmed)
            self._tell_confirmed(confirmed)
            if store.max_physical_offset > line.reported and not self._is_empty():
                await self._tell_end(line)

    async def _tell_end(self, line: Line[Frame]) -> None:
        """Report our end, or have it reported once it is durable."""
        if self._switch.sync_flush:
            self._grew.set()
        else:
            await self._report(line, self._store.max_physical_offset)

    async def _append(self, transfer: wire.Transfer, known: Epochs, confirmed: int) -> None:
        self.continued_at = self._world.clock.monotonic()
        self._refusals = 0
        if not transfer.body:
            return
        await self._note(known.cut_at(transfer.offset + len(transfer.body)))
        self._tell_confirmed(confirmed)  # first: what may be seen at once need not be held back
        try:
            self._store.append_raw(transfer.offset, transfer.body)
        except ValueError as error:
            raise MismatchError(f"the master sends from {transfer.offset}: {error}") from None

    def _tell_confirmed(self, offset: int) -> None:
        for callback in self.confirm_changed:
            callback(offset)


def _transfers(received: Sequence[Frame]) -> list[EpochTransfer]:
    found = [each for each in received if isinstance(each, EpochTransfer)]
    if len(found) < len(received):
        raise wire.WireError("the master begins a second handshake in the middle of the transfer")
    return found


def _with_new_epochs(known: Epochs, transfers: Sequence[EpochTransfer]) -> Epochs:
    """Return *known* with what the heads of frames say of later epochs.

    The last frame of an epoch already bears the number of the next one, with a Java master.

    Raises:
        WireError: it is no history.
    """
    for each in transfers:
        if each.epoch > known.last_epoch and each.epoch_start >= 0:
            try:
                known = known.begun(each.epoch, each.epoch_start)
            except EpochError as error:
                raise wire.WireError(f"the master's epochs: {error}") from None
    return known


def _named(epochs: Epochs) -> str:
    rows = [f"{entry.epoch} from {entry.start}" for entry in epochs.entries[-3:]]
    return f"epochs {', '.join(rows)}" if rows else "no epochs"
