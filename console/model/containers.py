"""Which process hosts which brokers: containers, processes of one broker each, and what nobody says.

Brokers of ours name their container in their roster. Of one of the reference its settings tell whether it is in a
container, and not in which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.console.model.groups import Group, Member, part_of

CONTAINER, OWN, UNNAMED, UNKNOWN = "container", "own", "unnamed", "unknown"
_KINDS = (CONTAINER, OWN, UNNAMED, UNKNOWN)


@attrs.frozen
class Home:
    """Where a broker runs.

    Attributes:
        kind: :data:`CONTAINER`; :data:`OWN`, a process of its own; :data:`UNNAMED`, a container that it does not name;
            or :data:`UNKNOWN`.
        address: of the container, ``""`` for the other kinds.
    """

    kind: str
    address: str = ""


def home_of(member: Member) -> Home:
    """Return where a broker runs, or ran when it was heard last."""
    answer = member.answer
    if answer is None:
        return Home(UNKNOWN)
    named = (answer.roster or {}).get("container")
    if isinstance(named, str):
        return Home(CONTAINER, named) if named else Home(OWN)
    inside = (answer.settings or {}).get("isInBrokerContainer", "").lower()
    return Home({"true": UNNAMED, "false": OWN}.get(inside, UNKNOWN))


def rows_of(groups: Mapping[str, Group]) -> list[dict[str, Any]]:
    """Return a row for each container, those first of which no broker answers; then one for each other kind of home.

    A row says, too, which groups lose everything with the container: all of their brokers are in it.
    """
    found: dict[Home, list[tuple[Group, Member]]] = {}
    for _, group in sorted(groups.items()):
        for member in sorted(group.members.values(), key=lambda each: (each.broker_id, not each.registered)):
            found.setdefault(home_of(member), []).append((group, member))
    rows = [_row(home, hosted) for home, hosted in found.items()]
    return sorted(rows, key=lambda row: (_KINDS.index(row["kind"]), row["answers"], row["address"]))


def _row(home: Home, hosted: list[tuple[Group, Member]]) -> dict[str, Any]:
    silent = [member.silent_since_ms for _, member in hosted]
    answers = any(member.answers for _, member in hosted)
    groups = {group.name: group for group, _ in hosted}
    return {
        "kind": home.kind,
        "address": home.address,
        "answers": answers,
        "silentSince": None if answers else max((each for each in silent if each is not None), default=None),
        "brokers": [
            {
                "group": group.name,
                "cluster": group.cluster,
                "id": member.broker_id,
                "address": member.address,
                "part": part_of(member, group),
                "answers": member.answers,
            }
            for group, member in hosted
        ],
        "holdsAllOf": [name for name, group in groups.items() if home.kind == CONTAINER and _is_all_at(home, group)],
    }


def _is_all_at(home: Home, group: Group) -> bool:
    registered = [member for member in group.members.values() if member.registered]
    return len(registered) > 1 and all(home_of(member) == home for member in registered)
