"""Asks the name servers who is alive in a broker's group, and does what :mod:`understudy.broker.member_view` decides.

Source: BrokerController.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from understudy.broker import member_view
from understudy.broker.config import BrokerOptions
from understudy.broker.group_memory import GroupMemory
from understudy.broker.identity import Identity
from understudy.broker.member_events import (
    Action,
    Answered,
    Arrived,
    Ask,
    AskAgain,
    AskOthers,
    AskSettings,
    Contact,
    Due,
    Event,
    FindLog,
    Follow,
    Following,
    LoseMaster,
    Lost,
    NoAnswer,
    Notice,
    Noticed,
    Opinions,
    Registered,
    Remember,
    SettingsOf,
    Shown,
    TellServers,
    Twin,
    View,
    Warn,
)
from understudy.broker.member_view import Own
from understudy.broker.presence import Presence
from understudy.broker.registration import Registration
from understudy.broker.replication import Replication
from understudy.format import names
from understudy.remoting.bodies import json_value
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("broker.members")

QUESTION_TIMEOUT_MS = 3_000
SECOND_OPINION_MS = 500
"""How long another name server may take to say whom it sees, after a first one has."""
SEARCH_MS = 3_000
ACTING_KEY = "enableSlaveActingMaster"


def members_of_group(body: object) -> dict[int, str]:
    """Read the JSON value that answers GET_BROKER_MEMBER_GROUP. Raises ``ValueError`` when it is none."""
    return _addresses(_object(body).get("brokerMemberGroup"))


def members_of_route(body: object, cluster: str, name: str) -> dict[int, str]:
    """Read the members from a route of the group's member topic. Raises ``ValueError`` when it is no route."""
    listed = _object(body).get("brokerDatas") or []
    for group in listed if isinstance(listed, list) else []:
        if isinstance(group, Mapping) and group.get("brokerName") == name and group.get("cluster") == cluster:
            return _addresses(group)
    return {}


class MemberGroup:
    """The view of one broker.

    Args:
        world: clock.
        options: read anew each time.
        identity: who asks.
        registration: asked to register at once when the name server does not know this broker.
        replication: told where the master is and how many replicas live.
        client: connections to name servers and to other members.
        presence: told of each answer of a name server.
        remember: called when what is remembered must be written.

    Attributes:
        state: what is known.
        on_view: called after each good answer and each notice, changed or not.
    """

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        identity: Identity,
        registration: Registration,
        replication: Replication,
        client: RemotingClient,
        presence: Presence,
        remember: Callable[[], None],
    ) -> None:
        self._clock, self._threads = world.clock, world.threads
        self._options = options
        self._identity = identity
        self._registration = registration
        self._replication = replication
        self._client = client
        self._presence = presence
        self._remember = remember
        self._ask_again = Signal()
        self._unknown_somewhere = False
        self.state = member_view.State(self._own())
        registration.on_taken.append(lambda: self._take(Registered()))
        registration.master_declines = lambda: self.state.master_declines
        registration.may_tell = self._may_tell
        self.on_view: list[Callable[[], None]] = []

    @property
    def members(self) -> View | None:
        """Ids and addresses of the last view, in order; ``None`` until a name server has answered."""
        return self.state.members

    @property
    def memory(self) -> GroupMemory:
        """Whom this broker remembers of its group."""
        return self.state.memory

    def recall(self, memory: GroupMemory) -> None:
        """Take what a former life has left."""
        self.state = attrs.evolve(self.state, memory=memory)

    def remember(self, memory: GroupMemory) -> None:
        """Take what is remembered from now on, and have it written."""
        self.recall(memory)
        self._remember()

    def begin_anew(self) -> None:
        """Forget the view, and what is under way to make one: it shows the group as it was for another role, or before
        this broker came back."""
        self.state = attrs.evolve(self.state, own=self._own(), members=None, pending=None, left=(), overtaken=True)
        self._ask_again.set()

    async def run(self) -> None:
        """Keep the view fresh until cancelled."""
        broker = self._options.broker
        async with trio.open_nursery() as nursery:
            while True:
                looked = self._ask_again.count
                if broker.enable_slave_acting_master:
                    unknown, self._unknown_somewhere = self._unknown_somewhere, False
                    for question in await self._round():
                        nursery.start_soon(self._ask_settings, question)
                    if unknown:
                        self._registration.lost()
                    with self._clock.move_on_after(broker.sync_broker_member_group_period / 1000):
                        await self._ask_again.wait(looked)
                    continue
                if self._identity.role.is_slave and self._replication.master_address is None:
                    self._registration.trigger()  # its answer names the master as soon as there is one
                with self._clock.move_on_after(SEARCH_MS / 1000):
                    await self._ask_again.wait(looked)

    def not_known(self) -> None:
        """Look at the group before the broker registers where it was not known: a slave may have acted for it there."""
        if not self._options.broker.enable_slave_acting_master:
            self._registration.trigger()
            return
        self._unknown_somewhere = True
        self._ask_again.set()

    async def _may_tell(self, server: str, same: bool) -> bool:
        """Return whether *server* may be told of this broker, which looks at the group first if it was dropped there.

        A machine that slept while its clock was set back has no other trace of its absence than that. A name server
        that has just booted shows nobody, which is no proof: another one may show who acts. One that does not know the
        question, or is slow, is told as before over the *same* connection: it hangs up on whom it drops by itself.
        """
        if not self._options.broker.enable_slave_acting_master or not self._presence.state.guarded:
            return True
        if not member_view.shown(self.state):
            return True  # nobody can have dropped it since
        answer = await self._invoke(server, self._question())
        if answer is None:
            return same and not self._presence.withheld
        found = await self._view_of(server, answer)
        if found is not None and not member_view.shows(self.state.own, found):
            everyone = member_view.together(self.state.own, await self.views())
            if member_view.drops(self.state, everyone):
                self._presence.contact(everyone, self.state.members, self.state.memory.members or {})
        return not self._presence.withheld

    async def views(self) -> list[dict[int, str]]:
        """Ask every name server at once and return what they answer; changes nothing here.

        Those that have not answered :data:`SECOND_OPINION_MS` after the first are not waited for.
        """
        return await self._ask_all(tuple(self._registration.name_servers), QUESTION_TIMEOUT_MS)

    def pushed(self, notice: Notice, host: str) -> None:
        """Take NOTIFY_MIN_BROKER_ID_CHANGE into the view, or only ask at once when *host* is no name server's."""
        servers = self._registration.name_servers
        trusted = host in {address.rpartition(":")[0] for address in servers}
        event = Noticed(notice, len(servers), trusted, self._following())
        actions = self._take(event)
        log.info(
            "smallest broker id changed",
            broker=self._identity.canonical_name,
            notice=notice,
            members=self.members,
        )
        for action in actions:
            self._act(action)

    # --- a round -----------------------------------------------------------------------------------------------

    async def _round(self) -> list[AskSettings]:
        """Ask until there is a view, or no name server is left; return which members' settings are to be asked for."""
        questions = []
        todo = list(self._take(Due(tuple(self._registration.name_servers))))
        while todo:
            action = todo.pop(0)
            if isinstance(action, AskSettings):
                questions.append(action)
                continue
            event = await self._answer(action)
            if event is not None:
                todo += self._take(event)
        return questions

    async def _answer(self, action: Action) -> Event | None:
        """Do *action*; return what came of it if it was a question."""
        if isinstance(action, Ask):
            found = await self._ask_at(action.server)
            if found is None:
                return NoAnswer(action.server, self._following())
            return Answered(action.server, found, tuple(self._registration.name_servers), self._following())
        if isinstance(action, AskOthers):
            return Opinions(tuple(await self._ask_all(action.servers, SECOND_OPINION_MS)), self._following())
        if isinstance(action, FindLog):
            answer = await self._invoke(action.address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, {}))
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._replication.follow(action.address, (answer.ext or {}).get("masterHaAddress"))
            return None
        self._act(action)
        return None

    def _take(self, event: Event) -> tuple[Action, ...]:
        state = attrs.evolve(self.state, own=self._own())
        self.state, actions = member_view.step(state, event, self._clock.monotonic())
        return actions

    def _own(self) -> Own:
        identity, acting_enabled = self._identity, self._options.broker.enable_slave_acting_master
        return Own(identity.broker_id, identity.address, identity.role.is_slave, acting_enabled)

    def _act(self, action: Action) -> None:
        """Do what needs no waiting."""
        name = self._identity.canonical_name
        if isinstance(action, Contact):
            self._presence.contact(action.found, action.before, action.remembered)
        elif isinstance(action, Lost):
            self._registration.lost()
        elif isinstance(action, TellServers):
            self._registration.trigger()
        elif isinstance(action, Shown):
            self._replication.alive = self.state.alive
            for callback in self.on_view:
                callback()
        elif isinstance(action, Remember):
            self._remember()
        elif isinstance(action, Follow):
            self._replication.follow(action.address, action.ha_address)
        elif isinstance(action, Arrived):
            self._replication.arrived()
        elif isinstance(action, LoseMaster):
            self._replication.lose_master()
        elif isinstance(action, AskAgain):
            self._ask_again.set()
        elif isinstance(action, Warn):
            log.warning(action.text, broker=name)
        elif isinstance(action, Twin):
            log.error(
                "another broker has this name and id; give one of them another brokerName or brokerId",
                broker=name,
                own=self._identity.address,
                other=action.address,
            )

    def _following(self) -> Following:
        replication = self._replication
        if replication.slave is None:
            return Following()
        log_known = replication.slave.master_address is not None
        return Following(replication.master_address, replication.awaits, log_known)

    # --- questions ---------------------------------------------------------------------------------------------

    async def _ask_settings(self, question: AskSettings) -> None:
        answer = await self._invoke(question.address, request(RequestCode.GET_BROKER_CONFIG))
        said = None
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            said = setting_of(answer.body, self._identity, question.broker_id)
        for action in self._take(SettingsOf(question.broker_id, question.address, said)):
            self._act(action)

    async def _ask_all(self, servers: tuple[str, ...], timeout_ms: int) -> list[dict[int, str]]:
        """Ask *servers* at once; those that are later than the first by more than a moment are not waited for."""
        found: dict[str, dict[int, str]] = {}
        answered, left = trio.Event(), len(servers)

        async def look(address: str) -> None:
            nonlocal left
            view = await self._ask_at(address, timeout_ms)
            left -= 1
            if view is not None:
                found[address] = view
                answered.set()
            if left == 0:
                nursery.cancel_scope.cancel()

        with self._clock.move_on_after(timeout_ms / 1000):
            async with trio.open_nursery() as nursery:
                for address in servers:
                    nursery.start_soon(look, address)
                if servers:
                    await answered.wait()
                    await self._clock.sleep(SECOND_OPINION_MS / 1000)
                nursery.cancel_scope.cancel()
        return [found[address] for address in servers if address in found]

    async def _ask_at(self, address: str, timeout_ms: int = QUESTION_TIMEOUT_MS) -> dict[int, str] | None:
        answer = await self._invoke(address, self._question(), timeout_ms)
        return None if answer is None else await self._view_of(address, answer)

    def _question(self) -> Command:
        identity = self._identity
        if self._options.broker.compatible_with_old_name_srv:
            topic = names.SYNC_MEMBER_TOPIC_PREFIX + identity.name
            return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        ext = {"clusterName": identity.cluster, "brokerName": identity.name}
        return request(RequestCode.GET_BROKER_MEMBER_GROUP, ext)

    async def _view_of(self, address: str, answer: Command) -> dict[int, str] | None:
        """Return whom *answer* shows; ``None``: the name server at *address* does not know the question."""
        identity, old = self._identity, self._options.broker.compatible_with_old_name_srv
        if old and answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if answer.code != ResponseCode.SUCCESS:
            return None
        try:
            body = await json_value(self._threads, answer.body)
            if old:
                return members_of_route(body, identity.cluster, identity.name)
            return members_of_group(body)
        except ValueError as error:
            log.warning("members not understood", name_server=address, why=error)
            return None

    async def _invoke(self, address: str, command: Command, timeout_ms: int = QUESTION_TIMEOUT_MS) -> Command | None:
        try:
            return await self._client.invoke_repeatable(address, command, timeout_ms)
        except RemotingError as error:
            log.debug("no answer", address=address, why=error)
            return None


def setting_of(body: bytes, identity: Identity, broker_id: int) -> bool | None:
    """Read ``enableSlaveActingMaster`` from the configuration of member *broker_id* of the group of *identity*.

    Returns:
        ``None``: the key is not there, or it is another broker's configuration.
    """
    lines = dict(line.partition("=")[::2] for line in body.decode("utf-8", "replace").splitlines())
    who = (lines.get("brokerClusterName"), lines.get("brokerName"), lines.get("brokerId"))
    if who != (identity.cluster, identity.name, str(broker_id)) or ACTING_KEY not in lines:
        return None
    return lines[ACTING_KEY].strip().lower() == "true"


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("no JSON object")
    return value


def _addresses(group: object) -> dict[int, str]:
    listed = group.get("brokerAddrs") if isinstance(group, Mapping) else None
    if not isinstance(listed, Mapping):
        return {}
    return dict(sorted((int(broker_id), str(address)) for broker_id, address in listed.items()))
