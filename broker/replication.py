"""One broker's part in replication: a master serves its slaves, a slave follows its master.

The wire and the rules over offsets are in :mod:`understudy.ha`; this module connects them with the broker's
configuration, its store and the sends that wait for copies.

Source: BrokerController.java, DefaultHAService.java, CommitLog.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from understudy.broker.config import BrokerOptions
from understudy.broker.durable_log import DurableLog
from understudy.broker.identity import Identity
from understudy.broker.role import Role
from understudy.ha import replicas
from understudy.ha.following import HaState
from understudy.ha.master import HaMaster
from understudy.ha.settings import ReplicatedLog
from understudy.remoting.access import ranges_of
from understudy.runtime.log import get_logger
from understudy.runtime.network import Listener
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.signed_slaves import SignedSlaves
    from understudy.ha.following import MasterFollower

log = get_logger("broker.replication")

SHORTEST_ADDRESS = 6
"""A ``haMasterAddress`` of at least this many characters is fixed and never learned (DefaultHAService.java)."""
RETRY_MS = 1_000
_ASKS = "messages are missing in the log; slaves are asked for them first"
RETURN_SECONDS = 10.0
"""How long a master that has announced its return is waited for, unless it announces itself again."""


def _tell(listeners: Iterable[Callable[..., None]], *given: object) -> None:
    for listener in listeners:
        listener(*given)


class KeyedHaParameters:
    """The replication settings as they stand in a broker's keys now.

    A slave asks its master again after one second (differs because the reference waits five).
    """

    def __init__(self, options: BrokerOptions) -> None:
        self._keys = options.store

    heartbeat_ms = property(lambda self: self._keys.ha_send_heartbeat_interval)
    housekeeping_ms = property(lambda self: self._keys.ha_housekeeping_interval)
    batch_bytes = property(lambda self: max(self._keys.ha_transfer_batch_size, 1))
    max_gap_bytes = property(lambda self: self._keys.ha_max_gap_not_in_sync)
    file_bytes = property(lambda self: self._keys.mapped_file_size_commit_log)
    whole_log = property(lambda self: self._keys.ha_transfer_whole_log)
    retry_ms = property(lambda self: RETRY_MS)
    connect_timeout_ms = property(lambda self: 3_000)

    @property
    def bytes_per_second(self) -> int | None:
        """Most bytes sent to one slave in a second, ``None`` for no limit."""
        return self._keys.max_ha_transfer_byte_in_second if self._keys.ha_flow_control_enable else None


class Replication:
    """Replication of one broker.

    Args:
        world: clock and network.
        options: read anew each time, so that live changes count.
        identity: who the broker is; told where slaves connect.

    Attributes:
        master: serves slaves; ``None`` on a slave, and before :meth:`open`.
        slave: follows the master; ``None`` on a master, and before :meth:`open`.
        master_address: the master's own address, ``host:port``, as far as a slave knows; where its tables are copied
            from.
        alive: replicas of the group that the name servers list, this one included; ``totalReplicas`` until they were
            asked.
        initial_offset: end of the log in bytes right after the start.
        master_changed: called after :attr:`master_address` changed.
        copies_changed: called after a slave has more than before.
        slaves_changed: called after a slave came or went, and when the log takes messages although it has a hole.
        follows: called with the end of a slave's log (bytes) when it is about to copy more of a master's.
        signed_slaves: of a broker that asks for signatures: whose log may be copied, where no list says it.
        healing: awaited, where controllers lead, before a master is greeted, with a position in bytes where one sent
            something in place of lost messages.
        cutting: awaited with a position in bytes before the log is cut there, as its new master never had the rest.
    """

    def __init__(self, world: World, options: BrokerOptions, identity: Identity) -> None:
        self._world = world
        self._options = options
        self._identity = identity
        self._parameters = KeyedHaParameters(options)
        self._listener: Listener | None = None
        self._store: MessageStore | None = None
        self._listening = False
        self.master: HaMaster | None = None
        self.slave: MasterFollower[Any] | None = None
        self.master_address: str | None = None
        self.alive = options.store.total_replicas
        self.initial_offset = 0
        self._holds_off = self._hole_withheld = False
        self._announced_at = float("-inf")
        self._successor: int | None = None  # what was announced is no master, but this slave
        self.master_changed: list[Callable[[], None]] = []
        self.copies_changed: list[Callable[[], None]] = []
        self.slaves_changed: list[Callable[[], None]] = []
        self.follows: list[Callable[[int], None]] = []
        self.cutting: list[Callable[[int], Awaitable[None]]] = []
        self.healing: Callable[[int], Awaitable[None]] | None = None
        self.signed_slaves: SignedSlaves | None = None

    # --- lifetime ----------------------------------------------------------------------------------------------

    async def bind(self, role: Role) -> None:
        """Take the HA port if *role* is a master's, a free one where the broker's own port is. Raises ``ListenError``.

        A slave has none (differs: the reference's answers like a master's).
        """
        config, server_keys = self._options.broker, self._options.server
        port = self._options.store.ha_listen_port if server_keys.listen_port else 0
        if not role.is_slave:
            self._listener = await self._world.network.listen(server_keys.bind_address, port)
            port = self._listener.address[1]
        self._identity.ha_address = f"{config.broker_ip2 or config.broker_ip1 or '127.0.0.1'}:{port}"

    async def unbind(self) -> None:
        """Give the port back, unless the running service has done so."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.aclose()
        if self.master is not None:
            await self.master.unbind()

    def open(self, store: MessageStore) -> None:
        """Take *store*, once it is recovered, as the log to give or to continue."""
        self._store = store

    def begin(self) -> None:
        """Open the side of the role in force; :meth:`run_master` or :meth:`run_slave` runs it."""
        store, role = self._store, self._identity.role
        assert store is not None
        # The store of a slave has one writer: what comes from the master.
        store.set_writable(not role.is_slave)
        self.settings_changed()
        if not role.is_slave:
            if incomplete := store.drop_incomplete():
                log.warning("the master's last record had not come whole, it is cut off", bytes=incomplete)
            durable = self._options.store.flush_disk_type == "SYNC_FLUSH"
            self.master = self._make_master(DurableLog(store) if durable else store)
            self.master.admits = self._admits
            self.master.membership_changed.append(self._slaves_changed)
            self.master.acknowledged.append(self._tell_copies)
            self._listener = None
        else:
            self.slave = self._make_slave(store)
            self.slave.state_changed.append(self._slave_state_changed)
            self.slave.set_master(self._fixed_address())
        self.initial_offset = store.max_physical_offset

    def copying(self) -> Collection[int] | None:
        """Return the ids of the slaves whose logs are this one, as far as they go; ``None``: they do not tell them."""
        return None

    @property
    def waits_for_disk(self) -> bool:
        """Whether sends wait for the disk for want of other copies, whatever ``flushDiskType`` says."""
        return False

    def settings_changed(self) -> None:
        """Take what may change while a role lasts."""
        if self._store is not None:
            keys, is_slave = self._options.store, self._identity.role.is_slave
            self._store.set_correct_offsets(not is_slave or keys.offset_check_in_slave)

    def withhold(self, *, hole: bool) -> None:
        """Give slaves nothing from the first *hole* of the log on, if it has one, or (False) everything.

        A master that comes back may get what it lost from a slave. What stands there until then must not reach others.
        """
        self._hole_withheld = hole
        self._withhold()
        if self.master is not None and not hole:
            self._hold_off(False)

    def _withhold(self) -> None:
        if self.master is not None and self._store is not None:
            self.master.withhold(self._store.hole if self._hole_withheld else None)

    def take_nothing_yet(self) -> None:
        """Take no messages of our own until slaves may have everything, if the log has a hole.

        They would get the queue offsets of those at the ends of queues that may come back.
        """
        self._hold_off(self.master is not None and self._store is not None and self._store.hole is not None)

    @property
    def takes_nothing_yet(self) -> bool:
        """Whether that is so."""
        return self._holds_off

    def _hold_off(self, held: bool) -> None:
        assert self._store is not None
        self._store.set_writable(not held, _ASKS)
        changed, self._holds_off = self._holds_off != held, held
        _tell(self.slaves_changed if changed else ())

    def _slave_state_changed(self, state: HaState) -> None:
        if state is HaState.TRANSFER and self._store is not None:
            _tell(self.follows, self._store.max_physical_offset)

    def _admits(self, host: str) -> bool:
        """Return whether a slave at the IP address *host* may copy."""
        listed = ranges_of(self._options.store.ha_slave_addresses)
        if listed is not None:
            return listed.holds(host)
        return self.signed_slaves is None or self.signed_slaves.has(host)

    def _make_master(self, log_to_give: ReplicatedLog) -> HaMaster:
        return HaMaster(self._world, log_to_give, self._parameters, "", 0, self._listener)

    def _make_slave(self, store: MessageStore) -> MasterFollower[Any]:
        from understudy.ha.slave import HaSlave  # a master starts without it

        return HaSlave(self._world, store, self._parameters)

    async def prepare(self, role: Role) -> None:
        """Make the log ready for *role*, before anything of it is true. Raises ``OSError``."""

    def end(self) -> None:
        """Close the side of a role whose session has ended; what is known of a master goes with it."""
        self.master = self.slave = None
        self._hole_withheld = False
        self.master_address = None
        self._announced_at = float("-inf")

    async def run_master(self) -> None:
        """Give the log to slaves until cancelled."""
        assert self.master is not None
        await self.master.run()

    async def run_slave(self) -> None:
        """Follow the master's log until cancelled."""
        assert self.slave is not None
        await self.slave.run()

    # --- a slave and its master --------------------------------------------------------------------------------

    def _fixed_address(self) -> str | None:
        address = (self._options.store.ha_master_address or "").strip()
        return address if len(address) >= SHORTEST_ADDRESS else None

    def follow(self, master_address: str | None, ha_address: str | None) -> None:
        """Learn where the master is; an absent part changes nothing. Without effect on a master.

        Args:
            master_address: its own address, ``host:port``.
            ha_address: its HA address; a configured ``haMasterAddress`` wins.
        """
        if self.slave is None:
            return
        if ha_address:
            self.slave.set_master(self._fixed_address() or ha_address)
        if master_address and master_address != self.master_address:
            log.info("master known", before=self.master_address, now=master_address)
            self.master_address = master_address
            _tell(self.master_changed)

    @property
    def awaits(self) -> bool:
        """Whether the master, or a slave before this one, has said just now that it comes (906)."""
        return self._world.clock.monotonic() - self._announced_at < RETURN_SECONDS

    @property
    def successor(self) -> int | None:
        """The id of a slave that has said just now that it comes, and acts from now on."""
        return self._successor if self.awaits else None

    def announced(self, master_address: str | None, ha_address: str) -> None:
        """Learn that the master comes back; it is followed, and kept in mind until the name servers list it."""
        self._announced_at, self._successor = self._world.clock.monotonic(), None
        self.follow(master_address, ha_address)
        if self.slave is not None:
            self.slave.try_now()

    def arrived(self) -> None:
        """Learn that the name servers list the master again: from now on they say when it is gone."""
        self._announced_at = float("-inf")

    def stand_back(self, successor: int) -> None:
        """Learn that slave *successor* comes online: it acts from now on, and is waited for like a master."""
        self._announced_at, self._successor = self._world.clock.monotonic(), successor
        _tell(self.master_changed)

    @property
    def messages_missing(self) -> bool:
        """Whether the log has a hole, or a master's what has no place, and a slave's master may have what was there."""
        if self.slave is not None:
            return self.slave.messages_missing
        store = self._store
        return self._holds_off or (store is not None and (store.hole is not None or store.came_back() != ()))

    def continued_since(self, moment: float) -> bool:
        """Return whether the master's log was seen to continue this slave's after *moment* (monotonic seconds)."""
        return self.slave is not None and self.slave.continued_at > moment

    def learn_flush_offset(self, offset: int) -> None:
        """Take what a master says of its log, when the configuration asks for it and nothing is known yet."""
        if self._options.store.sync_master_flush_offset_when_startup and self.master_flush_offset == 0 and offset > 0:
            self._set_flush_offset(offset)

    @property
    def master_flush_offset(self) -> int:
        """What a slave was told of its master's log (bytes); nothing here depends on it."""
        return 0 if self._store is None else self._store.master_flushed_offset

    def _set_flush_offset(self, offset: int) -> None:
        if self._store is not None:
            self._store.set_master_flushed_offset(offset)

    async def reset_flush_offset(self, offset: int) -> bool:
        """Take *offset* as what is known of the master's log; False when it could not be made durable."""
        self._set_flush_offset(offset)
        return self._store is not None and await self._store.checkpoint()

    def lose_master(self) -> None:
        """Forget the master: it is gone from the name servers."""
        self._announced_at = float("-inf")
        if self.slave is None:
            return
        self.slave.set_master(self._fixed_address())
        if self.master_address is not None:
            log.info("master gone", before=self.master_address)
            self.master_address = None
            _tell(self.master_changed)

    def hang_up(self) -> None:
        """Forget a master that nobody shows and that gives nothing, and end the connection to it: it may be dead."""
        self.lose_master()
        if self.slave is not None:
            self.slave.hang_up()

    # --- a master and its slaves -------------------------------------------------------------------------------

    def copies_needed(self) -> int | None:
        """Return how many copies a send of a SYNC_MASTER needs now; ``None``: refuse it before it is written."""
        master, keys = self.master, self._options.store
        if master is None:
            return 1
        if not self._options.broker.enable_slave_acting_master:
            return keys.in_sync_replicas
        return replicas.acks_needed(
            in_sync=master.in_sync_count(keys.slave_timeout / 1000),
            alive=self.alive,
            in_sync_replicas=keys.in_sync_replicas,
            min_in_sync_replicas=keys.min_in_sync_replicas,
            auto=keys.enable_auto_in_sync_replicas,
        )

    def copies_in_reach(self) -> int | None:
        """Return how many copies a due message needs now: 1 unless this is a SYNC_MASTER.

        Not more than there are in sync, outside the mode in which slaves act: a slave that is away must not hold up
        what falls due. ``None``: too few are in sync, put nothing.
        """
        keys = self._options.store
        if not self._identity.role.waits_for_copies:
            return 1
        copies = self.copies_needed()
        if copies is None or self.master is None or self._options.broker.enable_slave_acting_master:
            return copies
        return min(copies, self.master.in_sync_count(keys.slave_timeout / 1000))

    def copied(self, copies: int) -> int:
        """Return the offset in bytes before which at least *copies* replicas, this one included, have everything."""
        return self.master.copied(copies) if self.master is not None else 0

    def log_grew(self) -> None:
        """Wake transfers to slaves; cheap when there are none."""
        if self.master is not None:
            self.master.log_grew()

    def _slaves_changed(self) -> None:
        # Appends tell of each message only while a slave is connected: a master without slaves pays nothing.
        assert self.master is not None and self._store is not None
        wanted = self.master.connection_count > 0
        if wanted and not self._listening:
            self._store.arrived.append(self.master.log_grew)
            self._store.hidden_grew.append(self.master.log_grew)
        elif not wanted and self._listening:
            self._store.arrived.remove(self.master.log_grew)
            self._store.hidden_grew.remove(self.master.log_grew)
        self._listening = wanted
        self._tell_copies()
        _tell(self.slaves_changed)

    def _tell_copies(self) -> None:
        _tell(self.copies_changed)
