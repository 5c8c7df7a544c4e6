"""Whether a slave believes a master that says that it comes back (906).

The request names no sender and may come from anyone. A slave that followed every such word would leave its living
master for an address where nothing is, and replication would stand still until it found back. So a word is believed
only where it agrees with what others say:

* the name servers show no master at another address;
* the broker at the claimed address answers that it is the master of this group, and that its log is where the word
  says.

Differs because the reference believes every such request.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.broker.identity import Identity
from understudy.broker.member_view import MASTER_ID
from understudy.broker.twin import answers_as
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import World

QUESTION_TIMEOUT_MS = 1_000


@attrs.frozen
class Claim:
    """Where a master says that it is.

    Attributes:
        address: its own address, ``host:port``.
        ha_address: that of its log.
    """

    address: str | None
    ha_address: str


def contradiction(claim: Claim, shown: Mapping[int, str] | None) -> str:
    """Return what is wrong with *claim* as far as is known without a question, ``""`` when nothing is.

    Args:
        claim: what was said.
        shown: the members that name servers show, ``None``: they were not heard lately.
    """
    if not claim.address:
        return "masterAddress is missing"
    master = (shown or {}).get(MASTER_ID)
    if master is not None and master != claim.address:
        return f"the name servers show the master at {master}, not at {claim.address}"
    return ""


async def refusal(claim: Claim, shown: Mapping[int, str] | None, identity: Identity, world: World) -> str:
    """Return why the slave *identity* does not believe *claim*, ``""`` when it does; at most two questions.

    They go over a connection of their own: one that is left from the master's former life may be dead.
    """
    found = contradiction(claim, shown)
    if found or claim.address is None:
        return found
    async with open_client(world) as client:
        if not await answers_as(claim.address, client, identity, MASTER_ID):
            return f"{claim.address} does not answer as the master of {identity.name}"
        question = request(RequestCode.EXCHANGE_BROKER_HA_INFO, {})
        try:
            answer = await client.invoke(claim.address, question, QUESTION_TIMEOUT_MS)
        except RemotingError as error:
            return str(error)
    said = (answer.ext or {}).get("masterHaAddress") if answer.code == ResponseCode.SUCCESS else None
    return "" if said == claim.ha_address else f"{claim.address} says that its log is at {said}, not {claim.ha_address}"
