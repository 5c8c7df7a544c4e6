"""Whom a broker remembers of its group: what the name servers showed it last, kept beside its store.

Pure. A name server that has just booted shows an empty group. A master that comes back beside one would think that it
is alone, and lose what its slave knows; so it also asks whom it remembers.

A member is remembered from the first view that shows it. It is forgotten when views have been without it for
:data:`FORGET_SECONDS`: it is gone for good then, or was moved. Only views that show this broker count for that, others
are of a name server that does not know the group yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

FORGET_SECONDS = 60.0
FILE_NAME = "members.json"


@attrs.frozen
class GroupMemory:
    """What is remembered.

    Attributes:
        members: ids and addresses, this broker included; ``None``: nothing was ever remembered.
        declining: ids of members whose ``enableSlaveActingMaster`` is false.
        missed_since: monotonic seconds since which views have been without a remembered id.
    """

    members: Mapping[int, str] | None = None
    declining: frozenset[int] = frozenset()
    missed_since: Mapping[int, float] = attrs.field(factory=dict)

    def lone(self, own_id: int, total_replicas: int) -> bool:
        """Return whether the group never had another member, as far as is known.

        Args:
            own_id: this broker.
            total_replicas: ``totalReplicas``; counts as long as nobody is remembered.
        """
        if self.members is None:
            return total_replicas <= 1
        return not self.members.keys() - {own_id}

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "members": {str(number): address for number, address in (self.members or {}).items()},
            "declining": sorted(self.declining),
        }


def read(content: Mapping[str, Any]) -> GroupMemory:
    """Return what a file says. Raises ``ValueError``."""
    listed = content.get("members")
    if not isinstance(listed, Mapping):
        raise ValueError("members: expected an object of ids and addresses")
    if not all(str(number).isdecimal() and isinstance(address, str) for number, address in listed.items()):
        raise ValueError("members: expected ids that are whole numbers, with an address each")
    declining = content.get("declining") or []
    if not isinstance(declining, list) or not all(isinstance(number, int) for number in declining):
        raise ValueError("declining: expected a list of ids")
    members = {int(number): address for number, address in listed.items()}
    return GroupMemory(members or None, frozenset(declining))


def observe(memory: GroupMemory, view: Mapping[int, str], own_id: int, now: float) -> GroupMemory:
    """Return what is remembered after a view of the group.

    Args:
        memory: what was remembered before.
        view: ids and addresses that the name servers show.
        own_id: this broker.
        now: monotonic seconds.
    """
    members = {**(memory.members or {}), **view}
    missed: dict[int, float] = {}
    if own_id in view:
        missed = {each: memory.missed_since.get(each, now) for each in members if each not in view}
        for each, since in list(missed.items()):
            if now - since >= FORGET_SECONDS:
                del missed[each], members[each]
    return GroupMemory(dict(sorted(members.items())), memory.declining & members.keys(), missed)
