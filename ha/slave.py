"""The slave's side: keeps a connection to the master's HA port and appends what comes."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import attrs
import trio

from understudy.ha import wire
from understudy.ha.continuity import MismatchError, check_continues
from understudy.ha.healing import Look, LookResult, Step, next_step
from understudy.ha.hole_filling import HoleFilling
from understudy.ha.overlap import Overlap, end_of
from understudy.ha.settings import ContinuedLog, HaParameters
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("ha.slave")

_RECEIVE_BYTES = 1024 * 1024
_CLOSE_GRACE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_CLOSED = "closed by the master"
_HOLE_GONE = "the file with the hole was deleted meanwhile"


class HaState(Enum):
    """Where a slave's connection stands; the names are the reference's (HAConnectionState.java)."""

    READY = 0
    TRANSFER = 2
    SHUTDOWN = 4


@attrs.frozen
class SlaveProgress:
    """What GET_BROKER_HA_STATUS shows of a slave; times are wall time in milliseconds, 0 before the first."""

    master_address: str | None
    state: HaState
    last_read_ms: int
    last_write_ms: int
    received_bytes_per_second: int
    refusal: str


class HaSlave:
    """Copies the master's log. Run it as a service of a slave broker.

    Args:
        world: clock and network.
        store: the log that is written.
        settings: may change while it runs.

    Attributes:
        state_changed: called with the new state; pre-online waits for it.
        continued_at: monotonic time in seconds of the last frame that continued our log; minus infinity before.
    """

    def __init__(self, world: World, store: ContinuedLog, settings: HaParameters) -> None:
        self._world = world
        self._store = store
        self._settings = settings
        self._master: str | None = None
        self._master_changed = Signal()
        self._connection_scope: trio.CancelScope | None = None
        self._connected_to: str | None = None
        self._unreached: str | None = None
        self._refusals = 0
        self._begins_anew = False
        self._looked: LookResult | None = None
        self._unhealed: tuple[str, int] | None = None
        self._dropped_by: str | None = None
        self._last_read_ms = 0
        self._last_write_ms = 0
        self._second = (0, 0, 0)
        self._refusal = ""
        self.state = HaState.READY
        self.continued_at = float("-inf")
        self.state_changed: list[Callable[[HaState], None]] = []

    @property
    def master_address(self) -> str | None:
        """The master's HA address, ``host:port``, or ``None`` while it is not known."""
        return self._master

    def set_master(self, address: str | None) -> None:
        """Follow the master at HA *address*; a connection to another one ends.

        With ``None`` no further connection is made; one that stands is kept, for a master that is called dead may
        still have something to give (DefaultHAClient.java).
        """
        if address == self._master:
            return
        log.info("master changed", before=self._master, now=address)
        self._master = address
        self._refusal = ""
        self._refusals = 0
        self._master_changed.set()
        if self._connection_scope is not None and address not in (None, self._connected_to):
            self._connection_scope.cancel()

    def progress(self) -> SlaveProgress:
        """Return what an operator wants to know."""
        _, _, before = self._turn(0)
        return SlaveProgress(self._master, self.state, self._last_read_ms, self._last_write_ms, before, self._refusal)

    async def run(self) -> None:
        """Follow the master until cancelled."""
        try:
            while True:
                address = self._master
                if address is None:
                    await self._master_changed.wait()
                    continue
                await self._follow(address)
                if self._master == address and self._looked is None:
                    with self._world.clock.move_on_after(self._pause_seconds()):
                        await self._master_changed.wait()
        finally:
            self._enter(HaState.SHUTDOWN)

    def _pause_seconds(self) -> float:
        """Return the wait before the next try: short, but growing while master and slave refuse each other."""
        return min(self._settings.retry_ms / 1000 * (1 << min(self._refusals, 10)), _LONGEST_PAUSE_SECONDS)

    async def _follow(self, address: str) -> None:
        """Connect to *address* and copy until the connection ends."""
        store = self._store
        looked, self._looked = self._looked, None
        step = next_step(store.hole, store.max_physical_offset, address, looked)
        host, _, port = address.rpartition(":")
        try:
            timeout = self._settings.connect_timeout_ms / 1000
            stream = await self._world.network.connect(host, int(port), timeout)
        except (OSError, ValueError) as error:
            if address != self._unreached:  # once, not at every try
                log.warning("master not reached, trying again", address=address, error=error)
                self._unreached = address
            return
        self._unreached = None
        why = ""
        self._connected_to = address
        try:
            with trio.CancelScope() as self._connection_scope:
                self._enter(HaState.TRANSFER)
                why = await (self._look(stream, address) if step is Step.LOOK else self._copy(stream, step))
        except (wire.WireError, MismatchError) as error:
            self._refusal = why = str(error)
            self._refusals += 1
            log.error("master refused", address=address, why=why)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            why = "broken by the peer or the network"
        except OSError as error:
            self._refusal = why = f"the log cannot be written: {error}"
            self._refusals += 1
            log.error("replication stopped, trying again", address=address, why=why)
        finally:
            self._connection_scope = self._connected_to = None
            self._enter(HaState.READY)
            log.info("connection to the master ended", address=address, why=why or "master changed")
            with trio.move_on_after(_CLOSE_GRACE_SECONDS, shield=True):
                await stream.aclose()

    async def _look(self, stream: ByteStream, address: str) -> str:
        """See whether the master can fill the hole in our log; nothing is written. Return why the connection ended."""
        store = self._store
        hole, end = store.hole, store.max_physical_offset
        if hole is None:  # its file grew too old while the connection was made
            return _HOLE_GONE
        look = Look(hole, end, store.repair(hole).differs_at)
        line = _Line(stream, self._world.clock.monotonic())
        await self._report(line, hole)
        while True:
            frames = await self._frames(line)
            if isinstance(frames, str):
                if line.heard or frames != _CLOSED:
                    return frames
                frames, found = [], "it closed the connection: it stops, or it has deleted these files"
            else:
                found = None
            for frame in frames:
                found = look.take(frame)
                if found is not None:
                    break
            if found is not None:
                break
        self._looked = LookResult(address, hole, end, found)
        if not found:
            return "it can fill the hole"
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
        if step is Step.HEAL:
            hole = store.hole
            if hole is None:  # its file grew too old while the connection was made
                return _HOLE_GONE
            healing = HoleFilling(hole, store.max_physical_offset, store.repair(hole))
            log.warning("writing what is missing from the first hole of the log on", hole=hole, end=healing.end)
        hole_before = store.hole
        line = _Line(stream, self._world.clock.monotonic())
        anew = self._begins_anew and self._is_empty()
        overlap = self._overlap() if healing is None else None
        first = store.max_physical_offset if healing is None else healing.position
        if overlap is not None:
            first = overlap.position
        await self._report(line, 0 if anew else first)  # at once; the reference waits for its first heartbeat
        asked_at = line.last_write
        while True:
            heard = line.heard
            frames = await self._frames(line)
            if isinstance(frames, str):
                if frames == _CLOSED and (overlap is not None or not heard):
                    self._closed_at_once(line.reported if overlap is None else overlap.end)
                return frames
            if healing is None and store.hole not in (None, hole_before):
                return "a reader found that messages have rotted on the disk"
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
                log.info("the log has everything again", missing_from=first, end=healing.end)
                healing = None
            for frame in frames:
                self._apply(frame)
            if store.max_physical_offset > line.reported and not self._is_empty():
                await self._report(line, store.max_physical_offset)

    async def _frames(self, line: _Line) -> list[wire.Transfer] | str:
        """Return what the master sends next, at least one frame, or why the connection must end."""
        clock, settings = self._world.clock, self._settings
        while True:
            now = clock.monotonic()
            if now - line.last_read > settings.housekeeping_ms / 1000:
                return f"the master said nothing for {settings.housekeeping_ms} ms"
            if now - line.last_write >= settings.heartbeat_ms / 1000:
                await self._report(line, line.reported)
            wake = min(line.last_write + settings.heartbeat_ms / 1000, line.last_read + settings.housekeeping_ms / 1000)
            data = None
            with clock.move_on_after(max(wake - now, 0.001)):
                data = await line.stream.receive_some(_RECEIVE_BYTES)
            if data is None:
                continue
            if not data:
                return _CLOSED
            line.last_read = clock.monotonic()
            self._last_read_ms = clock.wall_ms()
            self._turn(len(data))
            transfers = wire.joined(line.reader.feed(data))
            if transfers:
                line.heard = True
                return transfers

    async def _report(self, line: _Line, offset: int) -> None:
        await line.stream.send_all(wire.report(offset))
        line.reported = offset
        line.last_write = self._world.clock.monotonic()
        self._last_write_ms = self._world.clock.wall_ms()

    def _overlap(self) -> Overlap | None:
        """Return the end of our log for a comparison, unless there is none or damage in it."""
        damaged = self._store.hole is not None
        return None if damaged or self._is_empty() else end_of(self._store, self._settings.file_bytes)

    def _is_empty(self) -> bool:
        """Return whether our log holds no byte, wherever it ends: a power loss can leave an empty file."""
        return self._store.min_physical_offset in (-1, self._store.max_physical_offset)

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
        self._begins_anew = False
        self._dropped_by = None
        if transfer.body:
            try:
                self._store.append_raw(transfer.offset, transfer.body)
            except ValueError as error:
                raise MismatchError(f"the master sends from {transfer.offset}: {error}") from None

    def _turn(self, size: int) -> tuple[int, int, int]:
        second, counted, before = self._second
        now = int(self._world.clock.monotonic())
        if now != second:
            before = counted if now == second + 1 else 0
            counted = 0
        self._second = (now, counted + size, before)
        return self._second

    def _enter(self, state: HaState) -> None:
        if state is not self.state:
            self.state = state
            for callback in self.state_changed:
                callback(state)


class _Line:
    """One connection to a master: what was said on it last, and when."""

    def __init__(self, stream: ByteStream, now: float) -> None:
        self.stream = stream
        self.reader = wire.TransferReader()
        self.reported = -1
        self.heard = False
        self.last_read = now
        self.last_write = now
