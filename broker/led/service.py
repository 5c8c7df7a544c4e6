"""Runs a broker as its controllers say: keeps in touch, takes roles, and tells them what replication wants.

What is decided is in :mod:`~understudy.broker.led.following`; here it is done.

Source: ReplicasManager.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.led import following
from understudy.broker.led.calls import ASK_MASTER_MS, call_slaves
from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError, word_of
from understudy.broker.led.following import (
    Ask,
    Changed,
    Doubted,
    Event,
    Failed,
    LeaderIs,
    Looked,
    Pace,
    Pushed,
    Question,
    Said,
    TakeNews,
    TakeRole,
    Wanted,
    Word,
)
from understudy.broker.led.former_life import let_others_first
from understudy.broker.led.heartbeats import Heartbeats
from understudy.broker.led.id_keeper import AGAIN_SECONDS, IdKeeper, Registered
from understudy.broker.led.identity_files import GroupName, IdentityFiles
from understudy.broker.led.incarnation import StoreIncarnation
from understudy.broker.led.registered import RegisteredReplicas
from understudy.broker.led.replication import LedReplication
from understudy.broker.led.set_question import alter_set
from understudy.broker.name_servers import NameServers
from understudy.broker.role import Role
from understudy.broker.role_change import RoleChangeError
from understudy.ha.switch.sync_state import NEVER, Moment
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.led")

LOOK_UP_MS = 120_000
HEARTBEATS_TO_BE_HEARD = 3
"""After so many intervals controllers that have just started have heard who lives."""
REPLACED = (ResponseCode.CONTROLLER_INVALID_MASTER, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)
"""What they answer to who is not the master, or is it in another epoch."""


class Led:
    """The controllers' side of one broker.

    Args:
        broker: its parts exist.
        replication: of the broker.
        identity_path: of the file that keeps its id.

    Attributes:
        state: what is known since the broker has its id; ``None`` before.
        ids: keeps the id.
    """

    def __init__(self, broker: Broker, replication: LedReplication, identity_path: str) -> None:
        self._broker = broker
        self._replication = replication
        self._clock = broker.world.clock
        keys = broker.options.broker
        self._keys = keys
        name = GroupName(broker.identity.cluster, broker.identity.name)
        self._incarnation = StoreIncarnation(
            broker.world.disk, broker.options.store.store_path_root_dir, broker.world.random, durable=broker.sync_flush
        )
        self._controllers = Controllers(broker.client, self._clock, broker.world.threads, name, self._incarnation)
        self.servers = NameServers(
            broker.world,
            lambda: keys.controller_addr,
            lambda: keys.fetch_controller_addr_by_dns_lookup,
            lambda: LOOK_UP_MS,
        )
        disk = broker.world.disk
        files = IdentityFiles(disk, identity_path, name)
        self.ids = IdKeeper(
            self._clock, disk, files, self._controllers, lambda: self.servers.addresses, broker.identity.address
        )
        self._heartbeats = Heartbeats(
            broker,
            replication,
            self._controllers,
            lambda: self._addresses,
            lambda: self._leader,
            self._incarnation,
            lambda: None if self.state is None else self.state.elected,
        )
        self._events: deque[Event] = deque()
        self._pushed: Pushed | None = None
        self._wake = Signal()
        self.state: following.State | None = None
        self._registered = trio.CancelScope()
        self._finding = False
        self._leader = ""
        self._refused: tuple[Ask, str] | None = None
        self._replicas = RegisteredReplicas(self._clock, self._ask_addresses, lambda: self._pace.replicas)
        replication.registered = self._replicas.holds
        replication.sync_state_wanted.append(lambda members: self._tell(Wanted(members)))
        replication.epoch_claimed.append(lambda epoch: self._tell(Doubted(claims=True)))

    def register(self, server: RemotingServer) -> None:
        """Answer pushes of controllers on *server*."""
        server.register(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self.pushed)

    def pushed(self, connection: Connection, command: Command) -> Command:
        """Look at once whether the role is another one (1008).

        Anybody may push, as often as he likes: of the plausible ones that wait, that with the newest epochs counts.
        """
        try:
            word = word_of(command)
            wanted = self.state is not None and following.plausible(word)
            if wanted and (self._pushed is None or _newer(word, self._pushed.word)):
                self._pushed = Pushed(word)
                self._wake.set()
        except RefusedError as error:
            log.warning("a push of a role cannot be read", peer=connection.address, why=error)
        return response(command, ResponseCode.SUCCESS)

    async def run(self) -> None:
        """Be led until cancelled. Raises ``OSError``: the id cannot be made durable."""
        self._broker.client.on_close.append(self._connection_closed)
        try:
            await self._run()
        finally:
            self._broker.client.on_close.remove(self._connection_closed)

    @property
    def _addresses(self) -> Collection[str]:
        """Who is to hear this broker: the controllers that the settings name, and the one who leads, named or not."""
        return dict.fromkeys([*self.servers.addresses, *filter(None, [self._leader])])

    def _connection_closed(self, address: str, connection: Connection) -> None:
        if address in self._addresses:
            self._replication.doubt()
            self._tell(Doubted())

    async def _run(self) -> None:
        await self._incarnation.settle(anew=self._replication.log_is_short)
        await self.servers.refresh()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.servers.run)
            while True:
                registered = await self.ids.register()
                self._replication.own_id, self._leader = registered.broker_id, registered.leader
                log.info("the controllers know this broker", id=registered.broker_id, group=self._broker.identity.name)
                registered = await self._let_others_first(registered)
                # They must know that it lives before they are asked for an election.
                await self._heartbeats.send()
                async with trio.open_nursery() as registered_as:
                    self._registered = registered_as.cancel_scope
                    registered_as.start_soon(self._send_heartbeats)
                    if self._broker.options.store.ha_registered_slaves_only:
                        registered_as.start_soon(self._replicas.run)
                    await self._follow(registered_as, registered)

    async def _let_others_first(self, registered: Registered) -> Registered:
        """See :mod:`~understudy.broker.led.former_life`."""
        keys = self._keys
        heard_s = HEARTBEATS_TO_BE_HEARD * keys.broker_heartbeat_interval / 1000
        missed_s = 2 * keys.controller_heart_beat_timeout_mills / 1000
        return await let_others_first(self._clock, self.ids, self._controllers, registered, heard_s, missed_s)

    # --- the role ------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._wake.set()

    @property
    def _pace(self) -> Pace:
        keys = self._keys
        leader, replicas = keys.sync_controller_metadata_period / 1000, keys.sync_broker_metadata_period / 1000
        proof = self._replication.trust_s / 3
        return Pace(max(leader, AGAIN_SECONDS), max(replicas, AGAIN_SECONDS), proof, AGAIN_SECONDS)

    async def _follow(self, nursery: trio.Nursery, registered: Registered) -> None:
        self._events.clear()  # what was asked under another id is nobody's business
        self._pushed = None
        now = self._clock.monotonic()
        state, actions = following.begin(registered.broker_id, registered.leader, registered.word, now)
        proven_at = state.proven_at
        while True:
            self.state, self._leader = state, state.leader or self._leader
            if state.proven_at != proven_at:
                proven_at = state.proven_at
                self._replication.prove(proven_at, state.named.set_epoch)
            for action in actions:
                nursery.start_soon(self._do, action)
            if not self._events and self._pushed is None:
                pause = max(state.next_at() - self._clock.monotonic(), 0.0)
                with self._clock.move_on_after(min(pause, 60.0)):
                    await self._wake.wait()
            event = self._next_event()
            state, actions = following.step(state, event, self._clock.monotonic(), self._pace)

    def _next_event(self) -> Event:
        if self._events:
            return self._events.popleft()
        pushed, self._pushed = self._pushed, None
        return pushed or Looked()

    async def _do(self, action: following.Action) -> None:
        if isinstance(action, Question):
            await self._ask(action)
        elif isinstance(action, TakeRole):
            await self._take_role(action.word, same=action.same)
        else:
            self._take_news(action)

    async def _ask(self, question: Question) -> None:
        state, ask, controllers = self.state, question.ask, self._controllers
        asked_at = Moment(self._clock.monotonic(), self._clock.wall_ms() / 1000)
        assert state is not None
        if ask is Ask.LEADER:
            addresses = dict.fromkeys(
                [state.leader, *self.servers.addresses] if state.leader else self.servers.addresses
            )
            leader = await controllers.find_leader(addresses)
            if leader:
                await self._look_whether_known(leader, state.own_id)
            self._tell(LeaderIs(leader))
            return
        word: Word | None
        try:
            if ask is Ask.REPLICAS:
                word = await controllers.replicas(state.leader)
            elif ask is Ask.ELECTION:
                word = await controllers.elect(state.leader, state.own_id)
            else:
                assert state.role is not None
                word = await alter_set(self._replication, controllers, state.leader, state.role, question.members)
        except UnansweredError as error:
            log.info("the controller did not answer", question=ask.value, why=error)
            if ask is not Ask.SET:  # which may not even have been asked
                self._replication.doubt()
            self._tell(Failed(ask, lost=True))
        except RefusedError as error:
            if (ask, str(error)) != self._refused:  # what nobody can be elected for is asked again and again
                self._refused = (ask, str(error))
                log.info("the controller refused", question=ask.value, why=error)
            if ask is not Ask.SET or error.code in REPLACED:
                self._replication.doubt()
            self._tell(Failed(ask, lost=False))
            if ask is Ask.REPLICAS and error.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._register_again()
        else:
            if word is None:
                self._tell(Failed(ask, lost=False))
            elif word.master_id == state.own_id and word.master_address != self._broker.identity.address:
                self._displaced(word.master_address)
            else:
                if word.master_id != state.own_id:
                    self._replication.doubt()
                self._tell(Said(ask, word, NEVER if word is state.role else asked_at))

    async def _ask_addresses(self) -> Mapping[int, str]:
        state = self.state
        if state is None or not state.leader:
            raise UnansweredError("it is not known who leads the controllers")
        return await self._controllers.addresses(state.leader)

    async def _look_whether_known(self, leader: str, own_id: int) -> None:
        """Look who has the id: the group may have been removed, and made anew by another broker of it."""
        try:
            there = (await self._controllers.addresses(leader)).get(own_id)
        except (UnansweredError, RefusedError):
            return  # another one leads meanwhile; the next question finds it
        if there is None:
            self._register_again()
        elif there != self._broker.identity.address:
            self._displaced(there)

    def _displaced(self, there: str) -> None:
        """Know that the broker at *there* has the id of this one: both would be master at the same word."""
        log.error("another broker has the id of this one", id=self._replication.own_id, there=there)
        self._replication.doubt()
        self._replication.set_fenced(True)
        self._registered.cancel()

    def _register_again(self) -> None:
        log.warning("the controllers know this broker no longer: it claims its id again", id=self._replication.own_id)
        self._registered.cancel()

    async def _take_role(self, word: Word, *, same: bool) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # another one has its id, which was seen in the same moment
        broker, state = self._broker, self.state
        assert state is not None
        self._replication.commanded = word.master_address
        leads = word.master_id == state.own_id
        try:
            await self._change_role(word, state, same=same)
        except (RoleChangeError, OSError) as error:
            log.error("the role stays as it is", epoch=word.epoch, why=error)
            if leads:
                self._heartbeats.cannot_lead(word.epoch, str(error))
            self._tell(Changed(word, str(error)))
            return
        self._heartbeats.led(word.epoch)
        self._replication.set_sync_state(word.members, word.set_epoch)
        self._tell(Changed(word))
        if leads:
            self._tell(Wanted(self._replication.wanted_sync_state()))  # slaves may have reported meanwhile
            broker.topics.stamp()
        broker.registration.trigger()
        broker.presence.led()
        if leads:
            await call_slaves(broker, self._replication, self._controllers, word, lambda: self.state)
        else:
            await self._find_master(word)

    async def _change_role(self, word: Word, state: following.State, *, same: bool) -> None:
        broker = self._broker
        if same:
            await self._replication.same_role(word.epoch)
            broker.identity.role = attrs.evolve(broker.role, epoch=word.epoch)
        elif word.master_id == state.own_id:
            self._replication.set_fenced(False)
            proven_at = state.named_at(word.epoch)
            self._replication.appoint(word.epoch, word.members, word.set_epoch, proven_at)
            await broker.change_role(Role("SYNC_MASTER", 0, word.epoch, "elected by the controller"))
        else:
            self._replication.set_fenced(False)
            reason = f"the controller elected {word.master_id}"
            await broker.change_role(Role("SLAVE", state.own_id, word.epoch, reason))

    def _take_news(self, action: TakeNews) -> None:
        self._replication.commanded = action.word.master_address
        self._replication.set_sync_state(action.word.members, action.word.set_epoch)

    async def _find_master(self, word: Word) -> None:
        """Ask the master where its log is, as a slave, until it says so or another word counts."""
        if self._finding or word.master_id == self._replication.own_id:
            return
        self._finding = True
        try:
            question = request(RequestCode.EXCHANGE_BROKER_HA_INFO, {})
            answer = await self._broker.client.invoke(word.master_address, question, ASK_MASTER_MS)
        except RemotingError:
            return  # the next heartbeat asks again
        finally:
            self._finding = False
        ha_address = (answer.ext or {}).get("masterHaAddress")
        if answer.code == ResponseCode.SUCCESS and ha_address and self.state is not None:
            role = self.state.role
            if role is None or role.epoch <= word.epoch:
                self._replication.follow(word.master_address, ha_address)

    # --- heartbeats ----------------------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        looked_at = self._clock.monotonic()
        async with trio.open_nursery() as nursery:
            while True:
                await self._clock.sleep(self._heartbeats.pause_ms / 1000)
                nursery.start_soon(self._heartbeats.send)
                state = self.state
                if state is None or state.role is None or state.changing is not None:
                    continue
                if not state.is_master and self._broker.replication.master_address != state.role.master_address:
                    nursery.start_soon(self._find_master, state.role)
                now = self._clock.monotonic()
                if state.is_master and now - looked_at >= self._keys.check_sync_state_set_period / 1000:
                    looked_at = now
                    self._tell(Wanted(self._replication.wanted_sync_state()))


def _newer(word: Word, than: Word) -> bool:
    return (word.epoch, word.set_epoch) > (than.epoch, than.set_epoch)
