"""Refuses the start of a second broker with the name and id of one that is alive.

Two such brokers would take each other's place at the name servers with every registration. The one that was there keeps
serving; the second one does not start. Whoever is only listed, and does not answer any more, is in nobody's way.
"""

from __future__ import annotations

from understudy.broker.identity import Identity
from understudy.broker.member_group import MemberGroup
from understudy.broker.storage import BrokerStartError
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.clock import Clock

LIMIT_MS = 1_000
"""Longest time the question may delay a start, in milliseconds."""


async def refuse_twin(clock: Clock, group: MemberGroup, client: RemotingClient, identity: Identity) -> None:
    """Ask the name servers who has our id, and that broker whether it is there.

    Args:
        clock: for the bound of the look.
        group: asks the name servers.
        client: asks the broker.
        identity: of this broker.

    Raises:
        BrokerStartError: it is; the message says where, and what to do.
    """
    with clock.move_on_after(LIMIT_MS / 1000):
        for members in await group.views():
            address = members.get(identity.broker_id)
            if address is None or address == identity.address:
                continue
            if await answers_as(address, client, identity, identity.broker_id):
                raise BrokerStartError(
                    f"broker {identity.name} with id {identity.broker_id} of cluster {identity.cluster} is alive at "
                    f"{address}; give this one another brokerName or brokerId, or stop the other one"
                )


async def answers_as(address: str, client: RemotingClient, identity: Identity, broker_id: int) -> bool:
    """Return whether the broker at *address* answers and says that it is *broker_id* of the group of *identity*.

    Args:
        address: of the broker that is asked.
        client: asks it.
        identity: of this broker; the other one must be of its group.
        broker_id: that the other one must have.
    """
    try:
        answer = await client.invoke(address, request(RequestCode.GET_BROKER_CONFIG), LIMIT_MS)
    except RemotingError:
        return False
    lines = answer.body.decode("utf-8", "replace").splitlines()
    wanted = {
        f"brokerClusterName={identity.cluster}",
        f"brokerName={identity.name}",
        f"brokerId={broker_id}",
    }
    return answer.code == ResponseCode.SUCCESS and wanted <= set(lines)
