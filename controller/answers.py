"""From requests to values and from values to answers, as they stand on the wire; decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

import msgspec

from understudy.controller.commands import Outcome
from understudy.controller.failover import ElectionRecord
from understudy.controller.group import Group
from understudy.controller.leadership import heard_leader
from understudy.controller.raft.facts import Facts
from understudy.remoting.bodies import JsonError, json_of
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError, optional, optional_int, required_int

MAX_SET_MEMBERS = 10_000
"""Of a sync-state set in a request; sets of more are none."""
GREATEST_BROKER_ID = (1 << 31) - 1
"""Ids are 64-bit numbers on the wire, but each next one must be one as well."""

INCARNATION_LENGTH = 16
"""Longer ones are none: an election tells those of up to a thousand brokers in one command."""


def number_of(command: Command, name: str, default: int) -> int:
    """Return field *name*, or *default* when it is missing. Raises :class:`CommandError`."""
    value = optional_int(command, name)
    if value is None:
        return default
    if not -(1 << 63) <= value < 1 << 63:
        raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, f"{name}={value} is no 64-bit number")
    return value


def broker_id_of(command: Command, name: str) -> int:
    """Return the broker id in field *name*. Raises :class:`CommandError` when it is none that a broker can have."""
    value = required_int(command, name)
    if not 0 < value <= GREATEST_BROKER_ID:
        remark = f"{name}={value}: ids of brokers are 1 to {GREATEST_BROKER_ID}"
        raise CommandError(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark)
    return value


def incarnation_of(command: Command) -> str:
    """Return the incarnation of a broker's store; empty when it does not say it, or something else."""
    text = optional(command, "storeIncarnation") or ""
    return text if len(text) <= INCARNATION_LENGTH and text.isascii() else ""


def value_of(command: Command) -> Any:
    """Return the body's value. Raises :class:`CommandError`."""
    try:
        return json_of(command)
    except JsonError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None


def sync_state_set(command: Command) -> tuple[list[int], int]:
    """Return the members and the epoch in the body of 1001. Raises :class:`CommandError`."""
    body = value_of(command) if command.body else None
    if isinstance(body, dict):
        members, epoch = body.get("syncStateSet"), body.get("syncStateSetEpoch")
        # JSON's true is an int to Python
        if (
            isinstance(members, list)
            and len(members) <= MAX_SET_MEMBERS
            and all(type(each) is int for each in (*members, epoch))
        ):
            return sorted(set(members)), cast("int", epoch)
    raise CommandError(
        ResponseCode.CONTROLLER_INVALID_REQUEST, "the body is no sync state set", {"newSyncStateSetEpoch": "0"}
    )


def master_fields(outcome: Outcome) -> dict[str, str]:
    """Return the header fields that name the master; none without one."""
    if outcome.master_id is None or outcome.master_address is None:
        return {}
    return {"masterBrokerId": str(outcome.master_id), "masterAddress": outcome.master_address}


def election_body(outcome: Outcome, cluster_name: str, broker_name: str) -> bytes:
    """Return the body of 1002.

    Keys are quoted: the reference writes bare numbers, which its own tool cannot read.
    """
    body: dict[str, Any] = {}
    if outcome.members is not None:
        body["brokerMemberGroup"] = {
            "brokerAddrs": {str(member): address for member, address in outcome.members.items()},
            "brokerName": broker_name,
            "cluster": outcome.cluster_name or cluster_name,
        }
    body["syncStateSet"] = outcome.sync_state_set
    return msgspec.json.encode(body)


def group_answer(group: Group, alive: Collection[int]) -> dict[str, Any]:
    """Return one group as 1006 shows it; *alive* are the ids of its living brokers."""
    rows = {
        broker_id: {
            "alive": broker_id in alive,
            "brokerAddress": replica.address,
            "brokerId": broker_id,
            "brokerName": group.broker_name,
        }
        for broker_id, replica in sorted(group.replicas.items())
    }
    shown: dict[str, Any] = {
        "inSyncReplicas": [row for broker_id, row in rows.items() if broker_id in group.sync_state_set]
    }
    if group.master_id is not None:
        shown["masterAddress"] = group.master_address() or ""
        shown["masterBrokerId"] = group.master_id
    shown["masterEpoch"] = group.master_epoch
    shown["notInSyncReplicas"] = [row for broker_id, row in rows.items() if broker_id not in group.sync_state_set]
    shown["syncStateSetEpoch"] = group.set_epoch
    return shown


def quorum_text(facts: Facts, members: list[str], records: Iterable[ElectionRecord]) -> str:
    """Return one member's view of quorum and elections, one line each fact.

    Args:
        facts: of the member.
        members: ids of the whole group.
        records: decisions about masters.
    """
    lines = [
        f"#Role\t{facts.role}",
        f"#Term\t{facts.term}",
        f"#Leader\t{heard_leader(facts) or 'unknown'}",
        f"#LedgerEnd\tindex {facts.last_index} term {facts.last_term}",
        f"#Commit\t{facts.commit_index} applied {facts.applied_index} snapshot {facts.snapshot_index}",
        f"#Voter\t{str(facts.voter).lower()}",
        f"#Connected\t{', '.join(facts.connected) or 'nobody'}",
        f"#Features\t{facts.features}",
    ]
    if facts.problem:
        lines.append(f"#Problem\t{facts.problem}")
    lines += [f"#Round\t{election.describe(members)}" for election in facts.rounds]
    lines += [f"#Election\t{record.describe()}" for record in records]
    return "\n".join(lines) + "\n"
