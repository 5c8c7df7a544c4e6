"""What both kinds of slave share: a connection to the master, made again and again, and what comes over it.

What the frames are, and what must be true before anything is appended, is the business of the two slaves:
:class:`understudy.ha.slave.HaSlave` (plain replication) and :class:`understudy.ha.switch.slave.SwitchSlave` (controller
mode).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from understudy.ha import wire
from understudy.ha.continuity import MismatchError
from understudy.ha.settings import ContinuedLog, HaParameters
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("ha.slave")

CLOSED = "closed by the master"
_RECEIVE_BYTES = 1024 * 1024
_CLOSE_GRACE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0

Frame = TypeVar("Frame")


class FrameReader(Protocol[Frame]):
    """Cuts what a master sends into frames."""

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes and return every frame completed by them. Raises ``WireError``."""
        ...


class Line(Generic[Frame]):
    """One connection to a master: what was said on it last, and when.

    Args:
        stream: the connection.
        reader: what cuts its bytes into frames.
        now: monotonic seconds.

    Attributes:
        reported: the offset that was reported last; -1 before.
        heard: whether the master has sent any frame.
        last_read, last_write: monotonic seconds.
    """

    def __init__(self, stream: ByteStream, reader: FrameReader[Frame], now: float) -> None:
        self.stream = stream
        self.reader = reader
        self.reported = -1
        self.heard = False
        self.last_read = now
        self.last_write = now


class HaState(Enum):
    """Where a slave's connection stands; the names are the reference's (HAConnectionState.java)."""

    READY = 0
    HANDSHAKE = 1
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


class MasterFollower(ABC, Generic[Frame]):
    """Keeps a connection to the master and copies its log. Run it as a service of a slave broker.

    Args:
        world: clock and network.
        store: the log that is written.
        settings: may change while it runs.

    Attributes:
        state_changed: called with the new state; pre-online waits for it.
        continued_at: monotonic time in seconds of the last frame that continued our log; minus infinity before.
        own_host: the address from which the newest connection was made; empty before.
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
        self._last_read_ms = 0
        self._last_write_ms = 0
        self._second = (0, 0, 0)
        self._refusal = ""
        self.state = HaState.READY
        self.continued_at = float("-inf")
        self.own_host = ""
        self.state_changed: list[Callable[[HaState], None]] = []

    @property
    def messages_missing(self) -> bool:
        """Whether our log has a hole that a master may fill."""
        return False

    @abstractmethod
    async def _exchange(self, stream: ByteStream, address: str) -> str:
        """Exchange frames until the connection must end; return why.

        Raises:
            WireError: the master's bytes are none of this protocol.
            MismatchError: its log is not ours continued.
        """

    @abstractmethod
    def _report_frame(self, offset: int) -> bytes:
        """Return the frame that says that our log ends at *offset*."""

    def _joined(self, frames: list[Frame]) -> list[Frame]:
        """Return *frames* with those put together that can be written at once."""
        return frames

    def _before_connecting(self, address: str) -> None:
        """Decide what the next connection to *address* is for."""

    @property
    def _asks_at_once(self) -> bool:
        """Whether the next connection is made without a pause."""
        return False

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

    def try_now(self) -> None:
        """Connect without a pause: the master may take now what it refused before."""
        self._refusals = 0
        self._master_changed.set()

    def hang_up(self) -> None:
        """End the connection that stands, if there is one: its master gives nothing on it."""
        if self._connection_scope is not None:
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
                if self._master == address and not self._asks_at_once:
                    with self._world.clock.move_on_after(self._pause_seconds()):
                        await self._master_changed.wait()
        finally:
            self._enter(HaState.SHUTDOWN)

    def _pause_seconds(self) -> float:
        """Return the wait before the next try: short, but growing while master and slave refuse each other."""
        return min(self._settings.retry_ms / 1000 * (1 << min(self._refusals, 10)), _LONGEST_PAUSE_SECONDS)

    async def _follow(self, address: str) -> None:
        """Connect to *address* and copy until the connection ends."""
        self._before_connecting(address)
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
        self.own_host = stream.local[0]
        why = ""
        self._connected_to = address
        try:
            with trio.CancelScope() as self._connection_scope:
                why = await self._exchange(stream, address)
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

    async def _frames(self, line: Line[Frame], *, silent: bool = False) -> list[Frame] | str:
        """Return what the master sends next, at least one frame, or why the connection must end.

        Args:
            line: the connection.
            silent: report nothing meanwhile.
        """
        clock, settings = self._world.clock, self._settings
        while True:
            now = clock.monotonic()
            if now - line.last_read > settings.housekeeping_ms / 1000:
                return f"the master said nothing for {settings.housekeeping_ms} ms"
            wake = line.last_read + settings.housekeeping_ms / 1000
            if not silent:
                if now - line.last_write >= settings.heartbeat_ms / 1000:
                    await self._report(line, line.reported)
                wake = min(wake, line.last_write + settings.heartbeat_ms / 1000)
            data = None
            with clock.move_on_after(max(wake - now, 0.001)):
                data = await line.stream.receive_some(_RECEIVE_BYTES)
            if data is None:
                continue
            if not data:
                return CLOSED
            line.last_read = clock.monotonic()
            self._last_read_ms = clock.wall_ms()
            self._turn(len(data))
            frames = self._joined(line.reader.feed(data))
            if frames:
                line.heard = True
                return frames

    async def _report(self, line: Line[Frame], offset: int) -> None:
        await line.stream.send_all(self._report_frame(offset))
        line.reported = offset
        line.last_write = self._world.clock.monotonic()
        self._last_write_ms = self._world.clock.wall_ms()

    def _is_empty(self) -> bool:
        """Return whether our log holds no byte, wherever it ends: a power loss can leave an empty file."""
        return self._store.min_physical_offset in (-1, self._store.max_physical_offset)

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
