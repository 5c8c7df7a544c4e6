"""The slave's side of plain replication: appends what the master sends when it continues our log."""

from __future__ import annotations

from understudy.ha import wire
from understudy.ha.continuity import MismatchError, check_continues
from understudy.ha.following import CLOSED, HaState, Line, MasterFollower
from understudy.ha.healing import PROBE_BYTES, Look, LookResult, Step, from_first_byte, next_step, probe
from understudy.ha.hole_filling import HoleFilling
from understudy.ha.overlap import Overlap, end_of
from understudy.ha.settings import ContinuedLog, HaParameters
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.world import World

log = get_logger("ha.slave")

_HOLE_GONE = "the file with the hole was deleted meanwhile"
STAND_IN_SECONDS = 600.0
"""So often a master is asked whether it has what it sent something in place of: nobody tells a slave."""


class HaSlave(MasterFollower[wire.Transfer]):
    """Copies the master's log; see :class:`~understudy.ha.following.MasterFollower`."""

    def __init__(self, world: World, store: ContinuedLog, settings: HaParameters) -> None:
        super().__init__(world, store, settings)
        self._step = Step.CONTINUE
        self._begins_anew = False
        self._looked: LookResult | None = None
        self._unhealed: tuple[str, int] | None = None
        self._dropped_by: str | None = None
        self._lacked: int | None = None
        self._doubted: tuple[str, int] | None = None
        self._serves: tuple[str, int] | None = None
        self._looks_again = False

    @property
    def messages_missing(self) -> bool:
        """See :class:`~understudy.ha.following.MasterFollower`."""
        return self._store.hole is not None and self._store.hole != self._lacked

    def _missing(self) -> int | None:
        """Where the first hole is, or what the master sent in place of messages that it may have got back by now."""
        return self._store.stand_in if self._store.hole is None else self._store.hole

    def _to_probe(self, address: str | None) -> int | None:
        """Where a void record is in place of which the master at *address* may have something that fits our log."""
        stand_in = self._store.stand_in
        return None if self._store.hole is not None or self._unhealed == (address, stand_in) else stand_in

    def _report_frame(self, offset: int) -> bytes:
        return wire.report(offset)

    def _joined(self, frames: list[wire.Transfer]) -> list[wire.Transfer]:
        return wire.joined(frames)

    def _before_connecting(self, address: str) -> None:
        looked, self._looked, self._looks_again = self._looked, None, False
        copied = self._store.hole is None
        missing = self._to_probe(address) if copied else self._store.hole
        self._step = next_step(missing, self._store.max_physical_offset, address, looked, copied=copied)

    @property
    def _asks_at_once(self) -> bool:
        return self._looked is not None or self._looks_again

    async def _exchange(self, stream: ByteStream, address: str) -> str:
        self._enter(HaState.TRANSFER)
        step = self._step
        looks = step in (Step.LOOK, Step.PROBE)
        return await (self._look(stream, address) if looks else self._copy(stream, step))

    async def _look(self, stream: ByteStream, address: str) -> str:
        """See whether the master can fill the hole in our log; nothing is written. Return why the connection ended."""
        store, step = self._store, self._step
        hole, end = self._missing(), store.max_physical_offset
        if hole is None:  # its file grew too old while the connection was made
            return _HOLE_GONE
        if step is Step.PROBE:
            look = probe(hole, bytes(store.slice(hole, PROBE_BYTES)))
        else:
            look = Look(hole, end, store.repair(hole).differs_at)
        line = Line(stream, wire.TransferReader(), self._world.clock.monotonic())
        await self._report(line, max(hole, 1))
        while True:
            frames = await self._frames(line)
            if isinstance(frames, str):
                if line.heard or frames != CLOSED:
                    return frames
                frames, found = [], "it closed the connection: it stops, or it has deleted these files"
                look.unsure = True
            else:
                found = None
            try:
                for frame in from_first_byte(frames) if hole == 0 else frames:
                    found = look.take(frame)
                    if found is not None:
                        break
            except ValueError:
                return _HOLE_GONE
            if found is not None:
                break
        if self._missing() != hole:  # what differs may be only that nothing is there any more
            return _HOLE_GONE
        if step is Step.PROBE:
            why_not = found if look.unsure else "" if found else "it has the same"
            self._looked = LookResult(address, hole, end, why_not, is_probe=True)
            return f"in place of the void record at {hole} {found or why_not}"
        self._looked = LookResult(address, hole, end, found)
        if not found:
            return "it can fill the hole"
        if look.unsure and self._serves != (address, hole):
            self._doubted = (address, hole)
            return f"it is open whether it can fill the hole: {found}"
        self._lacked = hole
        if self._unhealed != (address, hole):  # once, not at every try
            self._unhealed = (address, hole)
            log.warning(
                "messages are missing in the log, and this master cannot give them; this slave goes on with what it "
                "has. For a complete copy move its store away and start again",
                missing_from=hole,
                master=address,
                why=found,
            )
        return "it cannot fill the hole"

    async def _copy(self, stream: ByteStream, step: Step) -> str:
        """Exchange frames; return why the connection ended."""
        store = self._store
        healing = None
        if step is Step.CONTINUE:
            store.drop_incomplete()  # the master may have lost the rest, and then goes on before it
        if step is Step.HEAL:
            hole = self._missing()
            if hole is None:  # its file grew too old while the connection was made
                return _HOLE_GONE
            healing = HoleFilling(hole, store.max_physical_offset, store.repair(hole))
            log.warning("writing what is missing from the first hole of the log on", hole=hole, end=healing.end)
        hole_before = store.hole
        line = Line(stream, wire.TransferReader(), self._world.clock.monotonic())
        anew = self._begins_anew and self._is_empty()
        overlap = self._overlap() if healing is None else None
        began_at = line.last_write
        has_shown = overlap is not None  # that it has our end; who withholds its own says as little as who lacks it
        first = store.max_physical_offset if healing is None else healing.position
        if overlap is not None:
            first = overlap.position
        # At once; the reference waits for its first heartbeat.
        await self._report(line, 0 if anew else first if healing is None else max(first, 1))
        asked_at = line.last_write
        while True:
            heard = line.heard
            frames = await self._frames(line)
            if isinstance(frames, str):
                if frames == CLOSED and (overlap is not None or not heard):
                    self._closed_at_once(line.reported if overlap is None else overlap.end)
                return frames
            if healing is not None and first == 0:
                frames = from_first_byte(frames)
            if healing is None and store.hole not in (None, hole_before):
                return "another hole is the first one of our log now"
            if not heard and frames[0].offset != first:
                wire.refuse_master_handshake(frames[0])
            if overlap is not None:
                frames = overlap.take(frames, line.last_read - asked_at)
                if not frames:
                    if line.reported < overlap.end:
                        await self._report(line, overlap.end)  # a master that has less refuses it
                    continue
                overlap = None
            end = store.max_physical_offset if healing is None else healing.position
            check_continues(frames, end, known=healing is not None or not self._is_empty())
            if healing is not None:
                frames = await healing.take(frames)
                if healing.position < healing.end:
                    if healing.why_not:
                        return healing.why_not
                    continue
                self._lacked = hole_before = store.hole  # what the master lacks as well
                log.info("the log has all that the master's has", missing_from=first, end=healing.end, hole=hole_before)
                healing = None
            for frame in frames:
                self._apply(frame)
            if store.max_physical_offset > line.reported and not self._is_empty():
                await self._report(line, store.max_physical_offset)
            if line.last_read - began_at > STAND_IN_SECONDS and self._to_probe(self._connected_to) is not None:
                self._looks_again = True
                return "it may have by now what it sent something in place of"
            has_shown = has_shown or any(frame.body for frame in frames)
            if has_shown and self._doubted is not None and self._doubted == (self._connected_to, store.hole):
                self._serves, self._doubted, self._looks_again = self._doubted, None, True
                return "it continues our log, and is asked once more for what is missing"

    def _overlap(self) -> Overlap | None:
        """Return the end of our log for a comparison, as far as there is no damage in it; ``None`` without one."""
        if self._is_empty():
            return None
        intact_from = 0 if self._store.hole is None else self._store.intact_from()
        return end_of(self._store, self._settings.file_bytes, intact_from)

    def _closed_at_once(self, reported: int) -> None:
        """Tell what it means that the master closed the connection before it sent anything."""
        what = "the master closed the connection before it sent anything: "
        if not reported:  # nobody refuses an empty slave; it is with us again as soon as the master is
            if self._dropped_by != self._connected_to:  # once, not at every try
                log.warning(f"{what}it stops or has just stopped, trying again", address=self._connected_to)
                self._dropped_by = self._connected_to
            return
        self._refusals += 1
        self._refusal = (
            f"{what}it stops, or it refuses a slave whose log ends at {reported}. Its log says which; mostly this "
            "slave has more than it"
        )
        if self._is_empty():
            self._begins_anew = True
            log.warning(f"{what}it may have deleted what follows {reported}; asking as an empty slave from now on")
        elif self._refusals > 1:
            log.error("refused by the master", address=self._connected_to, why=self._refusal)
        else:  # once may be a master that stops
            log.warning("perhaps refused by the master", address=self._connected_to, why=self._refusal)

    def _apply(self, transfer: wire.Transfer) -> None:
        """Append a checked transfer.

        Raises:
            MismatchError: the store does not take it.
        """
        self.continued_at = self._world.clock.monotonic()
        self._refusals = 0
        self._refusal = ""
        self._begins_anew = False
        self._dropped_by = None
        if transfer.body:
            try:
                self._store.append_raw(transfer.offset, transfer.body)
            except ValueError as error:
                raise MismatchError(f"the master sends from {transfer.offset}: {error}") from None
