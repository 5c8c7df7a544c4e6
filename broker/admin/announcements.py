"""What members of a replica group are told about each other (905, 906).

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.announcement import STAND_BACK_SECONDS, Claim, Patience, refusal, successor_refusal
from understudy.broker.identity import Identity
from understudy.broker.member_events import Notice
from understudy.broker.member_group import MemberGroup
from understudy.broker.member_view import MASTER_ID
from understudy.broker.presence import Presence
from understudy.broker.replication import Replication
from understudy.broker.services import STORED, BrokerServices
from understudy.broker.session import STOP_SECONDS
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.admin")

SUCCESSOR = "successorId"
"""Header field of ours: the id of a slave that comes online and acts for the master from now on."""
SUCCESSOR_ADDRESS = "successorAddress"
"""Where that slave answers, ``host:port``."""


@attrs.frozen
class AnnouncementParts:
    """What of a broker is needed to hear of other members.

    Attributes:
        identity: names, addresses and role.
        world: clock and network.
        client: asks whether it is true.
        replication: follows the master.
        member_group: who else is alive.
        presence: whether name servers were heard lately.
    """

    identity: Identity
    world: World
    client: RemotingClient
    replication: Replication
    member_group: MemberGroup
    presence: Presence


@attrs.frozen
class StandingBackParts:
    """What of a broker is needed to stand back for another slave.

    Attributes:
        identity: names, addresses and role.
        world: clock and network.
        client: asks whether the other slave is there.
        replication: copies from the other one, if it acts.
        services: those that deliver are stopped.
    """

    identity: Identity
    world: World
    client: RemotingClient
    replication: Replication
    services: BrokerServices


def register(broker: Broker, server: RemotingServer) -> None:
    """Hear on *server* what *broker* is told of its group."""
    handlers = Announcements(
        AnnouncementParts(
            identity=broker.identity,
            world=broker.world,
            client=broker.client,
            replication=broker.replication,
            member_group=broker.member_group,
            presence=broker.presence,
        ),
        StandingBack(
            StandingBackParts(
                identity=broker.identity,
                world=broker.world,
                client=broker.client,
                replication=broker.replication,
                services=broker.services,
            )
        ),
    )
    server.register(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, handlers.min_broker_changed)
    server.register_async(RequestCode.EXCHANGE_BROKER_HA_INFO, handlers.exchange)


class Announcements:
    """Handlers of what is said about a broker's group."""

    def __init__(self, parts: AnnouncementParts, standing_back: StandingBack) -> None:
        self._parts = parts
        self._standing_back = standing_back

    def min_broker_changed(self, connection: Connection, command: Command) -> Command:
        """Learn from the name server that the smallest id of the group changed (905)."""
        notice = Notice(
            optional_int(command, "minBrokerId"),
            optional(command, "minBrokerAddr"),
            optional(command, "offlineBrokerAddr"),
            optional(command, "haBrokerAddr"),
        )
        self._parts.member_group.pushed(notice, connection.peer[0])
        return response(command)

    async def exchange(self, connection: Connection, command: Command) -> Command:
        """Tell where this master's log is, or learn it from a master that comes online (906).

        A slave of ours that will act from now on says so in the field :data:`SUCCESSOR`. It is answered when nothing
        more is delivered here. So is a master, which then reads how far this slave has come: a put that ended after
        that would be nobody's progress. It is answered after :data:`STOP_SECONDS` in any case.
        """
        parts = self._parts
        successor = optional_int(command, SUCCESSOR)
        if successor is not None:
            await self._standing_back.stand_back(successor, optional(command, SUCCESSOR_ADDRESS))
            return response(command, ext={})
        ha_address = optional(command, "masterHaAddress")
        if ha_address:
            claim = Claim(optional(command, "masterAddress"), ha_address)
            shown = None if parts.presence.state.contact_lost else parts.member_group.members
            why = ""
            if parts.identity.role.is_slave:
                why = await refusal(claim, shown, parts.identity, parts.world, parts.client)
            if why:
                raise _not_believed(parts.identity, "a master that says it comes back is not believed", why)
            parts.replication.learn_flush_offset(optional_int(command, "masterFlushOffset") or 0)
            parts.replication.announced(claim.address, ha_address)
            if parts.identity.role.is_slave:
                with parts.world.clock.move_on_after(STOP_SECONDS) as bound:
                    await self._standing_back.stop_putting()
                if bound.cancelled_caught:
                    log.warning("a master that comes back is answered beside a put", broker=parts.identity.name)
            return response(command, ext={})
        if parts.identity.role.is_slave:
            return response(command, ext={})
        ext = {
            "masterAddress": parts.identity.address,
            "masterFlushOffset": str(parts.replication.initial_offset),
            "masterHaAddress": parts.identity.ha_address,
        }
        return response(command, ext=ext)


class StandingBack:
    """Has one slave that acts make way for another."""

    def __init__(self, parts: StandingBackParts) -> None:
        self._parts = parts
        self._patience = Patience()

    async def stand_back(self, successor: int, address: str | None) -> None:
        """Deliver nothing more once this returns.

        Args:
            successor: id of the slave that will act.
            address: where it answers, ``host:port``.

        Raises:
            CommandError: it is not for this broker to make way, or the slave is not there.
        """
        parts = self._parts
        if not MASTER_ID < successor < parts.identity.broker_id:
            remark = f"broker {parts.identity.broker_id} does not stand back for broker {successor}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        await self._check(successor, address)
        parts.replication.stand_back(successor)
        await self.stop_putting()

    async def stop_putting(self) -> None:
        """Have nothing delivered any more, nor under way, once this returns; somebody else is known to come."""
        async with trio.open_nursery() as nursery:  # each may have a put under way, which has a moment to end
            for each in STORED:
                nursery.start_soon(self._parts.services.stop, each.value)

    async def _check(self, broker_id: int, address: str | None) -> None:
        """Refuse to stand back for a slave that is not there, or for longer than may be."""
        parts, what = self._parts, "a slave that says it acts from now on is not believed"
        why = await successor_refusal(broker_id, address, parts.identity, parts.world, parts.client)
        if not why and not self._patience.lasts(parts.world.clock.monotonic()):
            why = (
                f"for {STAND_BACK_SECONDS:g} s slaves said that they come, and none is there; try again a minute later"
            )
        if why:
            raise _not_believed(parts.identity, what, why)


def _not_believed(identity: Identity, what: str, why: str) -> CommandError:
    log.warning(what, broker=identity.name, why=why)
    return CommandError(ResponseCode.SYSTEM_ERROR, f"not believed: {why}")
