"""The rules of one user, arranged so that the one that decides is found without a look at all others."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.security.policies import Entry, Kind, Need

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def host_of(address: str) -> Address | None:
    """Return the host that *address* names, an IPv4 one if that is what it stands for; ``None`` if it names none."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(host, "ipv4_mapped", None) or host


class Sources:
    """Addresses and networks, as many as there may be: a host is looked up once for each length of their prefixes.

    Args:
        texts: addresses and networks.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._networks: dict[tuple[int, int], set[int]] = {}
        for text in texts:
            network = ipaddress.ip_network(text, strict=False)
            rest = network.max_prefixlen - network.prefixlen
            self._networks.setdefault((network.version, rest), set()).add(int(network.network_address) >> rest)

    def hold(self, host: Address | None) -> bool:
        """Return whether *host* is one of them, or in one of them."""
        if host is None:
            return False
        version, number = host.version, int(host)
        return any(number >> rest in networks for (of, rest), networks in self._networks.items() if of == version)


class _Rule:
    """One entry, with its sources read when they are looked at first."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @cached_property
    def _sources(self) -> Sources:
        return Sources(self.entry.sources)

    def applies(self, need: Need, address: str) -> bool:
        """Return whether the entry, which is about such a name, says something about *need* of who is at *address*."""
        entry = self.entry
        return entry.acts_on(need) and (not entry.sources or self._sources.hold(host_of(address)))


class _Group:
    """The rules of one type about one kind of resource.

    Args:
        rules: what is told more exactly first, and a refusal before a permission.
    """

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._named: dict[str, list[_Rule]] = {}
        self._begun: dict[str, list[_Rule]] = {}
        self._every: list[_Rule] = []
        for rule in rules:
            pattern = rule.entry.pattern
            if pattern.name == "*":
                self._every.append(rule)
            else:
                (self._begun if pattern.prefix else self._named).setdefault(pattern.name, []).append(rule)
        self._lengths = sorted({len(name) for name in self._begun}, reverse=True)

    def decide(self, need: Need, address: str) -> Entry | None:
        """Return the entry that decides: of the name itself, of its longest beginning, or of all names."""
        name, begun = need.name, self._begun
        for rule in self._named.get(name, ()):
            if rule.applies(need, address):
                return rule.entry
        for length in self._lengths:
            if length <= len(name):
                for rule in begun.get(name[:length], ()):
                    if rule.applies(need, address):
                        return rule.entry
        for rule in self._every:
            if rule.entry.pattern.matches(need) and rule.applies(need, address):
                return rule.entry
        return None


class RuleIndex:
    """All rules of a user; never changes, as those do not that it is made of.

    Args:
        policies: entries of each type, in the order in which the types decide.
        any_kind: the kind that stands for all.
    """

    def __init__(self, policies: Iterable[Iterable[Entry]], any_kind: Kind) -> None:
        self._any = any_kind
        self._types: list[list[tuple[Kind, _Group]]] = []
        for entries in policies:
            found: dict[Kind, list[_Rule]] = {}
            for entry in sorted(entries, key=lambda each: (*each.pattern.order, each.allow)):  # any kind comes last
                found.setdefault(entry.pattern.kind, []).append(_Rule(entry))
            self._types.append([(kind, _Group(rules)) for kind, rules in found.items()])

    def decide(self, need: Need, address: str) -> Entry | None:
        """Return the entry that decides about *need* of somebody at *address*; ``None`` when none is about it."""
        for groups in self._types:
            for kind, group in groups:
                if kind is need.kind or kind is self._any:
                    entry = group.decide(need, address)
                    if entry is not None:
                        return entry
        return None
