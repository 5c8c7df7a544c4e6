"""Users and what they may do as a table that travels (960, ours; the reference copies none)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, KeptTable, Source, Taken
from understudy.remoting.codes import RequestCode
from understudy.security.authority import Authority
from understudy.security.settings import SecuritySettings


class ReplicatedUsers(KeptTable):
    """Every user with its rules; there is no such row in brokers that ask for no signatures.

    Args:
        authority: the table.
        settings: name the super users that are there whatever the table says.
    """

    name = "users"
    code = RequestCode.GET_ALL_USERS
    optional = True
    file = FilePlan("users.json", private=True)

    def __init__(self, authority: Authority, settings: SecuritySettings) -> None:
        self.table = authority
        self._supers = settings.super_users
        authority.ensure_supers(self._supers)

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.take(content, self._supers)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Users(self, source)


class _Users(Copying):
    def __init__(self, users: ReplicatedUsers, source: Source) -> None:
        self._users = users
        self._source = source

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        content = read_object(answer.body)
        if self._source.leads:
            self._users.load(content)
        return Taken.ALL
