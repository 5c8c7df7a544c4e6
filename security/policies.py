"""What users may do: resources, actions, entries of policies, and which entry decides about a need.

Source: Resource.java, Policy.java, PolicyEntry.java, AuthorizationHandler (AclAuthorizationHandler.java).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import attrs

from understudy.format.json_dialect import Rows
from understudy.format.json_values import list_of, name_of
from understudy.format.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from understudy.security.rule_index import RuleIndex


class Kind(Enum):
    """What a resource is."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(Enum):
    """What is done with a resource."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class PolicyType(Enum):
    """Default entries decide where no custom one does."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


_KINDS = {kind.value.lower(): kind for kind in Kind}
_ACTIONS = {action.value.lower(): action for action in Action}


@attrs.frozen
class Need:
    """What one part of a request needs: any one of the actions on the resource.

    Attributes:
        kind: of the resource.
        name: of the resource.
        actions: of which one is enough.
    """

    kind: Kind
    name: str
    actions: frozenset[Action]

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


@attrs.frozen
class Pattern:
    """The resources that an entry is about.

    Attributes:
        kind: of the resources; :attr:`Kind.ANY` for every kind.
        name: their name, the beginning of it when *prefix*, ``*`` for every name.
        prefix: whether *name* is a beginning.
    """

    kind: Kind
    name: str
    prefix: bool = False

    @property
    def key(self) -> str:
        """The pattern as it stands in bodies."""
        if self.kind is Kind.ANY:
            return "*"
        return f"{self.kind.value}:{self.name}{'*' if self.prefix else ''}"

    def matches(self, need: Need) -> bool:
        """Return whether *need* is about one of these resources."""
        if self.kind is not Kind.ANY and self.kind is not need.kind:
            return False
        if self.prefix:
            return need.name.startswith(self.name)
        return self.name in ("*", need.name)

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sorts what is told more exactly first."""
        looseness = 2 if self.name == "*" else int(self.prefix)
        return self.kind is Kind.ANY, looseness, -len(self.name)


def pattern_of(text: str) -> Pattern:
    """Read ``*``, ``Topic:name``, ``Topic:begin*`` or ``Topic:*``; retry and dead letter topics are their groups.

    Raises:
        ValueError: it is none of them.
    """
    text = text.strip()
    if text == "*":
        return Pattern(Kind.ANY, "*")
    word, separator, name = text.partition(":")
    kind = _KINDS.get(word.strip().lower())
    if kind is None or not separator or not name or (kind is Kind.ANY and name != "*"):
        raise ValueError(
            f"resource {text[:64]!r} is neither '*' nor Cluster, Namespace, Topic or Group, ':' and a name"
        )
    if kind is Kind.TOPIC:
        kind, name = of_topic(name)
    if name != "*" and name.endswith("*"):
        return Pattern(kind, name[:-1], True)
    return Pattern(kind, name)


def of_topic(topic: str) -> tuple[Kind, str]:
    """Return the resource that stands for *topic*: itself, or the group of a retry or dead letter topic."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return Kind.GROUP, topic.removeprefix(prefix)
    return Kind.TOPIC, topic


@attrs.frozen
class Entry:
    """One rule.

    Attributes:
        pattern: what it is about.
        actions: what may, or must not, be done; :attr:`Action.ALL` for everything.
        allow: whether it is allowed.
        sources: addresses and networks it is about; none for all.
    """

    pattern: Pattern
    actions: frozenset[Action]
    allow: bool
    sources: tuple[str, ...] = ()

    def acts_on(self, need: Need) -> bool:
        """Return whether it is about one of the actions that *need* names."""
        return not self.actions.isdisjoint(need.actions) or Action.ALL in self.actions

    def to_json(self) -> dict[str, Any]:
        """Return its form in answers and in the file."""
        found: dict[str, Any] = {
            "actions": [action.value for action in Action if action in self.actions],
            "decision": "Allow" if self.allow else "Deny",
            "resource": self.pattern.key,
        }
        if self.sources:
            found["sourceIps"] = list(self.sources)
        return found


def entry_of(value: object) -> Entry:
    """Read one rule. Raises ``ValueError`` in the words of the reference."""
    if not isinstance(value, Mapping):
        raise ValueError("The entry is no JSON object.")
    resource = value.get("resource")
    if not isinstance(resource, str) or not resource.strip():
        raise ValueError("The resource is null.")
    words = [word for word in list_of(value.get("actions"), "actions") if isinstance(word, str)]
    if any(word.strip().lower() == "any" for word in words):
        raise ValueError("The actions can not be Any.")
    actions = frozenset(_ACTIONS[word.strip().lower()] for word in words if word.strip().lower() in _ACTIONS)
    if not actions:
        raise ValueError("The actions is empty.")
    sources = [name_of(each, "sourceIps") for each in list_of(value.get("sourceIps"), "sourceIps")]
    for source in sources:
        try:
            ipaddress.ip_network(source, strict=False)
        except ValueError:
            raise ValueError("The source ip is invalid.") from None
    decision = str(value.get("decision") or "").strip().lower()
    if decision not in ("allow", "deny"):
        raise ValueError("The decision is null or illegal.")
    return Entry(pattern_of(resource), actions, decision == "allow", tuple(sources))


@attrs.frozen
class Acl:
    """All rules of one user.

    Attributes:
        policies: entries by the resource they are about, of either type.
    """

    policies: Mapping[PolicyType, Mapping[str, Entry]] = attrs.field(factory=dict)

    @cached_property
    def index(self) -> RuleIndex:
        """The rules as they are asked; made once, for neither changes."""
        return RuleIndex((self.policies.get(kind, {}).values() for kind in PolicyType), Kind.ANY)

    def merged(self, kind: PolicyType, entries: Iterable[Entry]) -> Acl:
        """Return the rules with *entries* in place of those about the same resources."""
        changed = {**self.policies.get(kind, {}), **{entry.pattern.key: entry for entry in entries}}
        return Acl({**self.policies, kind: changed})

    def without(self, kind: PolicyType, resource: str) -> Acl:
        """Return the rules without those about *resource*."""
        left = {key: entry for key, entry in self.policies.get(kind, {}).items() if key != resource}
        return Acl({name: rules for name, rules in {**self.policies, kind: left}.items() if rules})

    def to_rows(self, subject: str) -> Rows:
        """Return its form in answers and in the file, made while it is written."""
        policies = (
            Rows((("entries", (entry.to_json() for entry in rules.values())), ("policyType", kind.value)))
            for kind, rules in self.policies.items()
        )
        return Rows((("policies", policies), ("subject", subject)))


Policies = Sequence[tuple[PolicyType, list[Entry]]]


def acl_of(value: Mapping[str, Any]) -> Policies:
    """Read the policies of a body. Raises ``ValueError`` in the words of the reference."""
    found = []
    for policy in list_of(value.get("policies"), "policies"):
        if not isinstance(policy, Mapping):
            raise ValueError("The policy is no JSON object.")
        word = str(policy.get("policyType") or "Custom").strip().lower()
        if word not in ("custom", "default"):
            raise ValueError("The policy type is illegal.")
        kind = PolicyType.DEFAULT if word == "default" else PolicyType.CUSTOM
        found.append((kind, [entry_of(each) for each in list_of(policy.get("entries"), "entries")]))
    return found


def decide(acl: Acl | None, need: Need, address: str) -> Entry | None:
    """Return the entry that decides about *need* of somebody at *address*; ``None`` when none is about it.

    Custom entries come first; among those of one type the exact name comes before a beginning, a longer beginning
    before a shorter one, those before all names, a kind before all kinds, and a refusal before a permission.
    """
    return acl.index.decide(need, address) if acl is not None else None
