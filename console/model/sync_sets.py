"""The SyncStateSet of each group that controllers lead, as those have it: who is in it, and why others are not.

Controllers elect a replica that is in it, and another one only with ``enableElectUncleanMaster``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.console.model.groups import Group

MOST_CONTROLLERS = 16
"""Addresses of one group's controllers that are asked."""
MOST_REPLICAS = 100


@attrs.frozen
class Replica:
    """One broker of a group, as the controllers have it.

    Attributes:
        broker_id: the id that the controllers gave it; it stays when roles change.
        address: where clients reach it.
        in_set: it is in the set.
        alive: the controllers hear from it.
    """

    broker_id: int
    address: str
    in_set: bool
    alive: bool


@attrs.frozen
class SyncSetLook:
    """What the controllers said of one group.

    Attributes:
        at_ms: when.
        controllers: that were asked, ``host:port``.
        leader: the one of them that answered; ``""`` when none did.
        master_id: of the master that they have elected; ``None`` while there is none.
        master_epoch: grows with each election.
        set_epoch: grows with each change of the set.
        replicas: by their ids.
        error: why they did not answer, ``""`` when they did; the rest is then as in their answer before.
    """

    at_ms: int
    controllers: tuple[str, ...]
    leader: str = ""
    master_id: int | None = None
    master_epoch: int | None = None
    set_epoch: int | None = None
    replicas: tuple[Replica, ...] = ()
    error: str = ""

    @property
    def master_address(self) -> str:
        """Where the master is; ``""`` while there is none."""
        return next((each.address for each in self.replicas if each.broker_id == self.master_id), "")


def controllers_of(group: Group) -> tuple[str, ...]:
    """Return the addresses of the controllers that lead *group*, as its brokers' settings name them; of none, none."""
    for member in sorted(group.members.values(), key=lambda each: (not each.registered, each.broker_id)):
        settings = (member.answer.settings if member.answer is not None else None) or {}
        if settings.get("enableControllerMode", "").lower() == "true":
            named = [part.strip() for part in settings.get("controllerAddr", "").split(";")]
            return tuple(dict.fromkeys(part for part in named if part))[:MOST_CONTROLLERS]
    return ()


def led(groups: Mapping[str, Group]) -> dict[tuple[str, ...], list[str]]:
    """Return the names of the groups that controllers lead, by the addresses of those."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, group in sorted(groups.items()):
        controllers = controllers_of(group)
        if controllers:
            found.setdefault(controllers, []).append(name)
    return found


def look_of(entry: Mapping[str, Any], at_ms: int, controllers: tuple[str, ...], leader: str) -> SyncSetLook:
    """Return what the controllers said of one group.

    Args:
        entry: of the group, in the answer to GET_SYNC_STATE_DATA (1006).
        at_ms: when.
        controllers: that were asked.
        leader: that answered.

    Raises:
        TypeError, ValueError, KeyError: it cannot be read.
    """
    replicas = [
        Replica(int(each["brokerId"]), str(each["brokerAddress"]), key == "inSyncReplicas", bool(each.get("alive")))
        for key in ("inSyncReplicas", "notInSyncReplicas")
        for each in (entry.get(key) or ())[:MOST_REPLICAS]
    ]
    master_id = entry.get("masterBrokerId")
    return SyncSetLook(
        at_ms,
        controllers,
        leader,
        None if master_id is None else int(master_id),
        int(entry["masterEpoch"]),
        int(entry["syncStateSetEpoch"]),
        tuple(sorted(replicas, key=lambda each: each.broker_id)),
    )


def row_of(look: SyncSetLook, group: Group, behind: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the set as a page shows it.

    Args:
        look: what the controllers said.
        group: as name servers list it.
        behind: by address, how many bytes of the leader's log each broker lacks; ``None`` unknown.
    """
    return {
        "at": look.at_ms,
        "controllers": list(look.controllers),
        "leader": look.leader,
        "error": look.error,
        "masterEpoch": look.master_epoch,
        "setEpoch": look.set_epoch,
        "inSet": sum(each.in_set for each in look.replicas),
        "notes": _notes(look, group),
        "replicas": [
            {
                "id": each.broker_id,
                "address": each.address,
                "master": each.broker_id == look.master_id,
                "inSet": each.in_set,
                "alive": each.alive,
                "behindBytes": behind.get(each.address),
                "why": _why(look, each, group, behind.get(each.address)),
            }
            for each in look.replicas
        ],
    }


def _notes(look: SyncSetLook, group: Group) -> list[str]:
    if not look.leader:
        return []
    if look.master_id is None:
        asked = f"mqadmin whyNoMaster -a {look.leader} -b {group.name}"
        return [f"the controllers have elected no master; {asked} says which rule refuses each replica"]
    listed = next((each.address for each in group.members.values() if each.registered and not each.broker_id), "")
    if listed and listed != look.master_address:
        return [f"the controllers have elected {look.master_address}, name servers list {listed} still"]
    return []


def _why(look: SyncSetLook, replica: Replica, group: Group, behind: float | None) -> str:
    """Return why a replica is not in the set, or may not stay in it; ``""`` when all is well."""
    if replica.in_set:
        return "" if replica.alive else "the controllers hear nothing from it, and it counts still"
    if not replica.alive:
        return "the controllers hear nothing from it"
    if _is_learner(replica, group):
        return "a learner (asyncLearner=true) copies and is never counted"
    if look.master_id is None:
        return "it lives; without a master nobody is let in"
    if behind == 0:
        return "it lives and has everything: its master lets it in with one of the next looks"
    return "it lives, and has not caught up with its master"


def _is_learner(replica: Replica, group: Group) -> bool:
    member = group.members.get(replica.address)
    answer = None if member is None else member.answer
    return ((answer.settings if answer is not None else None) or {}).get("asyncLearner", "").lower() == "true"
