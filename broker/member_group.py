"""Who is alive in a broker's group, as the name servers see it.

Three sources feed one view: the regular question (901, or 105 for old name servers), the pushed notice that the
smallest id changed (905), and the answers of registrations. The view is what the role of the broker, the copies a send
needs and the master of a slave are decided from.

Name servers may see different things. A slave that one of them tells of no master asks all others before it believes
it: a master that only one name server has lost is there (differs because the reference's slave acts on the first answer
and delivers beside its master for as long as the name servers disagree). So does a master that one of them has lost:
where another one still shows it, no slave has acted for it, and it only registers again.

Source: BrokerController.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.registration import Registration
from understudy.broker.replication import Replication
from understudy.format import names
from understudy.format.json_dialect import JsonError, loads
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("broker.members")

QUESTION_TIMEOUT_MS = 3_000
SECOND_OPINION_MS = 500
"""How long another name server may take to say that it still sees a master."""
SEARCH_MS = 3_000
MASTER_ID = 0


@attrs.frozen
class MinBrokerNotice:
    """What NOTIFY_MIN_BROKER_ID_CHANGE says; absent parts are ``None``."""

    min_broker_id: int | None
    min_broker_address: str | None
    offline_address: str | None
    ha_address: str | None


def members_of_group(body: bytes) -> dict[int, str]:
    """Read the answer of GET_BROKER_MEMBER_GROUP. Raises ``ValueError`` when it is none."""
    return _addresses(_object(body).get("brokerMemberGroup"))


def members_of_route(body: bytes, cluster: str, name: str) -> dict[int, str]:
    """Read the members from a route of the group's member topic. Raises ``ValueError`` when it is no route."""
    listed = _object(body).get("brokerDatas") or []
    for group in listed if isinstance(listed, list) else []:
        if isinstance(group, Mapping) and group.get("brokerName") == name and group.get("cluster") == cluster:
            return _addresses(group)
    return {}


def after_notice(members: Mapping[int, str] | None, notice: MinBrokerNotice) -> dict[int, str] | None:
    """Return the view after a pushed notice: without the address that is gone, with the new smallest id, and nobody
    below it."""
    if notice.min_broker_id is None:
        return None if members is None else dict(members)
    found = {
        broker_id: address
        for broker_id, address in (members or {}).items()
        if broker_id >= notice.min_broker_id and address != notice.offline_address
    }
    if notice.min_broker_address:
        found[notice.min_broker_id] = notice.min_broker_address
    return dict(sorted(found.items()))


class MemberGroup:
    """The view of one broker.

    Args:
        world: clock.
        options: read anew each time.
        identity: who asks.
        registration: asked to register at once when the name server does not know this broker.
        replication: told where the master is and how many replicas live.
        client: connections to name servers and to the master.

    Attributes:
        members: ids and addresses of the last view, in order; ``None`` until a name server has answered.
        seen_at: monotonic time of the last good answer in seconds, ``None`` before.
        on_view: called after each good answer and each notice, changed or not.
        on_contact: called with the members of each good answer before anything is made of it, while :attr:`seen_at`
            still tells of the one before.
    """

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        identity: Identity,
        registration: Registration,
        replication: Replication,
        client: RemotingClient,
    ) -> None:
        self._clock = world.clock
        self._options = options
        self._identity = identity
        self._registration = registration
        self._replication = replication
        self._client = client
        self._chosen = 0
        self._ask_again = trio.Event()
        self._unknown_somewhere = False
        self.members: dict[int, str] | None = None
        self.seen_at: float | None = None
        self.on_view: list[Callable[[], None]] = []
        self.on_contact: list[Callable[[Mapping[int, str]], None]] = []
        registration.on_answer.append(replication.follow)
        if options.broker.enable_slave_acting_master:
            registration.on_unknown = self._look_first

    async def run(self) -> None:
        """Keep the view fresh until cancelled."""
        broker = self._options.broker
        while True:
            if broker.enable_slave_acting_master:
                unknown, self._unknown_somewhere = self._unknown_somewhere, False
                await self.ask()
                if unknown:
                    self._registration.lost()
                await self._find_ha_address()
                with self._clock.move_on_after(broker.sync_broker_member_group_period / 1000):
                    await self._ask_again.wait()
                self._ask_again = trio.Event()
                continue
            if self._identity.role.is_slave and self._replication.master_address is None:
                self._registration.trigger()  # its answer names the master as soon as there is one
            await self._clock.sleep(SEARCH_MS / 1000)

    def _look_first(self) -> None:
        """Look at the group before the broker registers where it was not known: a slave may have acted for it there."""
        self._unknown_somewhere = True
        self._ask_again.set()

    async def ask(self) -> dict[int, str] | None:
        """Ask a name server now; return the view, or ``None`` when none answers. The old view stays then."""
        servers = self._registration.name_servers
        for turn in range(len(servers)):
            index = (self._chosen + turn) % len(servers)
            found = await self._ask_at(servers[index])
            if found is not None:
                self._chosen = index
                held = found.get(self._identity.broker_id)
                if found and self._misses_master(found):
                    found = await self._with_other_views(servers[index], found)
                self._take(found, held)
                return found
        return None

    def _misses_master(self, found: Mapping[int, str]) -> bool:
        if MASTER_ID in found:
            return False
        own = self._identity
        return own.role.is_slave or (self.members or {}).get(own.broker_id) == own.address

    async def _with_other_views(self, asked: str, found: dict[int, str]) -> dict[int, str]:
        """Return *found*, with the master of another name server that still sees one; a master counts itself only."""
        masters: list[str] = []
        is_slave, own = self._identity.role.is_slave, self._identity.address

        async def look(address: str) -> None:
            view = await self._ask_at(address, SECOND_OPINION_MS)
            if view is not None and MASTER_ID in view and (is_slave or view[MASTER_ID] == own):
                masters.append(view[MASTER_ID])

        async with trio.open_nursery() as nursery:
            for address in self._registration.name_servers:
                if address != asked:
                    nursery.start_soon(look, address)
        return {MASTER_ID: masters[0], **found} if masters else found

    async def views(self) -> list[dict[int, str]]:
        """Ask every name server now and return what they answer; changes nothing here."""
        answers = [await self._ask_at(address) for address in self._registration.name_servers]
        return [found for found in answers if found is not None]

    def pushed(self, notice: MinBrokerNotice) -> None:
        """Take NOTIFY_MIN_BROKER_ID_CHANGE into the view."""
        found = after_notice(self.members, notice)
        if found is None:
            return
        log.info("smallest broker id changed", broker=self._identity.canonical_name, notice=notice, members=found)
        if len(self._registration.name_servers) > 1 and self._misses_master(found):
            self._ask_again.set()
            return
        self._show(found)
        if notice.min_broker_id == MASTER_ID:
            self._replication.follow(notice.min_broker_address, notice.ha_address)
        elif notice.offline_address == self._replication.master_address:
            self._replication.lose_master()

    async def _ask_at(self, address: str, timeout_ms: int = QUESTION_TIMEOUT_MS) -> dict[int, str] | None:
        identity = self._identity
        if self._options.broker.compatible_with_old_name_srv:
            topic = names.SYNC_MEMBER_TOPIC_PREFIX + identity.name
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            answer = await self._invoke(address, command, timeout_ms)
            if answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
        else:
            ext = {"clusterName": identity.cluster, "brokerName": identity.name}
            answer = await self._invoke(address, request(RequestCode.GET_BROKER_MEMBER_GROUP, ext), timeout_ms)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        try:
            if self._options.broker.compatible_with_old_name_srv:
                return members_of_route(answer.body, identity.cluster, identity.name)
            return members_of_group(answer.body)
        except ValueError as error:
            log.warning("members not understood", name_server=address, why=error)
            return None

    async def _invoke(self, address: str, command: Command, timeout_ms: int = QUESTION_TIMEOUT_MS) -> Command | None:
        try:
            return await self._client.invoke(address, command, timeout_ms)
        except RemotingError as error:
            log.debug("no answer", address=address, why=error)
            return None

    def _take(self, found: dict[int, str], held: str | None) -> None:
        """Make *found* the view; *held* is whom the name server that was asked knows by the id of this broker."""
        for callback in self.on_contact:
            callback(found)
        self.seen_at = self._clock.monotonic()
        own = self._identity
        if held is None:
            self._registration.lost()
        elif held != own.address and (self.members or {}).get(own.broker_id) != held:
            log.error(
                "another broker has this name and id; give one of them another brokerName or brokerId",
                broker=own.canonical_name,
                own=own.address,
                other=held,
            )
        if found:
            # The reference keeps its role when nobody is listed; so does whoever reads an unchanged view.
            self._show(found)

    def _show(self, found: dict[int, str]) -> None:
        own = self._identity
        self.members = found
        self._replication.alive = len(found) + (own.broker_id not in found)
        replication = self._replication
        if own.role.is_slave:
            master = found.get(MASTER_ID)
            if master is None and replication.master_address is not None and not replication.master_returning:
                replication.lose_master()
        for callback in self.on_view:
            callback()

    async def _find_ha_address(self) -> None:
        """Ask a master that the view shows and that is not followed yet for its HA address (906)."""
        replication = self._replication
        master = None if self.members is None else self.members.get(MASTER_ID)
        if replication.slave is None or master is None:
            return
        if master == replication.master_address and replication.slave.master_address is not None:
            return
        answer = await self._invoke(master, request(RequestCode.EXCHANGE_BROKER_HA_INFO, {}))
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            ext = answer.ext or {}
            replication.follow(master, ext.get("masterHaAddress"))


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = loads(body)
    except JsonError as error:
        raise ValueError(str(error)) from None
    if not isinstance(value, Mapping):
        raise ValueError("no JSON object")
    return value


def _addresses(group: object) -> dict[int, str]:
    listed = group.get("brokerAddrs") if isinstance(group, Mapping) else None
    if not isinstance(listed, Mapping):
        return {}
    return dict(sorted((int(broker_id), str(address)) for broker_id, address in listed.items()))
