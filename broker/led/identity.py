"""How a broker comes to its persistent id and keeps it: one step after the other, each of which may be the last. Pure.

The order makes every end harmless. A claim is durable before the controller hears of it, and stays until the controller
has refused it or the confirmed id is durable. A claim that is repeated with its own code is granted again. An id is
given up only when the controller says that it belongs to another code.

==================  =============================  =====================================================
what is known       is done                        and then
==================  =============================  =====================================================
nothing             ask for the next id (1012)     write a claim of it
a claim             apply for it (1013)            granted: confirm it; taken: forget it, ask again
an id               register (1003)                known: done; unknown: claim the same id again
an id and a claim   as an id                       known: forget the claim; unknown: apply for the claim
==================  =============================  =====================================================

Source: ReplicasManager.java (register). Differs: a lost answer does not cost the claim (there an id is lost with each),
and a broker whose group was cleaned at the controller (1011) claims its id again, or gets another one where that is not
to be had, instead of waiting for an operator.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from understudy.broker.led.identity_files import Claim, Kept

# --- what happens ----------------------------------------------------------------------------------------------------


@attrs.frozen
class NextId:
    """The controller proposes an id."""

    broker_id: int


@attrs.frozen
class Written:
    """What was to be written or removed is durable."""


@attrs.frozen
class Granted:
    """The controller has given the claimed id to this broker."""


@attrs.frozen
class Taken:
    """The id that was asked for belongs to another broker, or can belong to none (2014)."""


@attrs.frozen
class Known:
    """The controller knows this broker under its id."""


@attrs.frozen
class Unknown:
    """The controller knows no broker with this id, or not the group (2010)."""


@attrs.frozen
class Unanswered:
    """Nothing was heard, or nothing that decides: it may have been done or not."""


Event: TypeAlias = NextId | Written | Granted | Taken | Known | Unknown | Unanswered

# --- what is to be done ----------------------------------------------------------------------------------------------


@attrs.frozen
class AskNextId:
    """Ask for the next free id (1012)."""


@attrs.frozen
class WriteClaim:
    """Make the claim durable: *broker_id*, with a new code."""

    broker_id: int


@attrs.frozen
class Apply:
    """Apply for the claimed id (1013)."""

    claim: Claim


@attrs.frozen
class Confirm:
    """Make the id durable as this broker's own; its claim is forgotten."""

    broker_id: int


@attrs.frozen
class ForgetClaim:
    """Remove the claim durably."""


@attrs.frozen
class ForgetAll:
    """Remove id and claim durably."""


@attrs.frozen
class Register:
    """Register with the id and the address of now (1003)."""

    broker_id: int


@attrs.frozen
class Done:
    """The broker has its id, and the controller knows where it is."""

    broker_id: int


Action: TypeAlias = AskNextId | WriteClaim | Apply | Confirm | ForgetClaim | ForgetAll | Register | Done


@attrs.frozen
class State:
    """What is known, and what is being done about it.

    Attributes:
        kept: what the files hold.
        action: what is under way. The next event is what became of it.
    """

    kept: Kept
    action: Action


def begin(kept: Kept) -> State:
    """Return how to start with what the files hold."""
    if kept.broker_id is not None:
        return State(kept, Register(kept.broker_id))
    if kept.claim is not None:
        return State(kept, Apply(kept.claim))
    return State(kept, AskNextId())


def step(state: State, event: Event, claimed: Claim | None = None) -> State:
    """Return what to do next, once *event* has come of the action under way.

    Args:
        state: until now.
        event: what came of its action. :class:`Unanswered` and what no controller answers mean: do it again.
        claimed: what was written after :class:`WriteClaim`.
    """
    kept, action = state.kept, state.action
    match action, event:
        case AskNextId(), NextId(broker_id):
            return State(kept, WriteClaim(broker_id))
        case WriteClaim(), Written() if claimed is not None:
            return State(attrs.evolve(kept, claim=claimed), Apply(claimed))
        case Apply(claim), Granted():
            return State(kept, Confirm(claim.broker_id))
        case Apply(), Taken():
            return State(kept, ForgetAll())
        case ForgetAll(), Written():
            return begin(Kept())
        case Confirm(broker_id), Written():
            return begin(Kept(broker_id))
        case Register(broker_id), Known():
            return State(kept, Done(broker_id) if kept.claim is None else ForgetClaim())
        case ForgetClaim(), Written():
            assert kept.broker_id is not None
            return State(Kept(kept.broker_id), Done(kept.broker_id))
        case Register(broker_id), Unknown():
            if kept.claim is not None and kept.claim.broker_id == broker_id:
                return State(kept, Apply(kept.claim))
            return State(kept, WriteClaim(broker_id))
    return state
