"""The master's side: gives every connected slave the log as it grows and knows how far each of them is."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import trio

from understudy.ha import replicas, wire
from understudy.ha.connected import ConnectedSlave
from understudy.ha.conversation import HANDSHAKE_SECONDS, Conversation, PlainConversation
from understudy.ha.flow import Flow
from understudy.ha.hearing import Hearing
from understudy.ha.replicas import Replica
from understudy.ha.settings import HaParameters, ReplicatedLog
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream, Listener, accept_loop
from understudy.runtime.seats import Seats
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("ha.master")

_FRAMES_PER_WRITE = 16
_RECEIVE_BYTES = 4096
_CLOSE_GRACE_SECONDS = 1.0
MOST_CONNECTIONS = 64
"""To the HA port, those included that never say how far they are; a group has a handful of slaves."""
NEWS_SECONDS = 0.1
"""How long news may wait for a frame that takes them along."""
_PATIENCE_STEP_S = 0.5  # a deadline that moves with every report would cost more than the report


@attrs.frozen
class SlaveStatus:
    """One connected slave, as GET_BROKER_HA_STATUS shows it.

    Attributes:
        address: the slave's end of the connection.
        acknowledged: end of its log in bytes; -1 before its first report.
        transfer_from: next byte to be sent.
        bytes_per_second: what was sent to it in the last full second.
        in_sync: whether it counts as in sync with the end of the log.
    """

    address: str
    acknowledged: int
    transfer_from: int
    bytes_per_second: int
    in_sync: bool


class HaMaster:
    """Serves slaves on the HA port. Run it as a service of a master broker.

    Args:
        world: clock and network.
        store: the log that is replicated.
        settings: may change while it runs.
        host: address to listen on.
        port: HA port, 0 for a free one.
        listener: the port when it is already taken; *host* and *port* do not matter then.
        converse: makes what speaks the protocol on a new connection.

    Attributes:
        acknowledged: called after a slave's report moved its offset; waiting sends look again.
        membership_changed: called after a slave came or went.
        admits: says of an IP address whether it may copy; ``None``: every one may.
    """

    def __init__(
        self,
        world: World,
        store: ReplicatedLog,
        settings: HaParameters,
        host: str,
        port: int,
        listener: Listener | None = None,
        converse: Callable[[], Conversation] = PlainConversation,
    ) -> None:
        self._converse = converse
        self._world = world
        self._store = store
        self._settings = settings
        self._bind_to = (host, port)
        self._listener = listener
        self._slaves: dict[int, ConnectedSlave] = {}
        self._seats = Seats(MOST_CONNECTIONS)
        self._left_at: dict[str, float] = {}  # hosts whose newest connection ended, and when
        self._next_number = 0
        self._grown = Signal()
        self._withheld_from: int | None = None
        self.acknowledged: list[Callable[[], None]] = []
        self.membership_changed: list[Callable[[], None]] = []
        self.admits: Callable[[str], bool] | None = None

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Host and real port, after :meth:`bind`."""
        return self._bind_to if self._listener is None else self._listener.address

    @property
    def connection_count(self) -> int:
        """Slaves connected now."""
        return len(self._slaves)

    def status(self) -> list[SlaveStatus]:
        """Return the connected slaves in the order they came, without those whose connection is being closed."""
        end = self._store.max_physical_offset
        return [
            SlaveStatus(
                slave.address,
                slave.replica.acknowledged,
                slave.next_offset,
                slave.flow.last_second,
                slave.replica.known and self._in_sync(slave, end),
            )
            for slave in self._slaves.values()
            if not slave.closing
        ]

    def _in_sync(self, slave: ConnectedSlave, end: int) -> bool:
        told = slave.conversation.in_sync
        return end - slave.replica.acknowledged < self._settings.max_gap_bytes if told is None else told

    def hearing(self, since: float) -> Hearing:
        """Return what is heard of the slaves; who left before *since* (monotonic seconds) is forgotten."""
        self._left_at = {host: ended for host, ended in self._left_at.items() if ended >= since}
        return Hearing(tuple(slave.voice for slave in self._slaves.values()), dict(self._left_at))

    def in_sync_count(self, stalled_seconds: float = math.inf) -> int:
        """Return how many replicas, this one included, are in sync with the end of the log.

        Args:
            stalled_seconds: a slave that has not reported more for so long, though more was sent, is not in sync:
                its connection may be half there (differs because the reference counts it until the connection ends).
        """
        now = self._world.clock.monotonic()
        moving: dict[object, Replica] = {
            number: slave.replica
            for number, slave in self._slaves.items()
            if not slave.voice.stalled(now, stalled_seconds)
        }
        return replicas.in_sync_count(moving, self._store.max_physical_offset, self._settings.max_gap_bytes)

    def copies_of(self, end_offset: int) -> int:
        """Return how many replicas, this one included, have every byte before *end_offset*."""
        return replicas.copies_of(self._replicas(), end_offset)

    def copied(self, copies: int) -> int:
        """Return the offset in bytes before which at least *copies* replicas, this one included, have everything."""
        return replicas.copied_up_to(self._replicas(), copies, self._store.max_physical_offset)

    def _replicas(self) -> dict[object, Replica]:
        return {number: slave.replica for number, slave in self._slaves.items()}

    # --- lifetime ----------------------------------------------------------------------------------------------

    async def bind(self) -> tuple[str, int]:
        """Take the port. Raises :class:`~understudy.runtime.network.ListenError`."""
        if self._listener is None:
            self._listener = await self._world.network.listen(*self._bind_to)
        return self._listener.address

    async def unbind(self) -> None:
        """Give the port back; without effect when it was given back."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def run(self) -> None:
        """Serve slaves until cancelled; gives the port back then."""
        await self.bind()
        assert self._listener is not None
        try:
            async with trio.open_nursery() as nursery:
                await accept_loop(self._listener, self._serve, nursery)
        finally:
            await self.unbind()

    def log_grew(self, *message: object) -> None:
        """Wake the writers that wait for bytes; call it after each append, it costs nothing when nobody waits.

        Args:
            message: what a store tells of a message; it does not matter here.
        """
        self._grown.set()

    def withhold(self, offset: int | None) -> None:
        """Give slaves nothing from *offset* on, until it is called again; ``None``: all that there is."""
        self._withheld_from = offset
        self._grown.set()

    def disconnect_from(self, offset: int) -> None:
        """Close connections of slaves that may have what stood at *offset* before, given now or in a former life."""
        for slave in list(self._slaves.values()):
            if slave.began_at >= 0 and offset < slave.given_until:
                slave.close()

    def _end(self) -> int:
        """Return up to where slaves may have the log now."""
        end = self._store.max_physical_offset
        return end if self._withheld_from is None else min(end, self._withheld_from)

    async def _serve(self, stream: ByteStream) -> None:
        host, scope = stream.peer[0], trio.CancelScope()
        admitted = self.admits is None or self.admits(host)
        seat = self._seats.take(host, scope.cancel) if admitted else None
        if seat is None:
            why = "too many slaves of this host" if admitted else "not a slave's address"
            self._world.tell(log.warning, f"{why}, connection closed", peer="{}:{}".format(*stream.peer))
            await _close(stream)
            return
        self._next_number += 1
        number = self._next_number
        slave = self._slaves[number] = ConnectedSlave(
            stream.peer, Flow(self._world), self._converse(), seat, scope.cancel
        )
        self._world.tell(log.info, "slave connected", peer=slave.address)
        self._tell(self.membership_changed)
        why = "stopped by this side"
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, stream, slave)
                    why = await self._read(stream, slave)
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            why = "broken by the peer or the network"
        finally:
            self._seats.give_back(seat)
            del self._slaves[number]
            slave.conversation.ended()
            self._left(slave)
            confirmed = slave.replica.acknowledged
            self._world.tell(log.info, "slave gone", peer=slave.address, acknowledged=confirmed, why=why)
            self._tell(self.membership_changed)
            await _close(stream)

    def _left(self, slave: ConnectedSlave) -> None:
        again = any(other.host == slave.host and other.replica.known for other in self._slaves.values())
        if slave.replica.known and not again:
            self._left_at[slave.host] = self._world.clock.monotonic()

    async def _read(self, stream: ByteStream, slave: ConnectedSlave) -> str:
        """Take reports until the connection must end; return why."""
        conversation, clock = slave.conversation, self._world.clock
        ends = clock.monotonic() + self._patience_s  # of this clock, which the scope's deadline need not be
        with clock.move_on_after(self._patience_s) as patience:
            while True:
                data: bytes | None = None
                if conversation.undecided:
                    with clock.move_on_after(HANDSHAKE_SECONDS):
                        data = await stream.receive_some(_RECEIVE_BYTES)
                else:
                    data = await stream.receive_some(_RECEIVE_BYTES)
                if data == b"":
                    return "closed by the slave"
                why = self._take(slave, data)
                if why:
                    self._world.tell(log.error, "slave refused", peer=slave.address, why=why)
                    return why
                if conversation.reply and not slave.started.is_set():  # after that the writer has the stream
                    reply, conversation.reply = conversation.reply, b""
                    await stream.send_all(reply)
                late_s = ends - slave.heard_at - self._patience_s
                if not 0 <= late_s <= _PATIENCE_STEP_S:
                    patience.deadline += _PATIENCE_STEP_S - late_s
                    ends += _PATIENCE_STEP_S - late_s
        return f"the slave said nothing for {self._settings.housekeeping_ms} ms"

    @property
    def _patience_s(self) -> float:
        return self._settings.housekeeping_ms / 1000

    def _take(self, slave: ConnectedSlave, data: bytes | None) -> str:
        """Take what a slave sent, ``None`` when the rest of a frame did not come; return why it is refused."""
        slave.heard_at = self._world.clock.monotonic()
        try:
            offset = slave.conversation.feed(data)
            if offset is None:
                return ""
            before, end = slave.replica, self._store.max_physical_offset
            slave.replica = replicas.reported(before, offset, end)
            slave.conversation.reported(offset, end)
        except (wire.WireError, replicas.AheadError) as error:
            return str(error)
        if not before.known:
            why_not = self._begin(slave)
            if why_not:
                return why_not
            slave.started.set()
            slave.seat.kept = True
            self._left_at.pop(slave.host, None)
        if slave.replica.acknowledged > before.acknowledged:
            slave.unconfirmed.confirmed(slave.replica.acknowledged)
            self._tell(self.acknowledged)
        return ""

    def _begin(self, slave: ConnectedSlave) -> str:
        """Set where the transfer to *slave* begins; return why it cannot, or ``""``."""
        store, settings = self._store, self._settings
        start = replicas.transfer_start(
            slave.replica.requested,
            store.min_physical_offset,
            store.max_physical_offset,
            settings.file_bytes,
            whole_log=slave.conversation.whole_log(settings),
        )
        first = max(store.min_physical_offset, 0)
        if start < first:
            return (
                f"the slave needs the log from {start}, the first byte here is {first}: older files were deleted. Move "
                "the slave's store away and let it copy the log again"
            )
        slave.began_at = slave.next_offset = slave.given_until = start
        return ""

    async def _write(self, stream: ByteStream, slave: ConnectedSlave) -> None:
        clock, settings = self._world.clock, self._settings
        await slave.started.wait()
        last_write = clock.monotonic()
        while True:
            if self._end() > slave.next_offset:
                parts, size = self._next_frames(slave)
                if parts:
                    slave.given_until = slave.next_offset + size
                    slave.unconfirmed.sent(slave.given_until, clock.monotonic())
                    slave.conversation.sent(self._store.max_physical_offset)
                    await _send(stream, parts)
                    slave.next_offset += size
                    slave.flow.count(size + len(parts[0]))
                    last_write = clock.monotonic()
                    if self._end() > slave.next_offset:
                        await trio.lowlevel.checkpoint()
                        continue
            due = last_write + (NEWS_SECONDS if slave.conversation.has_news else settings.heartbeat_ms / 1000)
            if clock.monotonic() >= due:
                await stream.send_all(slave.conversation.header(slave.next_offset, 0))
                last_write = clock.monotonic()
                continue
            if self._end() > slave.next_offset:  # flow control holds it back
                await clock.sleep(min(due - clock.monotonic(), slave.flow.seconds_to_next()))
                continue
            with clock.move_on_after(due - clock.monotonic()):
                await self._grown.wait()

    def _next_frames(self, slave: ConnectedSlave) -> tuple[list[bytes | memoryview], int]:
        """Return the frames that may be sent now as buffers, and how many bytes of log they hold."""
        parts: list[bytes | memoryview] = []
        size, allowed = 0, slave.flow.allowance(self._settings.bytes_per_second)
        conversation, batch_bytes, end = slave.conversation, self._settings.batch_bytes, self._end()
        while len(parts) < 2 * _FRAMES_PER_WRITE and allowed > 0:
            offset = slave.next_offset + size
            most = min(batch_bytes, allowed, conversation.bytes_until_border(offset), end - offset)
            body = self._store.slice(offset, most) if most > 0 else b""
            if not body:
                break
            parts += (conversation.header(offset, len(body)), body)
            size += len(body)
            allowed -= len(body)
        return parts, size

    def _tell(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            callback()


async def _close(stream: ByteStream) -> None:
    with trio.move_on_after(_CLOSE_GRACE_SECONDS, shield=True):
        await stream.aclose()


async def _send(stream: ByteStream, parts: list[bytes | memoryview]) -> None:
    """Send all *parts*, without a checkpoint when the network takes them at once; nothing is copied."""
    first = 0
    while True:
        sent = stream.send_nowait(parts[first:] if first else parts)
        while first < len(parts) and sent >= len(parts[first]):
            sent -= len(parts[first])
            first += 1
        if first == len(parts):
            return
        await stream.send_all(memoryview(parts[first])[sent:])
        first += 1
        if first == len(parts):
            return
