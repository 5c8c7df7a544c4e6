"""Whether a slave believes a master that says that it comes back, or a slave that says that it acts from now on (906).

The request names no sender and may come from anyone. A slave that followed every such word would leave its living
master for an address where nothing is, and replication would stand still until it found back. So a word is believed
only where it agrees with what others say:

* the name servers show no master at another address;
* the broker at the claimed address answers that it is the master of this group, and that its log is where the word
  says.

A slave that comes is on no name server's list yet. It, too, must answer at the address it says, as the member of this
group that it says it is. And the one that acts stands back for half of the time at most, however often it is told.

Differs because the reference believes every such request.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.broker.identity import Identity
from understudy.broker.member_view import MASTER_ID
from understudy.broker.twin import answers_as
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import World

QUESTION_TIMEOUT_MS = 1_000


STAND_BACK_SECONDS = 60.0
"""How long slaves that say that they come keep this one from delivering; for as long afterwards none is believed."""


@attrs.define
class Patience:
    """How long this slave has stood back for others lately.

    Attributes:
        since: monotonic seconds of the first word that counted.
    """

    since: float = float("-inf")

    def lasts(self, now: float) -> bool:
        """Return whether a slave that says at *now* that it comes is believed; counts it when it is."""
        if now - self.since >= 2 * STAND_BACK_SECONDS:
            self.since = now
        return now - self.since < STAND_BACK_SECONDS


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


async def refusal(
    claim: Claim, shown: Mapping[int, str] | None, identity: Identity, world: World, like: RemotingClient
) -> str:
    """Return why the slave *identity* does not believe *claim*, ``""`` when it does; at most two questions.

    They go over a connection of their own: one that is left from the master's former life may be dead.

    Args:
        claim: what was said, and by whom.
        shown: addresses of the group by id, as a name server shows them; ``None`` when none answered.
        identity: of the slave.
        world: clock and network for the questions.
        like: the broker's client, which says how questions are signed and secured.
    """
    found = contradiction(claim, shown)
    if found or claim.address is None:
        return found
    async with open_client(world, like=like) as client:
        if not await answers_as(claim.address, client, identity, MASTER_ID):
            return f"{claim.address} does not answer as the master of {identity.name}"
        question = request(RequestCode.EXCHANGE_BROKER_HA_INFO, {})
        try:
            answer = await client.invoke(claim.address, question, QUESTION_TIMEOUT_MS)
        except RemotingError as error:
            return str(error)
    said = (answer.ext or {}).get("masterHaAddress") if answer.code == ResponseCode.SUCCESS else None
    return "" if said == claim.ha_address else f"{claim.address} says that its log is at {said}, not {claim.ha_address}"


async def successor_refusal(
    broker_id: int, address: str | None, identity: Identity, world: World, like: RemotingClient
) -> str:
    """Return why the slave *identity* does not believe that slave *broker_id* comes, ``""`` when it does.

    Args:
        broker_id: of the slave that is said to come.
        address: where it is said to be.
        identity: of the slave that was told.
        world: clock and network for the question.
        like: the broker's client, which says how the question is signed and secured.
    """
    if not address:
        return "successorAddress is missing"
    async with open_client(world, like=like) as client:
        if await answers_as(address, client, identity, broker_id):
            return ""
    return f"{address} does not answer as slave {broker_id} of {identity.name}"
